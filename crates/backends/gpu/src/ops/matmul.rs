//! Matrix products of batches.

use rustorch_ir::{Layout, OpKind, Shape, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::product::{Factor, Product, batch};
use crate::emit::{Emit, Emitter};

pub(crate) const KERNEL: KernelEntry<Emit> = KernelEntry {
    kind: OpKind::Matmul,
    accepts,
    layouts: Layouts::Any,
    launch: emit,
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let (a, b) = (&step.inputs[0], &step.inputs[1]);
    let shape = step.output().ty.shape;
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
    }
    .emit(emitter);
}
