//! Softmax along a dimension, and its logarithm.

use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::accumulator;
use crate::ops::lines::{held_vector, line_kernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Softmax,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Softmax(op) = &step.last().op else {
        return;
    };
    let text = concat!(
        include_str!("../../../kernels/lines.h"),
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/held.h"),
        include_str!("../../../kernels/softmax.c")
    );
    let y = Layout::contiguous(&step.output().ty.shape);
    let views = [&step.inputs[0].layout, &y];
    let mut kernel = line_kernel("softmax", text, step, views, op.dim, emitter.limits);
    let vector = held_vector(step, views, op.dim, emitter.limits);
    kernel.define("VECTOR", vector);
    kernel.define("ACCUMULATOR", accumulator(step.output().ty.dtype));
    kernel.define("LOWEST", lowest(step.output().ty.dtype));
    kernel.define("LOG", u8::from(op.log));
    emitter.launch(kernel);
}

/// The smallest number of the type that elements of `dtype` are computed in.
pub(in crate::ops) fn lowest(dtype: DType) -> String {
    match dtype {
        DType::F64 => format!("{:?}", f64::MIN),
        _ => format!("{:?}f", f32::MIN),
    }
}
