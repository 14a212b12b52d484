use std::f64::consts::FRAC_1_SQRT_2;

use num_complex::Complex64;
use rustorch_ir::ops::Random;

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Random, _call: &Call) -> Result<Values, Misuse> {
    let elements = 0..op.shape.elements() as u64;
    Ok(if op.dtype.is_complex() {
        let pair = |i| Complex64::new(op.draw(2 * i), op.draw(2 * i + 1));
        Values::Complex(elements.map(|i| pair(i) * FRAC_1_SQRT_2).collect())
    } else {
        Values::Float(elements.map(|i| op.draw(i)).collect())
    })
}
