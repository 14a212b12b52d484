//! Lines of the last dimensions with mean 0 and variance 1.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::lines::line_kernel;
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::LayerNorm,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::LayerNorm(op) = &step.last().op else {
        return;
    };
    let text = concat!(
        include_str!("../../kernels/lines.h"),
        include_str!("../../kernels/layer_norm.c")
    );
    let shape = &step.output().ty.shape;
    let (outer, inner) = shape.split_at(shape.len() - op.dims);
    let [outer, inner] = [outer, inner].map(|sizes| sizes.iter().product::<usize>());
    let view = Layout::contiguous(&[outer, inner].into());
    let views = [&view, &view];
    let mut kernel = line_kernel("layer_norm", text, step, views, 1, emitter.limits);
    kernel.real("EPS", step.output().ty.dtype, op.eps.0);
    for (i, (name, macro_name)) in [("w", "HAS_WEIGHT"), ("b", "HAS_BIAS")].iter().enumerate() {
        let operand = step.inputs.get(1 + i);
        kernel.define(macro_name, u8::from(operand.is_some()));
        if let Some(operand) = operand {
            kernel.read(name, operand);
        }
    }
    emitter.launch(kernel);
}
