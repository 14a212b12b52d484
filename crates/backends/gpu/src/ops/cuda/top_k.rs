//! The largest elements of short lines: a warp for each.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::AMPERE;
use crate::emit::{Emitter, GpuKernel, SIMD_WIDTH};
use crate::kernel::Kernel;

/// Elements of a lane, at most.
const EACH: usize = 8;

/// The kernel for an operation.
pub(crate) const fn few(kind: OpKind) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts,
        layouts: Layouts::Contiguous,
        launch: GpuKernel {
            emit,
            suits: |device, _| device.limits.cuda_capability >= AMPERE,
        },
    }
}

/// The number of largest elements along the last dimension, if it is those.
fn kept(op: &Op, rank: usize) -> Option<usize> {
    match op {
        Op::TopK(op) => (op.largest && op.dim + 1 == rank).then_some(op.k),
        Op::TopKSoftmax(op) => Some(op.k),
        _ => None,
    }
}

fn accepts(s: &Signature) -> bool {
    let x = s.inputs[0];
    let len = x.shape.last().copied().unwrap_or(0);
    let is_single = matches!(x.dtype, DType::F32 | DType::F16 | DType::BF16);
    let kept = kept(s.op, x.rank());
    is_single && len <= EACH * SIMD_WIDTH && kept.is_some_and(|kept| kept <= SIMD_WIDTH)
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let (x, op) = (&step.inputs[0], &step.last().op);
    let len = x.ty.shape.last().copied().unwrap_or(0);
    let text = include_str!("../../../kernels/cuda/top_k_few.cu");
    let mut kernel = Kernel::new("top_k_few", text, SIMD_WIDTH as u32);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.define("EACH", len.div_ceil(SIMD_WIDTH).next_power_of_two());
    let is_softmax = matches!(op, Op::TopKSoftmax(_));
    kernel.define("IS_SOFTMAX", u8::from(is_softmax));
    kernel.read("x", x);
    for (name, result) in ["values", "y"].into_iter().zip(&step.outputs) {
        kernel.write(name, result);
    }
    kernel.word("len", len);
    kernel.word("kept", kept(op, x.ty.rank()).unwrap_or(0));
    let lines = x.ty.shape.elements().checked_div(len).unwrap_or(0);
    emitter.launch(kernel.groups(lines, 1, 1));
}
