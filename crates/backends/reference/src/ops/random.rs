use std::f64::consts::FRAC_1_SQRT_2;

use num_complex::Complex64;
use rustorch_ir::ops::Random;

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::Element;

pub(crate) fn evaluate(op: &Random, call: &Call) -> Result<Values, Misuse> {
    let words = i128::of(&call.inputs[0].values);
    let key = [words[0] as i64, words[1] as i64];
    let draw = |i| op.draw(key, i);
    let elements = 0..op.shape.elements() as u64;
    Ok(if op.dtype.is_complex() {
        let pair = |i| Complex64::new(draw(2 * i), draw(2 * i + 1));
        Values::Complex(elements.map(|i| pair(i) * FRAC_1_SQRT_2).collect())
    } else {
        Values::Float(elements.map(draw).collect())
    })
}
