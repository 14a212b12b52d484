//! Arguments of functions, as PyTorch's callers give them.

use std::fmt;

use rustorch_ir::DType;
use rustorch_tensor::Tensor;

/// An argument of any type.
#[derive(Clone, Debug)]
pub enum Value {
    /// Python's `None`: nothing.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
    /// A string.
    Text(String),
    /// A dtype.
    DType(DType),
    /// A tensor.
    Tensor(Tensor),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// Start, end and step.
    Slice([Option<i64>; 3]),
    /// Python's `...`.
    Ellipsis,
    /// Kind of a value that no function here takes.
    Other(String),
}

impl Value {
    /// The parts of a list or tuple.
    pub fn parts(&self) -> Option<&[Self]> {
        match self {
            Self::List(parts) | Self::Tuple(parts) => Some(parts),
            _ => None,
        }
    }

    /// The value that a default in a signature stands for.
    pub(crate) fn of_default(text: &str) -> Self {
        let quoted = || text.strip_prefix('\'')?.strip_suffix('\'');
        match text {
            "None" => Self::None,
            "True" => Self::Bool(true),
            "False" => Self::Bool(false),
            "inf" => Self::Float(f64::INFINITY),
            "-inf" => Self::Float(f64::NEG_INFINITY),
            _ => match (text.parse(), text.parse(), quoted()) {
                (Ok(int), ..) => Self::Int(int),
                (_, Ok(float), _) => Self::Float(float),
                (.., Some(inner)) => Self::Text(inner.to_owned()),
                _ => Self::Other(text.to_owned()),
            },
        }
    }

    /// Returns whether both values are equal. For tensors the answer is not known.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) | (Self::Ellipsis, Self::Ellipsis) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Int(a), Self::Float(b)) | (Self::Float(b), Self::Int(a)) => *a as f64 == *b,
            (Self::Complex(a, b), Self::Complex(x, y)) => (a, b) == (x, y),
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::DType(a), Self::DType(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, parts: &[Self]| {
            f.write_str("[")?;
            for (i, part) in parts.iter().enumerate() {
                write!(f, "{}{part}", if i > 0 { ", " } else { "" })?;
            }
            f.write_str("]")
        };
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(x) => x.fmt(f),
            Self::Int(x) => x.fmt(f),
            Self::Float(x) => x.fmt(f),
            Self::Complex(re, im) => write!(f, "{re}{im:+}i"),
            Self::Text(x) => write!(f, "'{x}'"),
            Self::DType(x) => x.fmt(f),
            Self::Tensor(x) => write!(f, "{}{:?}", x.dtype(), x.shape()),
            Self::List(parts) | Self::Tuple(parts) => list(f, parts),
            Self::Slice(_) => f.write_str("a slice"),
            Self::Ellipsis => f.write_str("..."),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

/// Result of a function.
pub enum Output {
    /// A tensor.
    Tensor(Tensor),
    /// Several results.
    List(Vec<Output>),
    /// A result that is not a tensor.
    Value(Value),
}

impl Output {
    /// The tensor of the result; `None` if it is not a tensor.
    pub fn into_tensor(self) -> Option<Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::List(_) | Self::Value(_) => None,
        }
    }
}

macro_rules! from {
    ($to:ty: $($type:ty, |$x:pat_param| $output:expr;)*) => {
        $(impl From<$type> for $to {
            fn from($x: $type) -> Self {
                $output
            }
        })*
    };
}

from! { Output:
    Tensor, |x| Self::Tensor(x);
    &Tensor, |x| Self::Tensor(x.clone());
    (Tensor, Tensor), |(a, b)| Self::List([a, b].map(Self::Tensor).into());
    (Tensor, Tensor, Tensor), |(a, b, c)| Self::List([a, b, c].map(Self::Tensor).into());
    Vec<Tensor>, |x| Self::List(x.into_iter().map(Self::Tensor).collect());
    bool, |x| Self::Value(Value::Bool(x));
    i64, |x| Self::Value(Value::Int(x));
    f64, |x| Self::Value(Value::Float(x));
    DType, |x| Self::Value(Value::DType(x));
    Value, |x| Self::Value(x);
}

from! { Value:
    Tensor, |x| Self::Tensor(x);
    &Tensor, |x| Self::Tensor(x.clone());
    bool, |x| Self::Bool(x);
    i64, |x| Self::Int(x);
    f64, |x| Self::Float(x);
    &str, |x| Self::Text(x.to_owned());
    DType, |x| Self::DType(x);
    Vec<Value>, |x| Self::List(x);
}
