//! A tensor of a file.

use rustorch_gguf::{GgmlType, Gguf, TensorInfo};
use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::Tensor;

use crate::LlmError;

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

/// A tensor of `gguf`, used where it lies.
///
/// # Errors
/// Fails for an unsupported type.
pub(crate) fn file_tensor(gguf: &Gguf, info: &TensorInfo) -> Result<Tensor, LlmError> {
    info.ensure_supported()?;
    let dtype = dtype(info.ty).ok_or_else(|| LlmError::Weight {
        name: info.name.clone(),
        problem: format!("type {}", info.ty.name()),
    })?;
    let buffer = HostBuffer::borrowed(gguf.data_shared(info));
    let storage = Storage::from_host(buffer);
    Ok(Tensor::from_storage(storage, info.shape(), dtype)?)
}
