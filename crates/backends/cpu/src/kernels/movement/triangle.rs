//! Triangles of matrices.

use rustorch_ir::ops::Triangle;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Triangle,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Triangle(op) = args.op else {
        return Err(Misuse("not a triangle".to_owned()));
    };
    with_type!(args.output.dtype(), words T => {
        triangle::<T>(&mut args, op);
        Ok(())
    })
}

fn triangle<T: Element>(args: &mut Args, op: &Triangle) {
    let x = &args.inputs[0];
    let (rank, x) = (x.shape().len(), Reader::<T>::whole(x));
    let shape = &args.inputs[0].shape()[rank - 2..];
    let (rows, columns) = (shape[0], shape[1]);
    for_rows(
        args.pool,
        args.output.data::<T>(),
        columns,
        columns,
        |first, part| {
            for (i, out) in (first..).zip(part.chunks_exact_mut(columns)) {
                // The column of the edge, which is the first or last one that is kept.
                let edge = ((i % rows) as i64).saturating_add(op.diagonal);
                let columns_until = |edge: i64| edge.clamp(0, columns as i64) as usize;
                let kept = match op.upper {
                    true => columns_until(edge)..columns,
                    false => 0..columns_until(edge.saturating_add(1)),
                };
                out[..kept.start].fill(T::zeroed());
                out[kept.end..].fill(T::zeroed());
                if !kept.is_empty() {
                    x.copy(i * columns + kept.start, &mut out[kept]);
                }
            }
        },
    );
}
