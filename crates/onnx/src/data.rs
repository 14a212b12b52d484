//! Tensors in files.

use std::sync::OnceLock;

use rustorch_dispatch::{Called, missing};
use rustorch_files::Source;
use rustorch_files::raw::{self, Layout};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::error::{OnnxError, OnnxResult};
use crate::external::Folder;
use crate::narrow::Narrow;
use crate::proto::TensorData;

/// ONNX's number of a dtype.
pub(crate) fn dtype(number: i64) -> Called<DType> {
    Ok(match number {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        14 => DType::Complex64,
        15 => DType::Complex128,
        16 => DType::BF16,
        17 => DType::F8E4M3,
        19 => DType::F8E5M2,
        other => return missing(format!("ONNX's dtype {other}")),
    })
}

/// The place and layout of elements that were not read yet.
pub(crate) struct Elements {
    source: Source,
    layout: Layout,
}

impl Elements {
    /// The elements of a tensor, which may be in another file of a folder.
    pub(crate) fn of(data: &TensorData, folder: Option<&mut Folder>) -> OnnxResult<Self> {
        let place = || format!("tensor {:?}", data.name);
        let sizes = data.dims.iter().map(|&size| usize::try_from(size).ok());
        let shape: Option<Vec<usize>> = sizes.collect();
        let shape = shape.ok_or_else(|| OnnxError::damaged(place(), "a size below 0"))?;
        let narrow = Narrow::of(data.data_type.into());
        let dtype = match narrow {
            Some(narrow) => narrow.held,
            None => dtype(data.data_type.into()).map_err(|_| {
                OnnxError::unsupported(format!("dtype {} of {}", data.data_type, place()))
            })?,
        };
        let count = shape
            .iter()
            .try_fold(1usize, |n, &size| n.checked_mul(size));
        let bytes = count.and_then(|count| match narrow {
            Some(narrow) => narrow.bytes_of(count),
            None => dtype.bytes_of(&[count]),
        });
        let (Some(count), Some(bytes)) = (count, bytes) else {
            return Err(OnnxError::damaged(
                place(),
                format!("the sizes {shape:?} are too large for memory"),
            ));
        };
        let source = match (data.location, folder) {
            (0, _) => Source::of(data.bytes(narrow.map_or(dtype, |_| DType::U8))),
            (_, Some(folder)) => folder.elements(data, bytes)?,
            (_, None) => {
                return Err(OnnxError::unsupported(format!(
                    "{} in another file",
                    place()
                )));
            }
        };
        if source.len() != bytes {
            let problem = format!("{} bytes, and its shape needs {bytes}", source.len());
            return Err(OnnxError::damaged(place(), problem));
        }
        let source = match narrow {
            Some(narrow) => narrow.widen(&source, count).into(),
            None => source,
        };
        Ok(Self {
            source,
            layout: Layout::new(dtype, shape),
        })
    }

    /// A tensor of the elements, in the mapped file if they are aligned there.
    pub(crate) fn tensor(&self) -> OnnxResult<Tensor> {
        Ok(raw::read(&self.source, &self.layout)?)
    }
}

/// An initializer: a tensor that is made when a node reads it.
pub(crate) struct Constant {
    elements: Elements,
    tensor: OnceLock<Tensor>,
}

impl Constant {
    pub(crate) fn new(elements: Elements) -> Self {
        Self {
            elements,
            tensor: OnceLock::new(),
        }
    }

    pub(crate) fn tensor(&self) -> OnnxResult<Tensor> {
        if let Some(tensor) = self.tensor.get() {
            return Ok(tensor.clone());
        }
        let tensor = self.elements.tensor()?;
        Ok(self.tensor.get_or_init(|| tensor).clone())
    }
}

impl TensorData {
    /// The elements as memory holds them, of a machine whose bytes are in ONNX's order.
    fn bytes(&self, dtype: DType) -> bytes::Bytes {
        if !self.raw.is_empty() {
            return self.raw.clone();
        }
        let bytes = match dtype {
            DType::F32 | DType::Complex64 => of(&self.floats, |x| x.to_ne_bytes()),
            DType::F64 | DType::Complex128 => of(&self.doubles, |x| x.to_ne_bytes()),
            DType::I64 => of(&self.longs, |x| x.to_ne_bytes()),
            DType::I32 => of(&self.ints, |x| x.to_ne_bytes()),
            DType::U32 => of(&self.unsigned, |x| (x as u32).to_ne_bytes()),
            DType::U64 => of(&self.unsigned, |x| x.to_ne_bytes()),
            // Floats of fewer bits than single precision are their bits.
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => {
                of(&self.ints, |x| (x as i16).to_ne_bytes())
            }
            _ => of(&self.ints, |x| [x as u8]),
        };
        bytes.into()
    }
}

fn of<T: Copy, const N: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| bytes(x)).collect()
}
