//! Tensors of one value.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{FromScalar, with_type};
use crate::kernel::{Args, Launch, Misuse, for_rows};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Full,
    accepts,
    layouts: Layouts::Any,
    launch,
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Full(op) = args.op else {
        return Err(Misuse("not a full".to_owned()));
    };
    with_type!(args.output.dtype(), numbers T => {
        let value = T::filling(op.value, args.output.dtype());
        for_rows(args.pool, args.output.data::<T>(), 1, 1, |_, part| part.fill(value));
        Ok(())
    })
}
