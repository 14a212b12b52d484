//! Exponential function and logarithm near their zeros.

use super::c::*;

/// `eˣ - 1`, also near 0. The rounding of `eˣ` cancels out (W. Kahan, in Higham 2002, *Accuracy and
/// Stability of Numerical Algorithms*, 1.14.1).
pub fn expm1(x: f64) -> f64 {
    let power = exp(x);
    if power == 1.0 {
        return x;
    }
    let difference = power - 1.0;
    if difference == -1.0 || difference == f64::INFINITY {
        return difference;
    }
    difference * (x / log(power))
}

/// `ln(1 + x)`, also near 0, in the same way.
pub fn log1p(x: f64) -> f64 {
    let sum = 1.0 + x;
    if sum == 1.0 || sum == f64::INFINITY {
        return x;
    }
    log(sum) * (x / (sum - 1.0))
}
