//! `x · wᵀ + bias`.

use rustorch_ir::{OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::product::{Factor, Product};
use super::{cuda, fused_linear, quantized};
use crate::emit::GpuKernel;

const fn entry(accepts: fn(&Signature) -> bool, launch: GpuKernel) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind: OpKind::Linear,
        accepts,
        layouts: Layouts::Contiguous,
        launch,
    }
}

/// By the driver's library, which reads operands of one dtype as they are, or by a kernel of ours.
const ON_TENSOR_CORES: GpuKernel = GpuKernel {
    emit: |step, emitter| product(step).emit_on_tensor_cores(emitter),
    suits: cuda::has_warpgroups,
};

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 6] = [
    fused_linear::few(OpKind::Linear),
    entry(|s| is_of_library(s.inputs[0], s.inputs[1]), ON_TENSOR_CORES),
    fused_linear::many(OpKind::Linear),
    entry(|s| is_dense(s.inputs[0], s.inputs[1]), ON_TENSOR_CORES),
    entry(
        |s| s.inputs[1].dtype.is_block(),
        GpuKernel::everywhere(quantized::emit),
    ),
    entry(
        |_| true,
        GpuKernel::everywhere(|step, emitter| product(step).emit(emitter)),
    ),
];

/// Returns whether it is a product that the driver's library makes of operands as they are.
pub(in crate::ops) fn is_of_library(x: &TensorType, w: &TensorType) -> bool {
    is_dense(x, w) && x.dtype == w.dtype
}

/// Returns whether it is a product of dense matrices that tensor cores can make.
fn is_dense(x: &TensorType, w: &TensorType) -> bool {
    let (n, k) = (w.shape[0], w.shape[1]);
    let m = x.shape.elements().checked_div(k).unwrap_or(0);
    !w.dtype.is_block() && cuda::matmul::accepts_dense([x.dtype, w.dtype], [m, n, k])
}

fn product(step: &Step) -> Product<'_> {
    let (x, w) = (&step.inputs[0], &step.inputs[1]);
    product_of(x, w, step.inputs.get(2), step.output())
}

/// `y = x · wᵀ + bias`.
pub(in crate::ops) fn product_of<'a>(
    x: &'a Place,
    w: &'a Place,
    bias: Option<&'a Place>,
    y: &'a Place,
) -> Product<'a> {
    let (n, k) = (w.ty.shape[0], w.ty.shape[1]);
    let rows = |place| Factor {
        place,
        outer: k,
        inner: 1,
        batch: Vec::new(),
    };
    Product {
        m: y.ty.shape.elements() / n,
        k,
        n,
        batch: Vec::new(),
        a: rows(x),
        b: rows(w),
        bias,
        y,
        experts: None,
    }
}
