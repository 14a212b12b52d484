//! Numbers whose squares are beyond the range of double precision, brought near 1 and back. Factors are
//! powers of two, so that nothing is rounded.

use super::Number;

/// The sizes of elements that algorithms take without scaling. Squares and products of a few such
/// numbers are neither infinite nor 0.
const TAME: std::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// A power of two that brings a size to between ½ and 4; the nearest one for those below the normal
/// numbers.
pub(crate) fn unit(size: f64) -> f64 {
    const MANTISSA: u32 = f64::MANTISSA_DIGITS - 1;
    // The exponents of 1 / 2ᵉ and 2ᵉ, as bits hold them, have this sum; both are normal numbers.
    const SUM: u64 = 2046;
    let exponent = (size.to_bits() >> MANTISSA).clamp(1, SUM - 1);
    f64::from_bits((SUM - exponent) << MANTISSA)
}

/// Scales a matrix whose largest element is not [`TAME`]. Gives the factor that brings values of its
/// degree back.
pub(crate) fn tame<T: Number>(a: &mut [T]) -> f64 {
    let largest = a.iter().map(T::abs1_impl).fold(0.0, f64::max);
    if largest == 0.0 || TAME.contains(&largest) || !largest.is_finite() {
        return 1.0;
    }
    let factor = unit(largest);
    scale(a, factor);
    1.0 / factor
}

/// Multiplies by a power of two.
pub(crate) fn scale<T: Number>(a: &mut [T], factor: f64) {
    if factor != 1.0 {
        a.iter_mut().for_each(|x| *x = T::mul_real_impl(x, &factor));
    }
}

/// `a / b` where `a` is no larger than `b`, by [`unit`] of `b`: squares of complex numbers stay in range.
pub(crate) fn quotient<T: Number>(a: T, b: T, unit: f64) -> T {
    T::mul_real_impl(&a, &unit) / T::mul_real_impl(&b, &unit)
}
