//! User-defined functions on the host.

use rustorch_ir::ops::{HostArray, HostArrayMut};
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::view::Target;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Host,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Host(op) = args.op else {
        return Err(Misuse("not a function of the host".to_owned()));
    };
    let inputs: Vec<HostArray> = (args.inputs.iter())
        .map(|view| HostArray {
            ty: view.ty,
            bytes: view.dense_bytes(),
        })
        .collect();
    let targets = std::iter::once(&mut args.output).chain(&mut args.others);
    let mut outputs: Vec<HostArrayMut> = targets.map(array).collect();
    op.call(&inputs, &mut outputs).map_err(Misuse)
}

/// A result, all zeros.
fn array<'a>(target: &'a mut Target<'_>) -> HostArrayMut<'a> {
    let ty = target.ty;
    let bytes = match ty.dtype.size() {
        Some(size) => target.span(size),
        None => target.all_bytes(),
    };
    bytes.fill(0);
    HostArrayMut { ty, bytes }
}
