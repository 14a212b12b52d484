//! Elements without a header: what they are has to be said.

use std::io::Write;
use std::path::Path;

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::Tensor;

use crate::elements;
use crate::error::{FileError, FileResult};
use crate::source::{Source, reading, writing};
use crate::tensors::Tensors;

/// What elements are, and where in the bytes.
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

    /// The number of elements from the first to the last, both included; `None` if it is none.
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

/// Maps a file that has elements at a place; behind them there may be others.
///
/// # Errors
/// The file cannot be read, or does not hold what the layout says; strides of a block format, or not one for each size.
#[track_calls(raw)]
pub fn load(path: impl AsRef<Path>, layout: &Layout) -> FileResult<Tensor> {
    reading(path.as_ref(), |source| read(source, layout))
}

/// [`load`] of bytes.
///
/// # Errors
/// As [`load`].
#[track_calls(raw)]
pub fn read(source: &Source, layout: &Layout) -> FileResult<Tensor> {
    const NAME: &str = Tensors::ONLY;
    let too_large = || {
        let problem = format!("{layout:?} does not fit any memory");
        FileError::damaged("the layout", problem)
    };
    let part = |bytes: usize| source.part("the elements", layout.offset, bytes as u64);
    let Some(strides) = &layout.strides else {
        let bytes = layout.dtype.bytes_of(&layout.shape).ok_or_else(too_large)?;
        return elements::tensor(NAME, &part(bytes)?, layout.dtype, &layout.shape);
    };
    if strides.len() != layout.shape.len() {
        let problem = format!("{layout:?} has not one stride for each size");
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
/// The tensor cannot be computed; what the system refuses.
#[track_calls(raw)]
pub fn save(path: impl AsRef<Path>, tensor: &Tensor) -> FileResult<()> {
    writing(path.as_ref(), |out| write(out, tensor))
}

/// [`save`] to anything.
///
/// # Errors
/// As [`save`].
#[track_calls(raw)]
pub fn write(out: &mut impl Write, tensor: &Tensor) -> FileResult<()> {
    elements::write(Tensors::ONLY, tensor, out)
}
