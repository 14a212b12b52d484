use std::rc::Rc;

use rustorch_ir::ops::Assign;

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(_: &Assign, call: &Call) -> Result<Rc<Values>, Misuse> {
    Ok(call.inputs[1].values.clone())
}
