//! Weights by their GGUF names.

use rustorch_gguf::{GgmlType, Gguf};
use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::Tensor;

use crate::LlmError;

/// The tensors of a file, used where they lie.
pub struct Weights {
    gguf: Gguf,
}

/// The element type that a tensor of the file has here.
fn dtype(ty: GgmlType) -> Option<DType> {
    Some(match ty {
        GgmlType::F64 => DType::F64,
        GgmlType::F32 => DType::F32,
        GgmlType::F16 => DType::F16,
        GgmlType::BF16 => DType::BF16,
        GgmlType::I64 => DType::I64,
        GgmlType::I32 => DType::I32,
        GgmlType::I16 => DType::I16,
        GgmlType::I8 => DType::I8,
        other => DType::Block(other.block_format()?),
    })
}

impl Weights {
    /// The tensors of `gguf`.
    pub fn new(gguf: Gguf) -> Self {
        Self { gguf }
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The tensor `name`, which has to have this shape (slowest dimension first).
    ///
    /// # Errors
    /// It is missing, of another shape, or of a type that is not supported.
    pub fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor, LlmError> {
        let found = self.opt(name, shape)?;
        found.ok_or_else(|| wrong(name, "missing"))
    }

    /// The tensor `name`, if the file has it.
    ///
    /// # Errors
    /// As [`Self::get`], but for a missing tensor.
    pub fn opt(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        let Some(info) = self.gguf.tensor(name) else {
            return Ok(None);
        };
        info.ensure_supported()?;
        if info.shape() != shape {
            return Err(wrong(
                name,
                format!("expected shape {shape:?}, got {:?}", info.shape()),
            ));
        }
        let dtype =
            dtype(info.ty).ok_or_else(|| wrong(name, format!("type {}", info.ty.name())))?;
        let buffer = HostBuffer::borrowed(self.gguf.data_shared(info));
        Ok(Some(Tensor::from_storage(
            Storage::from_host(buffer),
            shape,
            dtype,
        )?))
    }

    /// As [`Self::get`], in `f32`: norms and biases, which files may hold in other floats.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Tensor, LlmError> {
        as_f32(self.get(name, shape)?)
    }

    /// As [`Self::opt`], in `f32`.
    ///
    /// # Errors
    /// As [`Self::opt`].
    pub fn opt_f32(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        self.opt(name, shape)?.map(as_f32).transpose()
    }
}

fn as_f32(tensor: Tensor) -> Result<Tensor, LlmError> {
    if tensor.dtype() == DType::F32 {
        return Ok(tensor);
    }
    let converted = tensor.to_dtype(DType::F32)?;
    converted.eval()?;
    Ok(converted)
}

fn wrong(name: &str, problem: impl ToString) -> LlmError {
    LlmError::Weight {
        name: name.to_owned(),
        problem: problem.to_string(),
    }
}
