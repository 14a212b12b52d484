//! Elements: from the bytes of files to tensors, and back.

use std::io::Write;

use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::{RusTorchError, Tensor, runtime};

use crate::error::{FileError, FileResult};
use crate::source::Source;

/// The alignment that devices want for host memory that they use in place; no scalar needs more.
const ALIGNMENT: usize = 8;

/// Bytes that are written at once.
const CHUNK: usize = 256 * 1024;

/// The byte order of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByteOrder {
    /// The least significant one, as in memory: other machines are none of this project's.
    Little,
    Big,
}

/// The tensor `name`, whose elements in row-major order are `data`. They stay where they are if they are aligned by
/// their size; else they are copied, as are booleans other than 0 and 1.
///
/// # Errors
/// Fails if the bytes do not match this shape and dtype, or if memory is too small for a copy. Also
/// fails for too many dimensions.
pub(crate) fn tensor(
    name: &str,
    data: &Source,
    dtype: DType,
    shape: &[usize],
) -> FileResult<Tensor> {
    check_rank(name, shape)?;
    if dtype == DType::Bool && data.iter().any(|&byte| byte > 1) {
        let normal = converted(name, data, |bytes| {
            for byte in bytes {
                *byte = u8::from(*byte != 0);
            }
        });
        return tensor(name, &normal?, dtype, shape);
    }
    let beyond = data.as_ptr().addr() % ALIGNMENT;
    let size = dtype.size().unwrap_or(ALIGNMENT).min(ALIGNMENT);
    let back = (beyond.is_multiple_of(size)).then(|| data.reaching_back(beyond));
    let whole = |buffer: HostBuffer, shape: &[usize]| {
        Tensor::from_storage(Storage::from_host(buffer), shape, dtype)
    };
    let made = match (beyond, back.flatten(), dtype.size()) {
        (0, ..) => whole(HostBuffer::borrowed(data.clone()), shape),
        // Memory that begins before it is aligned; the elements there are not shown.
        (_, Some(from), Some(size)) if data.len().is_multiple_of(size) => {
            let (all, hidden) = (from.len() / size, beyond / size);
            whole(HostBuffer::borrowed(from), &[all])
                .and_then(|line| line.narrow(0, hidden, all - hidden))
                .and_then(|line| line.reshape(shape))
        }
        _ => {
            let copy = HostBuffer::copy_of(data).ok_or_else(|| no_memory(name, data.len()))?;
            whole(copy, shape)
        }
    };
    made.map_err(FileError::tensor(name))
}

/// Elements of this dtype in the machine's byte order.
pub(crate) fn native(
    name: &str,
    data: Source,
    dtype: DType,
    order: ByteOrder,
) -> FileResult<Source> {
    match dtype.real().size() {
        Some(width) if width > 1 && order == ByteOrder::Big => converted(name, &data, |bytes| {
            bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }),
        _ => Ok(data),
    }
}

/// A copy of bytes, changed.
fn converted(name: &str, data: &[u8], change: impl FnOnce(&mut [u8])) -> FileResult<Source> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(data.len());
    reserved.map_err(|_| no_memory(name, data.len()))?;
    bytes.extend_from_slice(data);
    change(&mut bytes);
    Ok(bytes.into())
}

/// Fails if a tensor has more dimensions than NumPy's arrays may have; a header can list millions of them.
pub(crate) fn check_rank(name: &str, shape: &[usize]) -> FileResult<()> {
    const LARGEST: usize = 64;
    match shape.len() {
        ..=LARGEST => Ok(()),
        rank => {
            let place = format!("tensor {}", rustorch_gguf::quoted(name));
            let found = format!("a shape of {rank} dimensions");
            let advice = format!("reshape it to {LARGEST} at most");
            Err(FileError::unsupported(place, found, advice))
        }
    }
}

/// Memory for data of the tensor `name` is short.
pub(crate) fn no_memory(name: &str, bytes: usize) -> FileError {
    FileError::TooLarge {
        place: format!("tensor {}", rustorch_gguf::quoted(name)),
        bytes: bytes as u64,
        limit: "the system has no more".to_owned(),
    }
}

/// The bytes of a tensor in a file, those of a contiguous one.
pub(crate) fn bytes_of(tensor: &Tensor) -> u64 {
    // A tensor that exists has bytes that fit.
    let bytes = tensor.dtype().bytes_of(tensor.shape());
    bytes.unwrap_or(0) as u64
}

/// The elements of a tensor in row-major order, piece by piece.
///
/// # Errors
/// Fails if the elements cannot be computed, or if their only copy was lost with a device.
pub(crate) fn for_each_chunk(
    name: &str,
    tensor: &Tensor,
    mut take: impl FnMut(&[u8]) -> FileResult<()>,
) -> FileResult<()> {
    let failed = |error: RusTorchError| FileError::tensor(name)(error);
    let storage = tensor.storage().map_err(failed)?;
    let runtime = runtime();
    let mut chunk = vec![0; CHUNK.min(storage.bytes())];
    let mut at = 0;
    while at < storage.bytes() {
        let len = chunk.len().min(storage.bytes() - at);
        let read = runtime.read(&storage, at, &mut chunk[..len]);
        read.map_err(|error| failed(error.into()))?;
        take(&chunk[..len])?;
        at += len;
    }
    Ok(())
}

/// Writes a tensor's elements in row-major order.
///
/// # Errors
/// The same errors as [`for_each_chunk`]. Also fails if the system reports an error.
pub(crate) fn write(name: &str, tensor: &Tensor, out: &mut dyn Write) -> FileResult<()> {
    for_each_chunk(name, tensor, |chunk| {
        (out.write_all(chunk)).map_err(FileError::io("write the elements"))
    })
}

/// Steps from one index to the next, in elements, in row-major order; as large as can be where they overflow.
pub(crate) fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}
