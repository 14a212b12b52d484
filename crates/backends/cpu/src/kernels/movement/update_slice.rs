//! Writing into a state buffer, with conversion between floating-point types, or to blocks.

use bytemuck::Pod;
use num_traits::AsPrimitive;
use rustorch_ir::{BlockFormat, DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::half_precision::{round_bf16, round_f16};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::view::{Target, View};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::UpdateSlice,
    accepts,
    layouts: Layouts::DenseRows,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::UpdateSlice(op) = args.op else {
        return Err(Misuse("not an update_slice".to_owned()));
    };
    let (source, start) = (&args.inputs[1], &args.inputs[2]);
    let start = start.data::<i32>()[0];
    let (len, size) = (source.shape()[op.dim], args.output.shape()[op.dim]);
    let first = usize::try_from(start)
        .ok()
        .filter(|s| s.checked_add(len).is_some_and(|e| e <= size));
    let Some(first) = first else {
        let range = format!("{len} indices from {start} on");
        return Err(Misuse(format!(
            "{range} do not fit a state of {size} in dim {}",
            op.dim
        )));
    };
    if let DType::Block(format) = args.output.dtype() {
        return quantize(source, &mut args.output, format, (op.dim, first));
    }
    let window = args.output.layout.slice(op.dim, first, len, 1);
    let base = args.output.layout.offset;
    let state = &mut args.output;
    match (source.dtype(), state.dtype()) {
        // Caches of keys and values: many elements at a time.
        (DType::F32, DType::F16) => copy(source, state.data(), &window, base, round_f16),
        (DType::F32, DType::BF16) => copy(source, state.data(), &window, base, round_bf16),
        (from, to) if to.is_float() => {
            return with_type!(to, floats Y => with_type!(from, floats X => {
                copy(source, state.data::<Y>(), &window, base, |from: &[X], to| {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.as_());
                });
                Ok(())
            }));
        }
        (_, to) => {
            return with_type!(to, words W => {
                copy(source, state.data::<W>(), &window, base, |from: &[W], to| {
                    to.copy_from_slice(from);
                });
                Ok(())
            });
        }
    }
    Ok(())
}

/// Writes rows of `f32` as blocks, from index `first` of dimension `dim` on.
fn quantize(
    source: &View,
    state: &mut Target,
    format: BlockFormat,
    (dim, first): (usize, usize),
) -> Result<(), Misuse> {
    let last = source.shape().len() - 1;
    let (len, width) = (source.shape()[dim], source.shape()[last]);
    let rows = Layout::contiguous(&state.ty.shape.clone().with_dim(last, 1));
    let rows = rows.slice(dim, first, len, 1);
    let data: &[f32] = source.data();
    let starts = source.layout.slice(last, 0, 1, 1);
    let row_bytes = format.row_bytes(width).unwrap_or(0);
    let bytes = state.all_bytes();
    for (row, start) in rows.positions().zip(starts.positions()) {
        let from = &data[start - source.layout.offset..][..width];
        let to = &mut bytes[row * row_bytes..][..row_bytes];
        format
            .quantize(from, to)
            .map_err(|e| Misuse(e.to_string()))?;
    }
    Ok(())
}

/// Copies row by row; both sides have dense rows.
fn copy<S: Pod, T: Pod>(
    source: &View,
    state: &mut [T],
    window: &Layout,
    base: usize,
    convert: impl Fn(&[S], &mut [T]),
) {
    let data: &[S] = source.data();
    let [from, to] = Layout::collapse([source.layout, window]);
    let row = match (from.strides.last(), to.strides.last()) {
        (Some(1), Some(1)) => from.shape[from.rank() - 1],
        _ => 1,
    };
    let rows = |layout: &Layout| {
        let mut rows = layout.clone();
        if row > 1 {
            rows.shape = rows.shape.with_dim(layout.rank() - 1, 1);
        }
        rows
    };
    for (s, t) in rows(&from).positions().zip(rows(&to).positions()) {
        let (s, t) = (s - source.layout.offset, t - base);
        convert(&data[s..s + row], &mut state[t..t + row]);
    }
}
