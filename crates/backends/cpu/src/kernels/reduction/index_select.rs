//! Listed indices of a dimension.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::{Check, Indices, indices, take};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::IndexSelect,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::IndexSelect(op) = args.op else {
        return Err(Misuse("not an index_select".to_owned()));
    };
    let (x, index) = (&args.inputs[0], &args.inputs[1]);
    let row: usize = x.shape()[op.dim + 1..].iter().product();
    if row != 1 || args.output.ty.shape.elements() == 0 {
        let picks = indices(args.pool, index, x, op.dim)?;
        return with_type!(args.output.dtype(), words T => {
            select::<T>(&mut args, op.dim, &picks);
            Ok(())
        });
    }
    // The same indices for each line.
    let shape = args.output.ty.shape.clone();
    let mut layout = Layout::contiguous(&shape);
    layout.strides.fill(0);
    layout.strides[op.dim] = index.layout.strides[0];
    layout.offset = index.layout.offset;
    let check = Check::new(x.shape()[op.dim]);
    let picks = Indices::new(index, &layout);
    with_type!(x.dtype(), words T => {
        take::<T>(args.pool, args.output.data(), &shape, x, op.dim, &picks, &check);
        Ok(())
    })?;
    check.finish(index, x, op.dim)
}

/// Copies row by row: the elements behind one index of `dim`.
fn select<T: Element>(args: &mut Args, dim: usize, picks: &[usize]) {
    let x = &args.inputs[0];
    let size = x.shape()[dim];
    let row: usize = x.shape()[dim + 1..].iter().product();
    let x = Reader::<T>::whole(x);
    for_rows(
        args.pool,
        args.output.data::<T>(),
        row,
        row,
        |first, part| {
            for (i, out) in part.chunks_exact_mut(row).enumerate() {
                let (outer, pick) = ((first + i) / picks.len(), picks[(first + i) % picks.len()]);
                x.copy((outer * size + pick) * row, out);
            }
        },
    );
}
