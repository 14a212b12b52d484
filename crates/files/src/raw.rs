//! Raw elements without a header: the caller describes them.

use std::io::Write;
use std::path::Path;

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::Tensor;

use crate::elements;
use crate::error::{FileError, FileResult};
use crate::source::{Source, reading, writing};
use crate::tensors::Tensors;

/// Dtype, shape and offset of elements in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Their type.
    pub dtype: DType,
    /// Sizes of the dimensions, slowest first.
    pub shape: Vec<usize>,
    /// Elements from one index to the next, for each dimension; `None` for row-major order without gaps.
    pub strides: Option<Vec<usize>>,
    /// Bytes before the first element.
    pub offset: u64,
}

impl Layout {
    /// Elements in row-major order from the first byte on.
    pub fn new(dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self {
            dtype,
            shape: shape.into(),
            strides: None,
            offset: 0,
        }
    }

    /// The number of elements from the first to the last, both included; `None` if there are none.
    fn reach(&self, strides: &[usize]) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let mut reaches = self
            .shape
            .iter()
            .zip(strides)
            .map(|(n, s)| (n - 1).checked_mul(*s));
        reaches.try_fold(1usize, |end, reach| end.checked_add(reach?))
    }
}

/// Maps a file with elements at an offset; other data may follow.
///
/// # Errors
/// Fails if the file cannot be read or lacks elements of the layout. Fails for strides of a block
/// format, or if the numbers of sizes and strides differ.
#[track_calls(raw)]
pub fn load(path: impl AsRef<Path>, layout: &Layout) -> FileResult<Tensor> {
    reading(path.as_ref(), |source| read(source, layout))
}

/// [`load`] of bytes.
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(raw)]
pub fn read(source: &Source, layout: &Layout) -> FileResult<Tensor> {
    const NAME: &str = Tensors::ONLY;
    let too_large = || {
        let problem = format!("{layout:?} is too large for memory");
        FileError::damaged("the layout", problem)
    };
    let part = |bytes: usize| source.part("the elements", layout.offset, bytes as u64);
    let Some(strides) = &layout.strides else {
        let bytes = layout.dtype.bytes_of(&layout.shape).ok_or_else(too_large)?;
        return elements::tensor(NAME, &part(bytes)?, layout.dtype, &layout.shape);
    };
    if strides.len() != layout.shape.len() {
        let problem = format!("{layout:?} lacks one stride for each size");
        return Err(FileError::damaged("the layout", problem));
    }
    let reach = layout.reach(strides).ok_or_else(too_large)?;
    let bytes = layout.dtype.bytes_of(&[reach]).ok_or_else(too_large)?;
    let line = elements::tensor(NAME, &part(bytes)?, layout.dtype, &[reach])?;
    let seen = line.as_strided(&layout.shape, strides, line.storage_offset());
    seen.map_err(FileError::tensor(NAME))
}

/// Writes a file of a tensor's elements in row-major order and little endian.
///
/// # Errors
/// Fails if the tensor cannot be computed, or if the system reports an error.
#[track_calls(raw)]
pub fn save(path: impl AsRef<Path>, tensor: &Tensor) -> FileResult<()> {
    writing(path.as_ref(), |out| write(out, tensor))
}

/// [`save`] to any writer.
///
/// # Errors
/// The same errors as [`save`].
#[track_calls(raw)]
pub fn write(out: &mut impl Write, tensor: &Tensor) -> FileResult<()> {
    elements::write(Tensors::ONLY, tensor, out)
}
