//! Kernels of CUDA's own for steps that are launched together.

pub(crate) mod attention;
pub(crate) mod conv2d;
pub(crate) mod matmul;
pub(crate) mod matvec;

use rustorch_runtime::Step;

use crate::emit::Emitter;
use crate::merge::Products;

/// Hopper's compute capability: the copy engine, clusters and dependent launches came with it and
/// stayed; products of warpgroups are its own.
const HOPPER: u32 = 90;

/// What appends the launches of products of the same rows, if a `linear` is one of those that
/// kernels are there for.
pub(crate) fn products(step: &Step, emitter: &Emitter) -> Option<fn(&Products, &mut Emitter)> {
    if matvec::accepts(step, emitter) {
        Some(matvec::emit)
    } else if matmul::accepts(step, emitter) {
        Some(matmul::emit)
    } else {
        None
    }
}

/// Can two of these, of the same rows by weights of two dtypes, be launched together if nothing is
/// done to the results?
pub(crate) fn joins(steps: [&Step; 2], emitter: &Emitter) -> bool {
    steps
        .iter()
        .all(|step| step.inputs[1].ty.dtype.is_block() && matvec::accepts(step, emitter))
}
