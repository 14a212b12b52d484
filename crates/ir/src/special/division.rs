//! Division that is rounded down.

use super::c::*;

/// The floor of the exact quotient, which rounding `a / b` first might carry across a whole number.
/// It is Python's `//` of floats. If the divisor is 0, it is the quotient.
pub fn floor_divide(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = fmod(a, b);
    // A whole number but for rounding errors, which are less than a half.
    let mut whole = (a - rest) / b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        whole -= 1.0;
    }
    if whole == 0.0 {
        return a / b * 0.0;
    }
    let below = floor(whole);
    if whole - below > 0.5 {
        return below + 1.0;
    }
    below
}
