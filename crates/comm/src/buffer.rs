//! Elements in memory, with dtype and shape.

use crate::{CommError, DType, Element};

/// The dimensions of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'a> {
    /// One dimension.
    Flat(usize),
    Dimensions(&'a [usize]),
}

impl Shape<'_> {
    pub(crate) fn dimensions(&self) -> &[usize] {
        match self {
            Shape::Flat(length) => std::slice::from_ref(length),
            Shape::Dimensions(dimensions) => dimensions,
        }
    }
}

/// Elements that a collective reads.
#[derive(Debug, Clone, Copy)]
pub struct Buffer<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape<'a>,
    pub(crate) bytes: &'a [u8],
}

/// Elements that a collective writes.
#[derive(Debug)]
pub struct BufferMut<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape<'a>,
    pub(crate) bytes: &'a mut [u8],
}

impl<'a> Buffer<'a> {
    /// A buffer of `shape`, whose elements are `bytes`.
    ///
    /// # Errors
    /// Fails if the number of bytes differs from that of the shape.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self, CommError> {
        check(dtype, shape, bytes.len())?;
        let shape = Shape::Dimensions(shape);
        Ok(Self {
            dtype,
            shape,
            bytes,
        })
    }
}

impl<'a> BufferMut<'a> {
    /// A buffer of `shape`, whose elements are `bytes`.
    ///
    /// # Errors
    /// Fails if the number of bytes differs from that of the shape.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a mut [u8]) -> Result<Self, CommError> {
        check(dtype, shape, bytes.len())?;
        let shape = Shape::Dimensions(shape);
        Ok(Self {
            dtype,
            shape,
            bytes,
        })
    }
}

impl<'a, T: Element> From<&'a [T]> for Buffer<'a> {
    fn from(elements: &'a [T]) -> Self {
        Self {
            dtype: T::DTYPE,
            shape: Shape::Flat(elements.len()),
            bytes: bytemuck::cast_slice(elements),
        }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for BufferMut<'a> {
    fn from(elements: &'a mut [T]) -> Self {
        Self {
            dtype: T::DTYPE,
            shape: Shape::Flat(elements.len()),
            bytes: bytemuck::cast_slice_mut(elements),
        }
    }
}

fn check(dtype: DType, shape: &[usize], bytes: usize) -> Result<(), CommError> {
    let expected = shape
        .iter()
        .try_fold(dtype.size(), |product, &d| product.checked_mul(d));
    if expected == Some(bytes) {
        return Ok(());
    }
    Err(CommError::Invalid(format!(
        "{dtype} {shape:?} does not have {bytes} bytes; give the buffer's own shape"
    )))
}
