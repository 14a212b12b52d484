//! Copies of strided tensors.

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::kernel::{Args, Launch, Misuse};
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Contiguous,
    accepts,
    layouts: Layouts::Any,
    launch,
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    with_type!(args.output.dtype(), words T => {
        let x = Reader::<T>::whole(&args.inputs[0]);
        x.copy_all(args.pool, args.output.data());
        Ok(())
    })
}
