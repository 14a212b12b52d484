//! Copies of strided tensors.

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::elementwise::map1;
use crate::kernel::{Args, Launch, Misuse};

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
        map1::<T, T>(&mut args, 1, |x, y| y.copy_from_slice(x));
        Ok(())
    })
}
