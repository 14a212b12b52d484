//! Writing into a state buffer, with conversion between floating-point types.

use bytemuck::Pod;
use half::{bf16, f16};
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Launch, Misuse};
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::UpdateSlice,
    accepts,
    layouts: Layouts::DenseRows,
    launch,
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
    let window = args.output.layout.slice(op.dim, first, len, 1);
    let base = args.output.layout.offset;
    match (args.output.dtype(), source.dtype()) {
        (DType::F64, from) => floats(source, from, args.output.data::<f64>(), &window, base),
        (DType::F32, from) => floats(source, from, args.output.data::<f32>(), &window, base),
        (DType::F16, from) => floats(source, from, args.output.data::<f16>(), &window, base),
        (DType::BF16, from) => floats(source, from, args.output.data::<bf16>(), &window, base),
        (to, _) => match to.size() {
            Some(1) => copy(source, args.output.data::<u8>(), &window, base, |x: u8| x),
            Some(2) => copy(source, args.output.data::<i16>(), &window, base, |x: i16| x),
            Some(4) => copy(source, args.output.data::<i32>(), &window, base, |x: i32| x),
            Some(16) => copy(
                source,
                args.output.data::<[f64; 2]>(),
                &window,
                base,
                |x: [f64; 2]| x,
            ),
            _ => copy(source, args.output.data::<u64>(), &window, base, |x: u64| x),
        },
    }
    Ok(())
}

/// A floating-point type that others convert to through `f64`, exactly or rounded once.
trait Float: Pod {
    fn from_f64(x: f64) -> Self;
    fn from_f32(x: f32) -> Self;
}

impl Float for f64 {
    fn from_f64(x: f64) -> Self {
        x
    }
    fn from_f32(x: f32) -> Self {
        x.into()
    }
}

impl Float for f32 {
    fn from_f64(x: f64) -> Self {
        x as f32
    }
    fn from_f32(x: f32) -> Self {
        x
    }
}

impl Float for f16 {
    fn from_f64(x: f64) -> Self {
        Self::from_f64(x)
    }
    fn from_f32(x: f32) -> Self {
        Self::from_f32(x)
    }
}

impl Float for bf16 {
    fn from_f64(x: f64) -> Self {
        Self::from_f64(x)
    }
    fn from_f32(x: f32) -> Self {
        Self::from_f32(x)
    }
}

fn floats<T: Float>(source: &View, from: DType, state: &mut [T], window: &Layout, base: usize) {
    match from {
        DType::F64 => copy(source, state, window, base, T::from_f64),
        DType::F32 => copy(source, state, window, base, T::from_f32),
        DType::F16 => copy(source, state, window, base, |x: f16| {
            T::from_f32(x.to_f32())
        }),
        _ => copy(source, state, window, base, |x: bf16| {
            T::from_f32(x.to_f32())
        }),
    }
}

/// Copies row by row; both sides have dense rows.
fn copy<S: Pod, T: Pod>(
    source: &View,
    state: &mut [T],
    window: &Layout,
    base: usize,
    convert: impl Fn(S) -> T,
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
        let cells = state[t..t + row].iter_mut().zip(&data[s..s + row]);
        cells.for_each(|(t, s)| *t = convert(*s));
    }
}
