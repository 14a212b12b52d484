//! Numbers inside operations: hashable, so that graphs are.

use std::fmt;
use std::hash::{Hash, Hasher};

use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;

use crate::{DType, F8E4M3, F8E5M2};

/// A floating-point parameter of an operation, such as an epsilon. Compared and hashed
/// by its bits.
#[derive(Clone, Copy, Debug)]
pub struct Param(pub f64);

impl PartialEq for Param {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Param {}

impl Hash for Param {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl From<f64> for Param {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl From<f32> for Param {
    fn from(value: f32) -> Self {
        Self(value.into())
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One element of any scalar type, for filling and padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scalar {
    /// A value for floating-point tensors (and, as real part, complex ones).
    Float(Param),
    /// A value for integer tensors; also 0 or 1 for booleans.
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    /// Real and imaginary part.
    Complex(Param, Param),
}

impl Scalar {
    /// The value as a double; the real part of a complex one.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(x) | Self::Complex(x, _) => x.0,
            Self::Int(i) => i as f64,
            Self::UInt(i) => i as f64,
        }
    }

    /// The value as an integer, cut towards zero; one above `i64::MAX` wraps.
    pub fn as_i64(self) -> i64 {
        match self {
            Self::Int(i) => i,
            Self::UInt(i) => i as i64,
            other => other.as_f64() as i64,
        }
    }

    /// The value as an unsigned integer, cut towards zero; negative ones wrap.
    pub fn as_u64(self) -> u64 {
        match self {
            Self::Int(i) => i as u64,
            Self::UInt(i) => i,
            other if other.as_f64() < 0.0 => other.as_i64() as u64,
            other => other.as_f64() as u64,
        }
    }

    /// The imaginary part.
    pub fn imag(self) -> f64 {
        match self {
            Self::Complex(_, im) => im.0,
            _ => 0.0,
        }
    }
}

impl Scalar {
    /// The element of `dtype` that it stands for, rounded or cut to that, as memory holds it;
    /// nothing for block formats.
    pub fn to_bytes(self, dtype: DType) -> SmallVec<[u8; 16]> {
        let (re, im, int) = (self.as_f64(), self.imag(), self.as_i64());
        match dtype {
            DType::F64 => re.to_ne_bytes().into_iter().collect(),
            DType::F32 => (re as f32).to_ne_bytes().into_iter().collect(),
            DType::F16 => f16::from_f32(to_odd(re))
                .to_ne_bytes()
                .into_iter()
                .collect(),
            DType::BF16 => bf16::from_f32(to_odd(re))
                .to_ne_bytes()
                .into_iter()
                .collect(),
            DType::F8E4M3 => [F8E4M3::from_f32(to_odd(re)).to_bits()]
                .into_iter()
                .collect(),
            DType::F8E5M2 => [F8E5M2::from_f32(to_odd(re)).to_bits()]
                .into_iter()
                .collect(),
            DType::I64 => int.to_ne_bytes().into_iter().collect(),
            DType::U64 => self.as_u64().to_ne_bytes().into_iter().collect(),
            DType::I32 | DType::U32 => (int as i32).to_ne_bytes().into_iter().collect(),
            DType::I16 | DType::U16 => (int as i16).to_ne_bytes().into_iter().collect(),
            DType::I8 | DType::U8 => (int as i8).to_ne_bytes().into_iter().collect(),
            DType::Bool => [u8::from(int != 0)].into_iter().collect(),
            DType::Complex64 => [re as f32, im as f32]
                .into_iter()
                .flat_map(f32::to_ne_bytes)
                .collect(),
            DType::Complex128 => [re, im].into_iter().flat_map(f64::to_ne_bytes).collect(),
            DType::Block(_) => SmallVec::new(),
        }
    }
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Self {
        Self::Float(value.into())
    }
}

impl From<f32> for Scalar {
    fn from(value: f32) -> Self {
        Self::Float(value.into())
    }
}

impl From<i64> for Scalar {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Scalar {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::UInt(value), Self::Int)
    }
}

impl From<i32> for Scalar {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl<T: Into<f64>> From<Complex<T>> for Scalar {
    fn from(value: Complex<T>) -> Self {
        let [re, im] = [value.re, value.im].map(|part| Param(part.into()));
        Self::Complex(re, im)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(x) => x.fmt(f),
            Self::Int(i) => i.fmt(f),
            Self::UInt(i) => i.fmt(f),
            Self::Complex(re, im) => write!(f, "{re}{:+}i", im.0),
        }
    }
}

/// `x` in single precision so that rounding it once more, to half precision, gives what
/// rounding `x` directly would: the last bit of an inexact result is made odd, which keeps
/// it off ties ([Boldo and Melquiond 2008](https://doi.org/10.1109/TC.2008.107)).
pub fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) == x || x.is_nan() {
        return nearest;
    }
    let cut = nearest.to_bits() - u32::from(f64::from(nearest).abs() > x.abs());
    f32::from_bits(cut | 1)
}
