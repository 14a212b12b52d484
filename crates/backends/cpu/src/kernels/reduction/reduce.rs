//! Reductions over some dimensions.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::unknown;
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::reduce::{Elements, Order, Reduction};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Reduce,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Reduce(op) = args.op else {
        return Err(Misuse("not a reduce".to_owned()));
    };
    let (x, to) = (&args.inputs[0], args.output.dtype());
    let size = to.size().ok_or_else(|| unknown(to))?;
    let reduction = Reduction {
        pool: args.pool,
        op: op.op,
        dtype: x.dtype(),
        order: &Order::new(x.layout, &op.dims),
        elements: &Elements::View(*x),
        out: args.output.span(size),
    };
    reduction.run()
}
