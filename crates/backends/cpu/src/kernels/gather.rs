//! Elements picked along a dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::index::{indices, take};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Gather,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Gather(op) = args.op else {
        return Err(Misuse("not a gather".to_owned()));
    };
    let (x, index) = (&args.inputs[0], &args.inputs[1]);
    let picks = indices(args.pool, index, x, op.dim)?;
    let shape = &args.output.ty.shape;
    with_type!(args.output.dtype(), words T => {
        take::<T>(args.pool, args.output.data(), shape, x, op.dim, |i| picks[i]);
        Ok(())
    })
}
