//! Listed indices of a dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::{indices, take};
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
    let picks = indices(args.pool, &args.inputs[1], &args.inputs[0], op.dim)?;
    with_type!(args.output.dtype(), words T => {
        select::<T>(&mut args, op.dim, &picks);
        Ok(())
    })
}

/// Copies row by row: what is behind one index of `dim`.
fn select<T: Element>(args: &mut Args, dim: usize, picks: &[usize]) {
    let x = &args.inputs[0];
    let size = x.shape()[dim];
    let row: usize = x.shape()[dim + 1..].iter().product();
    if row == 1 {
        let (shape, out) = (&args.output.ty.shape, args.output.data::<T>());
        return take(args.pool, out, shape, x, dim, |i| picks[i % picks.len()]);
    }
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
