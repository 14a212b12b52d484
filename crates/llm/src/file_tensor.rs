//! A tensor of a file.

use rustorch_gguf::{GgmlType, Gguf, GgufError, TensorInfo};
use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::Tensor;

use crate::LlmError;

/// The element type that a weight of the file has here; `None` for whole numbers.
fn dtype(ty: GgmlType) -> Option<DType> {
    Some(match ty {
        GgmlType::F64 => DType::F64,
        GgmlType::F32 => DType::F32,
        GgmlType::F16 => DType::F16,
        GgmlType::BF16 => DType::BF16,
        other => DType::Block(other.block_format()?),
    })
}

/// A tensor of `gguf`, used where it lies.
///
/// # Errors
/// Fails for an unsupported type.
pub(crate) fn file_tensor(gguf: &Gguf, info: &TensorInfo) -> Result<Tensor, LlmError> {
    info.ensure_supported().map_err(|error| match error {
        GgufError::Tensor { name, problem } => LlmError::weight(name, problem),
        other => other.into(),
    })?;
    let dtype = dtype(info.ty).ok_or_else(|| {
        let problem = format!("expected floats or blocks, got {}", info.ty.name());
        LlmError::weight(&info.name, problem)
    })?;
    let buffer = HostBuffer::borrowed(gguf.data_shared(info));
    let storage = Storage::from_host(buffer);
    Ok(Tensor::from_storage(storage, info.shape(), dtype)?)
}
