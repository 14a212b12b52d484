//! Constants of a program, and how a model or `weight.bin` holds them.

use half::f16;
use prost::Message;

use crate::proto::mil::{
    BlobFileValue, DataType, ImmediateKind, ImmediateValue, RepeatedBools, RepeatedBytes,
    RepeatedFloats, RepeatedInts, RepeatedStrings, TensorElements, TensorValue, Value, ValueSource,
    ValueType,
};
use crate::weights::{BlobError, WeightsWriter};

/// A constant tensor.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Constant {
    data_type: DataType,
    shape: Vec<usize>,
    elements: Elements,
}

/// Elements of a constant, in row-major order.
#[derive(Clone, PartialEq, Debug)]
enum Elements {
    /// Bytes as in memory, little-endian.
    Packed(Vec<u8>),
    Ints(Vec<i32>),
    Bools(Vec<bool>),
    Text(String),
}

impl Constant {
    /// One number of a floating-point type, rank 0.
    pub(crate) fn number(x: f64, data_type: DataType) -> Self {
        Self::floats([x], &[], data_type)
    }

    /// Numbers of a floating-point type, rounded to it.
    pub(crate) fn floats(
        x: impl IntoIterator<Item = f64>,
        shape: &[usize],
        data_type: DataType,
    ) -> Self {
        let x = x.into_iter();
        let packed = match data_type {
            DataType::Float16 => x.flat_map(|x| f16::from_f64(x).to_le_bytes()).collect(),
            _ => x.flat_map(|x| (x as f32).to_le_bytes()).collect(),
        };
        Self::packed(packed, shape, data_type)
    }

    /// Elements as `weight.bin` has them.
    pub(crate) fn packed(elements: Vec<u8>, shape: &[usize], data_type: DataType) -> Self {
        Self {
            data_type,
            shape: shape.to_vec(),
            elements: Elements::Packed(elements),
        }
    }

    /// Integers, rank 1.
    pub(crate) fn ints(x: &[usize]) -> Self {
        // Sizes and places in tensors whose sizes were checked.
        let x: Vec<i32> = x.iter().map(|&x| x as i32).collect();
        let shape = [x.len()];
        Self::tensor_of_ints(x, &shape)
    }

    /// Integers.
    pub(crate) fn tensor_of_ints(x: Vec<i32>, shape: &[usize]) -> Self {
        Self {
            data_type: DataType::Int32,
            shape: shape.to_vec(),
            elements: Elements::Ints(x),
        }
    }

    /// An integer, rank 0.
    pub(crate) fn int(x: usize) -> Self {
        Self::tensor_of_ints(vec![x as i32], &[])
    }

    /// A boolean, rank 0.
    pub(crate) fn flag(x: bool) -> Self {
        Self::bools(vec![x], &[])
    }

    /// Booleans.
    pub(crate) fn bools(x: Vec<bool>, shape: &[usize]) -> Self {
        Self {
            data_type: DataType::Bool,
            shape: shape.to_vec(),
            elements: Elements::Bools(x),
        }
    }

    /// A text, rank 0.
    pub(crate) fn text(x: &str) -> Self {
        Self {
            data_type: DataType::String,
            shape: Vec::new(),
            elements: Elements::Text(x.to_owned()),
        }
    }

    /// Type of its elements.
    pub(crate) fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Its sizes.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its elements if they are integers.
    pub(crate) fn as_ints(&self) -> Option<&[i32]> {
        match &self.elements {
            Elements::Ints(x) => Some(x),
            _ => None,
        }
    }

    /// The constant in the model itself.
    pub(crate) fn immediate(&self) -> Value {
        let elements = match &self.elements {
            Elements::Packed(bytes) if self.data_type == DataType::Float32 => {
                let values = bytes.as_chunks().0.iter().copied();
                let values = values.map(f32::from_le_bytes).collect();
                TensorElements::Floats(RepeatedFloats { values })
            }
            Elements::Packed(bytes) => TensorElements::Bytes(RepeatedBytes {
                values: bytes.clone(),
            }),
            Elements::Ints(x) => TensorElements::Ints(RepeatedInts { values: x.clone() }),
            Elements::Bools(x) => TensorElements::Bools(RepeatedBools { values: x.clone() }),
            Elements::Text(x) => TensorElements::Strings(RepeatedStrings {
                values: vec![x.clone()],
            }),
        };
        let tensor = ImmediateKind::Tensor(TensorValue {
            value: Some(elements),
        });
        self.value(ValueSource::Immediate(ImmediateValue {
            value: Some(tensor),
        }))
    }

    fn value(&self, source: ValueSource) -> Value {
        Value {
            r#type: Some(ValueType::tensor(self.data_type, &self.shape)),
            value: Some(source),
        }
    }

    /// The constant where it belongs: floats of ten elements or more, as with coremltools, in
    /// `weights`, everything else in the model.
    pub(crate) fn store(&self, weights: &mut WeightsWriter) -> Result<Value, BlobError> {
        let count = self.shape.iter().product();
        match &self.elements {
            Elements::Packed(bytes) if count >= 10 => {
                let file = BlobFileValue {
                    file_name: crate::package::WEIGHTS.to_owned(),
                    offset: weights.push(self.data_type, count, bytes)?,
                };
                Ok(self.value(ValueSource::BlobFile(file)))
            }
            _ => Ok(self.immediate()),
        }
    }

    /// Identity among the constants that are in the model itself.
    pub(crate) fn identity(&self) -> Vec<u8> {
        self.immediate().encode_to_vec()
    }
}
