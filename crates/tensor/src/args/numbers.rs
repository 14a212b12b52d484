//! Numbers as elements: whether a dtype can hold a number.

use std::ops::RangeInclusive;

use rustorch_ir::{DType, Scalar};

use crate::error::{RusTorchResult, require};

/// Place of a number beside the finite numbers of a dtype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The dtype holds the number, exactly or rounded. Floats also hold NaN and infinities.
    Inside,
    /// The number is below the smallest one.
    Below,
    /// The number is above the largest one.
    Above,
    /// It cannot hold the number: NaN among integers, an imaginary part among real numbers.
    Nowhere,
}

/// Side of the elements that a bound is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Elements are at least the bound.
    Lower,
    /// Elements are at most the bound.
    Upper,
}

/// The integers of a dtype; nothing for other dtypes.
fn integers(dtype: DType) -> Option<RangeInclusive<i128>> {
    Some(match dtype {
        DType::I64 => i64::MIN.into()..=i64::MAX.into(),
        DType::I32 => i32::MIN.into()..=i32::MAX.into(),
        DType::I16 => i16::MIN.into()..=i16::MAX.into(),
        DType::I8 => i8::MIN.into()..=i8::MAX.into(),
        DType::U64 => 0..=u64::MAX.into(),
        DType::U32 => 0..=u32::MAX.into(),
        DType::U16 => 0..=u16::MAX.into(),
        DType::U8 => 0..=u8::MAX.into(),
        _ => return None,
    })
}

/// The largest finite number of a float dtype, or of a complex one's parts; nothing for other dtypes.
pub(crate) fn largest_float(dtype: DType) -> Option<f64> {
    Some(match dtype.real() {
        DType::F64 => f64::MAX,
        DType::F32 => f32::MAX.into(),
        DType::F16 => half::f16::MAX.into(),
        DType::BF16 => half::bf16::MAX.into(),
        DType::F8E4M3 => 448.0,
        DType::F8E5M2 => 57_344.0,
        _ => return None,
    })
}

/// Place of a number beside the finite numbers of `dtype`. Booleans are made of any number.
fn place(value: Scalar, dtype: DType) -> Place {
    let is_real = value.imag() == 0.0;
    if let Some(range) = integers(dtype) {
        return match whole(value) {
            Some(value) if is_real => compared(&value, range.start(), range.end()),
            _ => Place::Nowhere,
        };
    }
    let Some(largest) = largest_float(dtype) else {
        return Place::Inside;
    };
    match (is_real, dtype.is_complex()) {
        (false, false) => Place::Nowhere,
        _ => match part(value.as_f64(), dtype, largest) {
            Place::Inside => part(value.imag(), dtype, largest),
            outside => outside,
        },
    }
}

/// The integer at or below a number; nothing for NaN.
fn whole(value: Scalar) -> Option<i128> {
    match value {
        Scalar::Int(value) => Some(value.into()),
        Scalar::UInt(value) => Some(value.into()),
        Scalar::Float(value) | Scalar::Complex(value, _) => {
            // The conversion saturates, far outside every range.
            (!value.0.is_nan()).then(|| value.0.floor() as i128)
        }
    }
}

fn part(value: f64, dtype: DType, largest: f64) -> Place {
    let is_number = value.is_finite() || (value.is_infinite() && dtype == DType::F8E4M3);
    match is_number {
        true => compared(&value, &-largest, &largest),
        false => Place::Inside,
    }
}

fn compared<T: PartialOrd>(value: &T, least: &T, largest: &T) -> Place {
    match () {
        () if value < least => Place::Below,
        () if value > largest => Place::Above,
        () => Place::Inside,
    }
}

/// Does a dtype hold a number, by PyTorch's rule for elements? Fractions are cut, and negative
/// integers wrap in unsigned ones.
pub(crate) fn is_held(value: Scalar, dtype: DType) -> bool {
    match value {
        Scalar::Int(value) if dtype.is_unsigned() => is_inside(value.unsigned_abs().into(), dtype),
        value => is_inside(value, dtype),
    }
}

/// Is a number among those of a dtype, without wrapping?
pub(crate) fn is_inside(value: Scalar, dtype: DType) -> bool {
    place(value, dtype) == Place::Inside
}

/// A number as an element of `dtype`: of booleans 1 for all but 0.
pub(crate) fn as_element(value: Scalar, dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => (value.as_f64() != 0.0 || value.imag() != 0.0).into(),
        _ => value,
    }
}

/// Would `dtype`, if it is one of halves, have infinity or too few digits in a number's place?
pub(crate) fn is_lost(value: Scalar, dtype: DType) -> bool {
    let least = match dtype {
        DType::F16 => half::f16::MIN_POSITIVE.to_f64(),
        DType::BF16 => half::bf16::MIN_POSITIVE.to_f64(),
        _ => return false,
    };
    let size = value.as_f64().abs();
    size != 0.0 && (size < least || !is_inside(value, dtype))
}

/// Fails unless a dtype [holds](is_held) a number.
pub(crate) fn require_held(op: &'static str, value: Scalar, dtype: DType) -> RusTorchResult<()> {
    let expected = format_args!("a value that {dtype} holds");
    require(op, is_held(value, dtype), expected, value)
}

/// The same for a number alone, which halves and 8-bit floats round to infinity or their largest number.
pub(crate) fn require_rounded(op: &'static str, value: Scalar, dtype: DType) -> RusTorchResult<()> {
    let is_narrow = dtype.is_float8() || matches!(dtype, DType::F16 | DType::BF16);
    require_held(op, value, if is_narrow { DType::F64 } else { dtype })
}

/// Fails unless a number is among those of a dtype, without wrapping.
pub(crate) fn require_inside(op: &'static str, value: Scalar, dtype: DType) -> RusTorchResult<()> {
    let expected = format_args!("a number in the range of {dtype}");
    require(op, is_inside(value, dtype), expected, value)
}

/// A number as an argument beside elements of `dtype`: beside integers one without a fraction is an integer.
pub(crate) fn beside_elements(value: f64, dtype: DType) -> Scalar {
    let is_whole = value.fract() == 0.0 && value.abs() < 2f64.powi(63);
    match is_whole && dtype.is_int() {
        true => Scalar::from(value as i64),
        false => value.into(),
    }
}

/// A bound as elements of `dtype` have it: integers' bounds beyond all of them are the least or the
/// largest of them.
pub(crate) fn bound(
    op: &'static str,
    value: Scalar,
    dtype: DType,
    side: Side,
) -> RusTorchResult<Scalar> {
    let range = integers(dtype);
    match (place(value, dtype), side, range) {
        (Place::Below, Side::Lower, Some(range)) => Ok(Scalar::from(*range.start() as i64)),
        (Place::Above, Side::Upper, Some(range)) => Ok(Scalar::from(*range.end() as u64)),
        _ => require_inside(op, value, dtype).map(|()| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_inside_below_above_or_nowhere() {
        let float = |x: f64| Scalar::from(x);
        let int = |x: i64| Scalar::from(x);
        for (value, dtype, expected) in [
            (int(127), DType::I8, Place::Inside),
            (int(128), DType::I8, Place::Above),
            (int(-129), DType::I8, Place::Below),
            (float(127.9), DType::I8, Place::Inside),
            (float(-128.1), DType::I8, Place::Below),
            (float(-0.0), DType::U8, Place::Inside),
            (float(-0.5), DType::U8, Place::Below),
            (float(2f64.powi(63)), DType::I64, Place::Above),
            (float(-2f64.powi(63)), DType::I64, Place::Inside),
            (Scalar::UInt(u64::MAX), DType::U64, Place::Inside),
            (Scalar::UInt(u64::MAX), DType::I64, Place::Above),
            (float(f64::NAN), DType::I32, Place::Nowhere),
            (float(f64::NEG_INFINITY), DType::I32, Place::Below),
            (float(f64::INFINITY), DType::F16, Place::Inside),
            (int(65504), DType::F16, Place::Inside),
            (int(65505), DType::F16, Place::Above),
            (float(-1e39), DType::BF16, Place::Below),
            (float(1e300), DType::F64, Place::Inside),
            (
                Scalar::Complex(1.0.into(), 1e39.into()),
                DType::Complex64,
                Place::Above,
            ),
            (
                Scalar::Complex(1.0.into(), 2.0.into()),
                DType::F32,
                Place::Nowhere,
            ),
            (float(f64::NAN), DType::Bool, Place::Inside),
        ] {
            assert_eq!(place(value, dtype), expected, "{value} in {dtype}");
        }
    }
}
