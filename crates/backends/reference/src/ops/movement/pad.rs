use rustorch_ir::Layout;
use rustorch_ir::ops::Pad;

use super::update_slice::assign;
use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::Element;

pub(crate) fn evaluate(op: &Pad, call: &Call) -> Result<Values, Misuse> {
    let x = &call.inputs[0];
    let whole = Layout::contiguous(&call.output().shape);
    let mut inner = whole.clone();
    for (dim, &(before, _)) in op.padding.iter().enumerate() {
        inner = inner.slice(dim, before, x.shape()[dim], 1);
    }
    let mut out = Values::full(op.value, call.output().dtype, whole.elements());
    match &mut out {
        Values::Float(out) => assign(out, &inner, Element::of(&x.values)),
        Values::Int(out) => assign(out, &inner, Element::of(&x.values)),
        Values::Complex(out) => assign(out, &inner, Element::of(&x.values)),
        Values::Blocks(_) => unreachable!("inference admits only scalars"),
    }
    Ok(out)
}
