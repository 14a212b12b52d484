//! Writing over a state as a whole.

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Assign,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let source = &args.inputs[1];
    let size = source.dtype().size().unwrap_or(1);
    let (from, to) = (source.span(size), args.output.span(size));
    for_rows(args.pool, to, 1, 1, |first, to| {
        to.copy_from_slice(&from[first..first + to.len()]);
    });
    Ok(())
}
