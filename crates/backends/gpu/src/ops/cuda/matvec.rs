//! Products of few rows, as fast as the weights can be read.

use rustorch_runtime::Step;

use crate::emit::Emitter;
use crate::merge::Products;

/// Is this product one of those?
pub(crate) fn accepts(_: &Step, _: &Emitter) -> bool {
    false
}

/// Appends the launches of products that are all accepted.
pub(crate) fn emit(_: &Products, _: &mut Emitter) {}
