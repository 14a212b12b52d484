use rustorch_ir::ops::Full;

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Full, _call: &Call) -> Result<Values, Misuse> {
    Ok(Values::full(op.value, op.dtype, op.shape.elements()))
}
