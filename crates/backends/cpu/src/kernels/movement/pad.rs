//! One value around a tensor.

use rustorch_ir::ops::Pad;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::coordinates;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Pad,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Pad(op) = args.op else {
        return Err(Misuse("not a pad".to_owned()));
    };
    with_type!(args.output.dtype(), words T => {
        pad::<T>(&mut args, op);
        Ok(())
    })
}

fn pad<T: Element>(args: &mut Args, op: &Pad) {
    let value: T = bytemuck::pod_read_unaligned(&op.value.to_bytes(args.output.dtype()));
    let (x, shape) = (&args.inputs[0], args.output.ty.shape.clone());
    let reader = Reader::<T>::whole(x);
    // The last dimension is a row.
    let lead = shape.len().saturating_sub(1);
    let row = shape.last().map_or(1, |&n| n);
    let len = x.shape().last().map_or(1, |&n| n);
    let before = op.padding.last().map_or(0, |&(before, _)| before);
    for_rows(
        args.pool,
        args.output.data::<T>(),
        row,
        row,
        |first, part| {
            for (i, out) in part.chunks_exact_mut(row).enumerate() {
                let at = coordinates(&shape[..lead], first + i);
                // The row of the operand, unless all of this is padding.
                let inside = (at.iter().zip(&op.padding).zip(x.shape())).try_fold(
                    0,
                    |index, ((at, (before, _)), size)| {
                        let at = at.checked_sub(*before).filter(|at| at < size)?;
                        Some(index * size + at)
                    },
                );
                out.fill(value);
                if let Some(index) = inside {
                    reader.copy(index * len, &mut out[before..before + len]);
                }
            }
        },
    );
}
