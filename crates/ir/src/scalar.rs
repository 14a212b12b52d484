//! Numbers inside operations: hashable, so that graphs are.

use std::fmt;
use std::hash::{Hash, Hasher};

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
    /// Real and imaginary part.
    Complex(Param, Param),
}

impl Scalar {
    /// The value as a double; the real part of a complex one.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(x) | Self::Complex(x, _) => x.0,
            Self::Int(i) => i as f64,
        }
    }

    /// The value as an integer, cut towards zero.
    pub fn as_i64(self) -> i64 {
        match self {
            Self::Int(i) => i,
            other => other.as_f64() as i64,
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

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(x) => x.fmt(f),
            Self::Int(i) => i.fmt(f),
            Self::Complex(re, im) => write!(f, "{re}{:+}i", im.0),
        }
    }
}
