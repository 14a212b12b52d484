//! Digits of the floating-point dtypes.

use rustorch_ir::DType;
use rustorch_reference::Values;

/// The digits that a dtype has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Precision {
    /// Bits of the significand, the first one included.
    digits: i32,
    /// Exponent of the smallest normal number.
    least: i32,
}

impl Precision {
    /// The digits of each real part of a number.
    pub(crate) fn of(dtype: DType) -> Self {
        let (digits, least) = match dtype.real() {
            DType::F64 => (53, -1022),
            DType::F16 => (11, -14),
            DType::BF16 => (8, -126),
            DType::F8E4M3 => (4, -6),
            DType::F8E5M2 => (3, -14),
            _ => (24, -126),
        };
        Self { digits, least }
    }

    /// The unit in the last place (ulp) of a number: the distance of its neighbours.
    pub(crate) fn ulp(self, x: f64) -> f64 {
        let exponent = match x == 0.0 || !x.is_finite() {
            true => self.least,
            false => exponent(x).max(self.least),
        };
        power_of_2(exponent - self.digits + 1)
    }

    /// The unit roundoff: the largest relative error of a rounding.
    pub(crate) fn unit(self) -> f64 {
        power_of_2(-self.digits)
    }

    /// The smallest normal number.
    pub(crate) fn smallest(self) -> f64 {
        power_of_2(self.least)
    }
}

/// Has the dtype fewer digits than kernels mostly compute with, single precision?
pub(crate) fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) || dtype.is_float8()
}

/// `x` as memory of `dtype` holds it.
pub(crate) fn rounded(values: &Values, dtype: DType) -> Values {
    Values::decode(values.encode(dtype), dtype)
}

/// `⌊log₂ |x|⌋` of a finite number that is not 0.
fn exponent(x: f64) -> i32 {
    let biased = |x: f64| (x.to_bits() >> 52 & 0x7FF) as i32 - 1023;
    match x.is_normal() {
        true => biased(x),
        false => biased(x * power_of_2(64)) - 64,
    }
}

fn power_of_2(exponent: i32) -> f64 {
    f64::from(exponent).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_in_the_last_place_are_the_distance_to_the_next_number() {
        for x in [1.0_f32, 1.5, 3.0e-38, 1.0e-44, 6.0e30, f32::MIN_POSITIVE] {
            let distance = f64::from(x.next_up()) - f64::from(x);
            assert_eq!(Precision::of(DType::F32).ulp(x.into()), distance, "{x}");
        }
        for x in [1.0_f64, 3.0, 5.0e-324, 1.0e-310, 1.0e300] {
            assert_eq!(Precision::of(DType::F64).ulp(x), x.next_up() - x, "{x}");
        }
        assert_eq!(Precision::of(DType::F16).ulp(1.0), 2_f64.powi(-10));
        assert_eq!(Precision::of(DType::BF16).ulp(-3.0), 2_f64.powi(-6));
        assert_eq!(Precision::of(DType::F16).ulp(0.0), 2_f64.powi(-24));
    }
}
