//! Tensors for others.

use std::ffi::c_void;
use std::ptr;

use rustorch_runtime::HostBuffer;
use rustorch_tensor::Tensor;

use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use crate::elements::{self, for_each_chunk};
use crate::error::{FileError, FileResult};
use crate::tensors::Tensors;

/// A tensor's elements, computed if need be, as a structure that another library of this process may take: a copy in
/// row-major order, which is the receiver's to write to.
///
/// The receiver calls the deleter, or [`from_dlpack`](super::from_dlpack) does; until then the memory is kept.
///
/// # Errors
/// A block format; the tensor cannot be computed; there is no memory for the copy.
pub fn to_dlpack(tensor: &Tensor) -> FileResult<*mut DLManagedTensorVersioned> {
    let (memory, dl_tensor) = described(tensor)?;
    let exported = Box::new(Exported {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion::HERE,
            manager_ctx: ptr::null_mut(),
            deleter: Some(give_back_versioned),
            flags: DLManagedTensorVersioned::IS_COPIED,
            dl_tensor,
        },
        _memory: memory,
    });
    let exported = Box::into_raw(exported);
    // SAFETY: it was just made, and nobody else has it; its first field is at its address.
    unsafe {
        (*exported).managed.manager_ctx = exported.cast();
        Ok(&raw mut (*exported).managed)
    }
}

/// [`to_dlpack`] by the structure without a version, for libraries that know no other.
///
/// # Errors
/// As [`to_dlpack`].
pub fn to_dlpack_unversioned(tensor: &Tensor) -> FileResult<*mut DLManagedTensor> {
    let (memory, dl_tensor) = described(tensor)?;
    let exported = Box::new(Exported {
        managed: DLManagedTensor {
            dl_tensor,
            manager_ctx: ptr::null_mut(),
            deleter: Some(give_back),
        },
        _memory: memory,
    });
    let exported = Box::into_raw(exported);
    // SAFETY: it was just made, and nobody else has it; its first field is at its address.
    unsafe {
        (*exported).managed.manager_ctx = exported.cast();
        Ok(&raw mut (*exported).managed)
    }
}

/// A structure with the memory that it points into.
struct Exported<M> {
    managed: M,
    _memory: Memory,
}

struct Memory {
    _elements: HostBuffer,
    /// Shape, then strides.
    _sizes: Box<[i64]>,
}

/// A copy of a tensor's elements, and what describes it.
fn described(tensor: &Tensor) -> FileResult<(Memory, DLTensor)> {
    const NAME: &str = Tensors::ONLY;
    let dtype = DLDataType::of(tensor.dtype())
        .ok_or_else(|| FileError::no_dtype(NAME, "DLPack", tensor.dtype(), "convert it to f32"))?;
    // A tensor that exists has bytes that fit.
    let bytes = elements::bytes_of(tensor) as usize;
    let memory = HostBuffer::uninit(bytes).ok_or_else(|| elements::no_memory(NAME, bytes))?;
    let mut at = 0;
    for_each_chunk(NAME, tensor, |chunk| {
        // SAFETY: the chunks are `bytes` together, and nobody else has the new memory.
        unsafe { (memory.as_ptr().add(at)).copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
        at += chunk.len();
        Ok(())
    })?;
    let rank = tensor.rank();
    let strides = elements::dense_strides(tensor.shape());
    let mut sizes: Box<[i64]> = (tensor.shape().iter().chain(&strides))
        .map(|&n| n as i64)
        .collect();
    let (shape, strides) = sizes.split_at_mut(rank);
    let dl_tensor = DLTensor {
        data: memory.as_ptr().cast(),
        device: DLDevice {
            device_type: DLDevice::CPU,
            device_id: 0,
        },
        // No shape has so many sizes that this wraps.
        ndim: rank as i32,
        dtype,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let memory = Memory {
        _elements: memory,
        _sizes: sizes,
    };
    Ok((memory, dl_tensor))
}

/// # Safety
/// A structure of [`to_dlpack`], which is not used any more.
unsafe extern "C" fn give_back_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the caller's promise; the context is what it was made as.
    unsafe { free::<DLManagedTensorVersioned>((*managed).manager_ctx) }
}

/// # Safety
/// A structure of [`to_dlpack_unversioned`], which is not used any more.
unsafe extern "C" fn give_back(managed: *mut DLManagedTensor) {
    // SAFETY: the caller's promise; the context is what it was made as.
    unsafe { free::<DLManagedTensor>((*managed).manager_ctx) }
}

/// # Safety
/// The context of a structure `M` of this module, which is not used any more.
unsafe fn free<M>(context: *mut c_void) {
    // SAFETY: the caller's promise: it was made by `Box::into_raw`, and is given back once.
    drop(unsafe { Box::from_raw(context.cast::<Exported<M>>()) });
}
