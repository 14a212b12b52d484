//! Tensors with given strides, and tensors that change their size.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::{IntoDims, IntoShape};
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// The strides: distances in memory between neighbours along each dimension, in elements. They are known before the
    /// elements are computed.
    pub fn stride(&self) -> Vec<usize> {
        self.value().layout().strides.iter().copied().collect()
    }

    /// The offset of the first element in its memory, in elements. It is known before the elements are computed.
    pub fn storage_offset(&self) -> usize {
        self.value().layout().offset
    }

    /// A tensor of these sizes and strides, in elements, to be overwritten: zeros, since memory is
    /// never uninitialised here.
    ///
    /// # Errors
    /// Fails unless each size has a stride, or for a shape too large for memory. Also fails for a
    /// block format.
    pub fn empty_strided(
        shape: impl IntoShape,
        strides: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        Self::strided(
            "empty_strided",
            &shape.into_shape()[..],
            &strides.into_shape()[..],
            dtype,
        )
    }

    /// [`Tensor::empty_strided`] in this tensor's dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::empty_strided`].
    pub fn new_empty_strided(
        &self,
        shape: impl IntoShape,
        strides: impl IntoShape,
    ) -> RusTorchResult<Self> {
        let (shape, strides) = (&shape.into_shape()[..], &strides.into_shape()[..]);
        Self::strided("new_empty_strided", shape, strides, self.dtype())
    }

    fn strided(
        name: &'static str,
        shape: &[usize],
        strides: &[usize],
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let got = format_args!("{shape:?} and {strides:?}");
        let is_one_each = shape.len() == strides.len();
        require(name, is_one_each, "a stride for each size", got)?;
        let reach = |(n, s): (&usize, &usize)| n.saturating_sub(1).checked_mul(*s);
        let mut reaches = shape.iter().zip(strides).map(reach);
        let elements = match shape.contains(&0) {
            true => Some(0),
            false => reaches.try_fold(1, |n: usize, reach| n.checked_add(reach?)),
        };
        let expected = "strides that fit the address space";
        require(name, elements.is_some(), expected, got)?;
        let memory = Self::empty([elements.unwrap_or(0)], dtype)?;
        // Views of what is in memory have their strides from now on.
        memory.eval()?;
        memory.as_strided(shape, strides, 0)
    }

    /// [`Tensor::empty`] with dense memory whose dimensions are in the order of `layout`, the
    /// slowest first.
    ///
    /// # Errors
    /// The same errors as [`Tensor::empty`]. Also fails for a layout that does not list each
    /// dimension once.
    pub fn empty_permuted(
        shape: impl IntoShape,
        layout: impl IntoDims,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "empty_permuted";
        let (shape, layout) = (shape.into_shape(), layout.into_dims());
        let layout = layout.given();
        let expected = format_args!("each of {} dimensions once", shape.len());
        let is_one_each = shape.len() == layout.len();
        require(NAME, is_one_each, expected, format_args!("{layout:?}"))?;
        let mut back = vec![None; shape.len()];
        let mut sizes = Vec::with_capacity(shape.len());
        for (at, &dim) in layout.iter().enumerate() {
            let dim = rustorch_ir::normalize_dim(NAME, dim, shape.len())?;
            sizes.push(shape[dim]);
            let before = back[dim].replace(at as isize);
            require(NAME, before.is_none(), expected, format_args!("{layout:?}"))?;
        }
        let back: Vec<isize> = back.into_iter().flatten().collect();
        let memory = Self::empty(sizes, dtype)?;
        memory.eval()?;
        memory.permute(back)
    }

    /// Changes this handle's shape. It keeps the first elements in row-major order, and fills up
    /// with zeros. Other handles do not change.
    ///
    /// # Errors
    /// Fails for a shape too large for memory, or a block format.
    pub fn resize_(&mut self, shape: impl IntoShape) -> RusTorchResult<&mut Self> {
        const NAME: &str = "resize_";
        let shape = &shape.into_shape()[..];
        let expected = "a tensor of scalars (cast block formats first)";
        require(NAME, !self.dtype().is_block(), expected, self.ty())?;
        let wanted = Self::empty(shape, self.dtype())?.numel();
        let (line, has) = (self.ravel()?, self.numel());
        let line = match wanted > has {
            true => line.surrounded(NAME, &[(0, wanted - has)], 0)?,
            false => line.narrow(0, 0, wanted)?,
        };
        *self = line.reshape(shape)?;
        Ok(self)
    }

    /// Resizes this tensor to another one's shape by [`Tensor::resize_`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::resize_`].
    pub fn resize_as_(&mut self, other: &Self) -> RusTorchResult<&mut Self> {
        self.resize_(other.shape())
    }
}
