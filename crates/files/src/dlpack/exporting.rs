//! Tensors for other libraries.

use std::ffi::c_void;
use std::ptr;

use rustorch_macros::track_calls;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::{RusTorchError, Tensor, runtime};

use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use crate::elements::{self, for_each_chunk};
use crate::error::{FileError, FileResult};
use crate::tensors::Tensors;

/// A tensor's elements as a structure for another library in this process, evaluated if necessary.
/// The memory is shared with the tensor's strides, and read-only
/// ([`DLManagedTensorVersioned::READ_ONLY`]). Tensors in a device's own memory are copied, as by
/// [`to_dlpack_copied`].
///
/// The receiver calls the deleter, or [`from_dlpack`](super::from_dlpack) does; until then the
/// memory is kept alive. Later writes to the tensor ([`Tensor::copy_`]) may show, as is usual for
/// shared memory.
///
/// # Errors
/// Fails for a block format, if the tensor cannot be computed, or if memory is too small for a
/// copy.
#[track_calls]
pub fn to_dlpack(tensor: &Tensor) -> FileResult<*mut DLManagedTensorVersioned> {
    match shared(tensor)? {
        Some(shared) => Ok(versioned(shared, DLManagedTensorVersioned::READ_ONLY)),
        None => to_dlpack_copied(tensor),
    }
}

/// [`to_dlpack`] of a row-major copy that the receiver may write to
/// ([`DLManagedTensorVersioned::IS_COPIED`]).
///
/// # Errors
/// The same errors as [`to_dlpack`].
#[track_calls]
pub fn to_dlpack_copied(tensor: &Tensor) -> FileResult<*mut DLManagedTensorVersioned> {
    let copied = copied(tensor)?;
    Ok(versioned(copied, DLManagedTensorVersioned::IS_COPIED))
}

fn versioned((memory, dl_tensor): (Memory, DLTensor), flags: u64) -> *mut DLManagedTensorVersioned {
    let exported = Box::new(Exported {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion::HERE,
            manager_ctx: ptr::null_mut(),
            deleter: Some(give_back_versioned),
            flags,
            dl_tensor,
        },
        _memory: memory,
    });
    let exported = Box::into_raw(exported);
    // SAFETY: it was just made, and nobody else has it; its first field is at its address.
    unsafe {
        (*exported).managed.manager_ctx = exported.cast();
        &raw mut (*exported).managed
    }
}

/// [`to_dlpack_copied`] by the structure without a version, for libraries that support no other. It cannot mark memory
/// as read-only, so this always copies.
///
/// # Errors
/// The same errors as [`to_dlpack`].
#[track_calls]
pub fn to_dlpack_unversioned(tensor: &Tensor) -> FileResult<*mut DLManagedTensor> {
    let (memory, dl_tensor) = copied(tensor)?;
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
    /// The owner of shared elements: their memory may not be used for others.
    _storage: Option<Storage>,
    /// Shape, then strides.
    _sizes: Box<[i64]>,
}

const NAME: &str = Tensors::ONLY;

/// A tensor's elements in the host's memory, with their description; `None` if they are elsewhere.
fn shared(tensor: &Tensor) -> FileResult<Option<(Memory, DLTensor)>> {
    let failed = |error: RusTorchError| FileError::tensor(NAME)(error);
    let dtype = dtype(tensor)?;
    tensor.eval().map_err(failed)?;
    let Some(storage) = tensor.storage_in_memory() else {
        return Ok(None);
    };
    let memory = runtime().host_memory(&storage);
    let Some(memory) = memory.map_err(|error| failed(error.into()))? else {
        return Ok(None);
    };
    let offset = tensor.storage_offset() * tensor.dtype().size().unwrap_or(1);
    let strides = tensor.stride();
    Ok(Some(described(
        tensor,
        dtype,
        (memory, Some(storage)),
        offset,
        &strides,
    )))
}

/// A copy of a tensor's elements, with their description.
fn copied(tensor: &Tensor) -> FileResult<(Memory, DLTensor)> {
    let dtype = dtype(tensor)?;
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
    let strides = elements::dense_strides(tensor.shape());
    Ok(described(tensor, dtype, (memory, None), 0, &strides))
}

fn dtype(tensor: &Tensor) -> FileResult<DLDataType> {
    DLDataType::of(tensor.dtype())
        .ok_or_else(|| FileError::no_dtype(NAME, "DLPack", tensor.dtype(), "convert it to f32"))
}

/// A tensor's elements in memory, from the byte `offset` on.
fn described(
    tensor: &Tensor,
    dtype: DLDataType,
    (elements, storage): (HostBuffer, Option<Storage>),
    offset: usize,
    strides: &[usize],
) -> (Memory, DLTensor) {
    let rank = tensor.rank();
    let mut sizes: Box<[i64]> = (tensor.shape().iter().chain(strides))
        .map(|&n| n as i64)
        .collect();
    let (shape, strides) = sizes.split_at_mut(rank);
    let dl_tensor = DLTensor {
        // Libraries differ in whether they read `byte_offset`.
        data: elements.as_ptr().wrapping_add(offset).cast(),
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
        _elements: elements,
        _storage: storage,
        _sizes: sizes,
    };
    (memory, dl_tensor)
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
