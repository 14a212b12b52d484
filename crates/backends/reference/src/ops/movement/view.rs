//! `as_strided`, `reshape`, `permute`, `expand` and `slice`: the elements that the operation's
//! layout shows.

use std::rc::Rc;

use rustorch_ir::OpDef;

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &impl OpDef, call: &Call) -> Result<Rc<Values>, Misuse> {
    let x = &call.inputs[0];
    let view = op.view(&x.layout());
    Ok(x.seen(&view.expect("every view of row-major values has strides")))
}
