use rustorch_ir::Layout;
use rustorch_ir::ops::Concat;

use super::update_slice::assign;
use crate::operand::{Call, Misuse};
use crate::values::{Element, each_type};
use crate::{Values, operand::Operand};

pub(crate) fn evaluate(op: &Concat, call: &Call) -> Result<Values, Misuse> {
    let whole = Layout::contiguous(&call.output().shape);
    Ok(each_type!(&*call.inputs[0].values, first => join(op.dim, first, call.inputs, &whole)))
}

/// The elements of all `inputs`, which are of the type of `_first`'s.
fn join<T: Element>(dim: usize, _first: &[T], inputs: &[Operand], whole: &Layout) -> Vec<T> {
    let mut out = vec![T::ZERO; whole.elements()];
    let mut start = 0;
    for x in inputs {
        let size = x.shape()[dim];
        assign(
            &mut out,
            &whole.slice(dim, start, size, 1),
            T::of(&x.values),
        );
        start += size;
    }
    out
}
