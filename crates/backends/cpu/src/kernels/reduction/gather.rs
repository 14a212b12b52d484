//! Elements picked along a dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::index::{Check, Indices, take};
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
    let shape = args.output.ty.shape.clone();
    let out = &mut args.output;
    let check = Check::new(x.shape()[op.dim]);
    let picks = Indices::whole(index);
    with_type!(x.dtype(), words T => {
        take::<T>(args.pool, out.data(), &shape, x, op.dim, &picks, &check);
        Ok(())
    })?;
    check.finish(index, x, op.dim)
}
