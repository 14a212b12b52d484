//! Matrix products of batches.

use rustorch_ir::{Layout, OpKind, Shape, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::product::{Factor, Product, batch};
use crate::emit::GpuKernel;
use crate::ops::cuda;

const fn entry(accepts: fn(&Signature) -> bool, launch: GpuKernel) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind: OpKind::Matmul,
        accepts,
        layouts: Layouts::Any,
        launch,
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    entry(
        is_dense,
        GpuKernel {
            emit: |step, emitter| product(step).emit_on_tensor_cores(emitter),
            suits: cuda::has_warpgroups,
        },
    ),
    entry(
        |_| true,
        GpuKernel::everywhere(|step, emitter| product(step).emit(emitter)),
    ),
];

/// Returns whether it is one product, that tensor cores can make.
fn is_dense(s: &Signature) -> bool {
    let (a, b, y) = (s.inputs[0], s.inputs[1], &s.output().shape);
    let (lead, matrix) = y.split_at(y.len() - 2);
    let sizes = [matrix[0], matrix[1], a.shape[a.rank() - 1]];
    let is_one = lead.iter().product::<usize>() == 1;
    is_one && cuda::matmul::accepts_dense([a.dtype, b.dtype], sizes)
}

fn product(step: &Step) -> Product<'_> {
    let (a, b) = (&step.inputs[0], &step.inputs[1]);
    let shape = &step.output().ty.shape;
    let matrix = shape.len() - 2;
    let whole: Shape = shape[..matrix].into();
    let lead = |place: &Place| {
        let layout = &place.layout;
        let dims = layout.rank() - 2;
        let lead = Layout {
            shape: layout.shape[..dims].into(),
            strides: layout.strides[..dims].into(),
            offset: 0,
        };
        lead.broadcast_to(&whole)
    };
    let (sizes, [a_batch, b_batch]) = batch(&lead(a), &lead(b));
    let strides = |place: &Place| {
        let rank = place.layout.rank();
        [
            place.layout.strides[rank - 2],
            place.layout.strides[rank - 1],
        ]
    };
    let ([a_row, a_k], [b_k, b_column]) = (strides(a), strides(b));
    Product {
        m: shape[matrix],
        k: a.ty.shape[a.ty.rank() - 1],
        n: shape[matrix + 1],
        batch: sizes,
        a: Factor {
            place: a,
            outer: a_row,
            inner: a_k,
            batch: a_batch,
        },
        b: Factor {
            place: b,
            outer: b_column,
            inner: b_k,
            batch: b_batch,
        },
        bias: None,
        y: step.output(),
        experts: None,
    }
}
