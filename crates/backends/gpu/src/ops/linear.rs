//! `x · wᵀ + bias`.

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::product::{Factor, Product};
use super::{blocks, cuda, quantized};
use crate::emit::{Emit, Emitter};

pub(crate) const KERNEL: KernelEntry<Emit> = KernelEntry {
    kind: OpKind::Linear,
    accepts,
    layouts: Layouts::Contiguous,
    launch: emit,
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    if cuda::matvec::accepts(step, emitter) {
        return cuda::matvec::emit_one(step, emitter);
    }
    if cuda::matmul::accepts(step, emitter) {
        return cuda::matmul::emit_linear(step, emitter);
    }
    let (x, w) = (&step.inputs[0], &step.inputs[1]);
    if let Some(format) = blocks::format(w.ty.dtype) {
        return quantized::emit(step, format, emitter);
    }
    let (n, k) = (w.ty.shape[0], w.ty.shape[1]);
    let rows = |place| Factor {
        place,
        outer: k,
        inner: 1,
        batch: Vec::new(),
    };
    Product {
        m: step.output().ty.shape.elements() / n,
        k,
        n,
        batch: Vec::new(),
        a: rows(x),
        b: rows(w),
        bias: step.inputs.get(2),
        y: step.output(),
    }
    .emit(emitter);
}
