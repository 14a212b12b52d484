//! Kernels of CUDA's own for steps that are launched together.

pub(crate) mod attention;
pub(crate) mod conv2d;
pub(crate) mod matmul;
pub(crate) mod matvec;

use rustorch_runtime::Step;
use rustorch_runtime::merge::Products;

use crate::emit::Emitter;

/// Hopper's compute capability: the copy engine, clusters and dependent launches came with it and
/// stayed; products of warpgroups are its own.
const HOPPER: u32 = 90;

/// Is this `linear` one that kernels are there for?
pub(crate) fn multiplies(step: &Step, emitter: &Emitter) -> bool {
    matvec::accepts(step, emitter) || matmul::accepts(step, emitter)
}

/// Appends the launches of products of the same rows, each of which [`multiplies`].
pub(crate) fn emit(products: &Products, emitter: &mut Emitter) {
    if products.rows() <= matvec::FEW {
        matvec::emit(products, emitter);
    } else {
        matmul::emit(products, emitter);
    }
}

/// Can two of these, of the same rows by weights of two dtypes, be launched together if nothing is
/// done to the results?
pub(crate) fn joins(steps: [&Step; 2], emitter: &Emitter) -> bool {
    steps
        .iter()
        .all(|step| step.inputs[1].ty.dtype.is_block() && matvec::accepts(step, emitter))
}
