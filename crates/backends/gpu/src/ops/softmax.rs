//! Softmax along a dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emit, Emitter};
use crate::kernel::{Kernel, accumulator};

pub(crate) const KERNEL: KernelEntry<Emit> = KernelEntry {
    kind: OpKind::Softmax,
    accepts,
    layouts: Layouts::Contiguous,
    launch: emit,
};

/// Work-items that share a line.
const GROUP: u32 = 64;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Softmax(op) = &step.last().op else {
        return;
    };
    let shape = &step.output.ty.shape;
    let (n, inner) = (shape[op.dim], shape[op.dim + 1..].iter().product::<usize>());
    let mut kernel = Kernel::new("softmax", include_str!("../../kernels/softmax.c"), GROUP);
    kernel.define_dtype("X", step.output.ty.dtype);
    kernel.define("ACCUMULATOR", accumulator(step.output.ty.dtype));
    kernel.read("x", &step.inputs[0]);
    kernel.write("y", &step.output);
    kernel.word("n", n);
    kernel.word("inner", inner);
    emitter.launch(kernel.groups(shape.elements() / n, 1, 1));
}
