use rustorch_ir::ops::Arange;

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Arange, _call: &Call) -> Result<Values, Misuse> {
    Ok(if op.dtype.is_float() {
        let (start, step) = (op.start.as_f64(), op.step.as_f64());
        Values::Float((0..op.len).map(|i| start + i as f64 * step).collect())
    } else {
        let (start, step) = (op.start.as_i64(), op.step.as_i64());
        let at = |i| start.wrapping_add(step.wrapping_mul(i));
        Values::Int((0..op.len as i64).map(|i| at(i).into()).collect())
    })
}
