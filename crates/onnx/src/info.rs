//! Inputs and outputs of models: names, dtypes, shapes.

use std::fmt;

use prost::Message;
use rustorch_dispatch::Value;
use rustorch_ir::DType;

use crate::data::{self, Elements};
use crate::error::{OnnxError, OnnxResult};
use crate::narrow::Narrow;
use crate::proto::{self, OptionalData, SequenceData, TensorData, ValueInfo};

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
}

/// The type of an input or output.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// A tensor.
    Tensor {
        /// The dtype, if it is known; of narrow integers and floats the one that holds them.
        dtype: Option<DType>,
        /// The sizes, if the rank is known.
        shape: Option<Vec<Dim>>,
    },
    /// A list of tensors.
    Sequence,
    /// A value that may be absent.
    Optional,
    /// Another type, which is not supported.
    Other,
}

/// A size of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A fixed size.
    Fixed(usize),
    /// A size that differs from run to run. The name may be empty.
    Named(String),
}

impl Info {
    pub(crate) fn of(info: &ValueInfo) -> Self {
        let ty = info.ty.clone().unwrap_or_default();
        let kind = match (ty.tensor, ty.sequence, ty.optional) {
            (Some(tensor), ..) => Kind::Tensor {
                dtype: dtype_of(tensor.elements),
                shape: tensor
                    .shape
                    .map(|shape| shape.dims.into_iter().map(dim).collect()),
            },
            (_, Some(_), _) => Kind::Sequence,
            (.., Some(_)) => Kind::Optional,
            _ => Kind::Other,
        };
        Self {
            name: info.name.clone(),
            kind,
        }
    }

    /// A value of this type from the bytes of a `.pb` file, as ONNX's tests have them.
    ///
    /// # Errors
    /// Fails if the bytes are no such value, or for an unsupported type.
    pub fn decode(&self, bytes: &[u8]) -> OnnxResult<Value> {
        let damaged = |e| OnnxError::damaged(&self.name, e);
        Ok(match self.kind {
            Kind::Tensor { .. } => tensor(&TensorData::decode(bytes).map_err(damaged)?)?,
            Kind::Sequence => sequence(&SequenceData::decode(bytes).map_err(damaged)?)?,
            Kind::Optional => match OptionalData::decode(bytes).map_err(damaged)? {
                OptionalData {
                    tensor: Some(data), ..
                } => tensor(&data)?,
                OptionalData {
                    sequence: Some(data),
                    ..
                } => sequence(&data)?,
                _ => Value::None,
            },
            Kind::Other => {
                return Err(OnnxError::unsupported(format!(
                    "the type of {:?}",
                    self.name
                )));
            }
        })
    }

    /// Refuses a value of another type.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let Kind::Tensor { dtype, shape } = &self.kind else {
            return Ok(());
        };
        let Value::Tensor(tensor) = value else {
            return Err(format!("the input {:?} is {value}", self.name));
        };
        let has_dtype = dtype.is_none_or(|dtype| dtype == tensor.dtype());
        let fits = |(dim, size): (&Dim, &usize)| match dim {
            Dim::Fixed(fixed) => fixed == size,
            Dim::Named(_) => true,
        };
        let has_shape = shape.as_ref().is_none_or(|dims| {
            dims.len() == tensor.rank() && dims.iter().zip(tensor.shape()).all(fits)
        });
        match has_dtype && has_shape {
            true => Ok(()),
            false => Err(format!("the input {:?} is {value}", self.name)),
        }
    }
}

fn dtype_of(number: i32) -> Option<DType> {
    let narrow = Narrow::of(number.into()).map(|narrow| narrow.held);
    narrow.or_else(|| data::dtype(number.into()).ok())
}

fn dim(dim: proto::Dim) -> Dim {
    match dim.size.map(usize::try_from) {
        Some(Ok(size)) => Dim::Fixed(size),
        _ => Dim::Named(dim.name.unwrap_or_default()),
    }
}

fn tensor(data: &TensorData) -> OnnxResult<Value> {
    Ok(Value::Tensor(Elements::of(data, None)?.tensor()?))
}

fn sequence(data: &SequenceData) -> OnnxResult<Value> {
    let parts = data.tensors.iter().map(tensor);
    Ok(Value::List(parts.collect::<OnnxResult<_>>()?))
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor { dtype, shape } => {
                match dtype {
                    Some(dtype) => dtype.fmt(f)?,
                    None => f.write_str("any dtype")?,
                }
                match shape {
                    Some(dims) => {
                        let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
                        write!(f, "[{}]", dims.join(", "))
                    }
                    None => f.write_str(" of any shape"),
                }
            }
            Self::Sequence => f.write_str("a list of tensors"),
            Self::Optional => f.write_str("a value or nothing"),
            Self::Other => f.write_str("a type that is not supported"),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => size.fmt(f),
            Self::Named(name) if name.is_empty() => f.write_str("?"),
            Self::Named(name) => f.write_str(name),
        }
    }
}
