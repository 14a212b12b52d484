//! The elements of a tensor, unrounded, and how memory holds them.

use half::{bf16, f16};
use num_complex::Complex64;
use rustorch_ir::{DType, F8E4M3, F8E5M2, Scalar};

/// The elements of a tensor in row-major order, each kind in its widest type. Values of a
/// floating-point dtype may have more digits than the dtype; integers are in its range.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Numbers of the real floating-point dtypes, 8-bit ones among them.
    Float(Vec<f64>),
    /// Numbers of the integer dtypes, and 0 or 1 for `Bool`.
    Int(Vec<i128>),
    /// Numbers of the complex dtypes.
    Complex(Vec<Complex64>),
    /// The bytes of quantised blocks, which only a cast looks into.
    Blocks(Vec<u8>),
}

/// Evaluates `$result` with `$x` bound to the elements of `$values`, whatever their type. Makes the
/// result values of the same type.
macro_rules! each_type {
    ($values:expr, $x:ident => $result:expr) => {
        match $values {
            Values::Float($x) => Values::Float($result),
            Values::Int($x) => Values::Int($result),
            Values::Complex($x) => Values::Complex($result),
            Values::Blocks(_) => unreachable!("inference admits only scalars"),
        }
    };
}
pub(crate) use each_type;

/// An element: the common part of all numbers.
pub(crate) trait Element: Copy {
    /// The neutral element of addition.
    const ZERO: Self;
    /// The neutral element of multiplication.
    const ONE: Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// The element that a parameter stands for.
    fn from_scalar(value: Scalar) -> Self;
    /// The elements of `values`, which inference has made sure are of this type.
    fn of(values: &Values) -> &[Self];
}

impl Element for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn from_scalar(value: Scalar) -> Self {
        value.as_f64()
    }

    fn of(values: &Values) -> &[Self] {
        match values {
            Values::Float(x) => x,
            _ => unreachable!("inference admits only floating-point values"),
        }
    }
}

impl Element for i128 {
    const ZERO: Self = 0;
    const ONE: Self = 1;

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    fn from_scalar(value: Scalar) -> Self {
        value.as_i64().into()
    }

    fn of(values: &Values) -> &[Self] {
        match values {
            Values::Int(x) => x,
            _ => unreachable!("inference admits only integers and booleans"),
        }
    }
}

impl Element for Complex64 {
    const ZERO: Self = Self::new(0.0, 0.0);
    const ONE: Self = Self::new(1.0, 0.0);

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn from_scalar(value: Scalar) -> Self {
        Self::new(value.as_f64(), value.imag())
    }

    fn of(values: &Values) -> &[Self] {
        match values {
            Values::Complex(x) => x,
            _ => unreachable!("inference admits only complex values"),
        }
    }
}

impl Values {
    /// Reads elements of memory.
    pub fn decode(bytes: Vec<u8>, dtype: DType) -> Self {
        fn each<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks().0.iter().copied().map(read).collect()
        }
        let b = &bytes[..];
        match dtype {
            DType::F64 => Self::Float(each(b, f64::from_le_bytes)),
            DType::F32 => Self::Float(each(b, |x| f32::from_le_bytes(x).into())),
            DType::F16 => Self::Float(each(b, |x| f16::from_le_bytes(x).into())),
            DType::BF16 => Self::Float(each(b, |x| bf16::from_le_bytes(x).into())),
            DType::F8E4M3 => Self::Float(each(b, |[x]| F8E4M3::from_bits(x).to_f32().into())),
            DType::F8E5M2 => Self::Float(each(b, |[x]| F8E5M2::from_bits(x).to_f32().into())),
            DType::I64 => Self::Int(each(b, |x| i64::from_le_bytes(x).into())),
            DType::I32 => Self::Int(each(b, |x| i32::from_le_bytes(x).into())),
            DType::I16 => Self::Int(each(b, |x| i16::from_le_bytes(x).into())),
            DType::I8 => Self::Int(each(b, |x| i8::from_le_bytes(x).into())),
            DType::U8 => Self::Int(each(b, |x| u8::from_le_bytes(x).into())),
            DType::U16 => Self::Int(each(b, |x| u16::from_le_bytes(x).into())),
            DType::U32 => Self::Int(each(b, |x| u32::from_le_bytes(x).into())),
            DType::U64 => Self::Int(each(b, |x| u64::from_le_bytes(x).into())),
            DType::Bool => Self::Int(each(b, |[x]| (x != 0).into())),
            DType::Complex64 | DType::Complex128 => {
                let parts = Self::decode(bytes, dtype.real());
                let pairs = f64::of(&parts).as_chunks().0.iter();
                Self::Complex(pairs.map(|&[re, im]| Complex64::new(re, im)).collect())
            }
            DType::Block(_) => Self::Blocks(bytes),
        }
    }

    /// The bytes of the values, each rounded to the nearest one that `dtype` has, a type of
    /// the same kind. Integers outside its range lose their upper bits.
    pub fn encode(&self, dtype: DType) -> Vec<u8> {
        fn each<const N: usize, T: Copy>(x: &[T], write: impl Fn(T) -> [u8; N]) -> Vec<u8> {
            x.iter().flat_map(|&x| write(x)).collect()
        }
        match self {
            Self::Float(x) => match dtype {
                DType::F32 => each(x, |x| (x as f32).to_le_bytes()),
                DType::F16 => each(x, |x| f16::from_f32(to_odd(x)).to_le_bytes()),
                DType::BF16 => each(x, |x| bf16::from_f32(to_odd(x)).to_le_bytes()),
                DType::F8E4M3 => each(x, |x| [F8E4M3::from_f32(to_odd(x)).to_bits()]),
                DType::F8E5M2 => each(x, |x| [F8E5M2::from_f32(to_odd(x)).to_bits()]),
                _ => each(x, f64::to_le_bytes),
            },
            Self::Int(x) => match dtype.size() {
                Some(1) => each(x, |x| (x as u8).to_le_bytes()),
                Some(2) => each(x, |x| (x as u16).to_le_bytes()),
                Some(4) => each(x, |x| (x as u32).to_le_bytes()),
                _ => each(x, |x| (x as u64).to_le_bytes()),
            },
            Self::Complex(x) => {
                let parts = x.iter().flat_map(|z| [z.re, z.im]).collect();
                Self::Float(parts).encode(dtype.real())
            }
            Self::Blocks(bytes) => bytes.clone(),
        }
    }

    /// The values as memory of `dtype` holds them.
    pub(crate) fn rounded(&self, dtype: DType) -> Self {
        Self::decode(self.encode(dtype), dtype)
    }

    /// Integers brought into the range of `dtype` by dropping their upper bits; a `Bool` is
    /// whether they are not 0.
    pub(crate) fn wrap(&mut self, dtype: DType) {
        let Self::Int(x) = self else { return };
        let wrap: fn(i128) -> i128 = match dtype {
            DType::I64 => |x| (x as i64).into(),
            DType::I32 => |x| (x as i32).into(),
            DType::I16 => |x| (x as i16).into(),
            DType::I8 => |x| (x as i8).into(),
            DType::U8 => |x| (x as u8).into(),
            DType::U16 => |x| (x as u16).into(),
            DType::U32 => |x| (x as u32).into(),
            DType::U64 => |x| (x as u64).into(),
            DType::Bool => |x| (x != 0).into(),
            _ => return,
        };
        x.iter_mut().for_each(|x| *x = wrap(*x));
    }

    /// `count` times the element that `value` stands for in `dtype`.
    pub(crate) fn full(value: Scalar, dtype: DType, count: usize) -> Self {
        fn repeat<T: Element>(value: Scalar, count: usize) -> Vec<T> {
            vec![T::from_scalar(value); count]
        }
        match dtype {
            d if d.is_float() || d.is_float8() => Self::Float(repeat(value, count)),
            DType::U64 => Self::Int(vec![value.as_u64().into(); count]),
            d if d.is_complex() => Self::Complex(repeat(value, count)),
            _ => Self::Int(repeat(value, count)),
        }
    }

    /// The elements at `positions`, in that order.
    pub(crate) fn take(&self, positions: impl Iterator<Item = usize>) -> Self {
        each_type!(self, x => positions.map(|at| x[at]).collect())
    }
}

/// `x` in single precision so that rounding it once more, to half precision, gives what
/// rounding `x` directly would: what is not exact gets an odd last bit, so that it is no
/// tie ([Boldo and Melquiond 2008](https://doi.org/10.1109/TC.2008.107)).
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || x.is_nan() {
        return near;
    }
    let away = f64::from(near).abs() > x.abs();
    let towards_zero = near.to_bits() - u32::from(away);
    f32::from_bits(towards_zero | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_round_trip() {
        for dtype in DType::SCALARS {
            let x = Values::full(Scalar::Int(1), dtype, 3);
            let bytes = x.encode(dtype);
            assert_eq!(bytes.len(), 3 * dtype.size().unwrap());
            assert_eq!(Values::decode(bytes, dtype), x, "{dtype}");
        }
    }

    #[test]
    fn halves_are_rounded_once() {
        // Between 1 and the next half-precision number 1 + 2^-10 the tie is 1 + 2^-11. Just
        // above it, single precision rounds down to the tie and then to even, which is 1.
        let tie = 1.0 + (-11f64).exp2();
        let above = tie + (-40f64).exp2();
        let half = |x: f64| Values::Float(vec![x]).rounded(DType::F16);
        assert_eq!(half(tie), Values::Float(vec![1.0]));
        assert_eq!(half(above), Values::Float(vec![1.0 + (-10f64).exp2()]));
        assert_eq!(half(-above), Values::Float(vec![-1.0 - (-10f64).exp2()]));
        assert_eq!(half(1e300), Values::Float(vec![f64::INFINITY]));
        assert_eq!(half(65519.0), Values::Float(vec![65504.0]));
        let brain = |x: f64| Values::Float(vec![x]).rounded(DType::BF16);
        let tie = 1.0 + (-8f64).exp2();
        assert_eq!(brain(tie), Values::Float(vec![1.0]));
        assert_eq!(
            brain(tie + (-50f64).exp2()),
            Values::Float(vec![1.0 + (-7f64).exp2()])
        );
    }

    #[test]
    fn integers_wrap() {
        let mut x = Values::Int(vec![-129, 128, 256, 7]);
        x.wrap(DType::I8);
        assert_eq!(x, Values::Int(vec![127, -128, 0, 7]));
        x.wrap(DType::Bool);
        assert_eq!(x, Values::Int(vec![1, 1, 0, 1]));
    }
}
