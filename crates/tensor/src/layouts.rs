//! Tensors of given strides, and of other sizes than they had.

use rustorch_ir::{DType, Layout};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::dims::{IntoDims, IntoShape};
use crate::error::{RusTorchResult, require};
use crate::value::State;

#[track_calls]
impl Tensor {
    /// How many elements of memory lie between neighbours along each dimension. What is not computed
    /// yet will be dense.
    pub fn stride(&self) -> Vec<usize> {
        self.layout().strides.iter().copied().collect()
    }

    /// Which element of its memory the first one is. What is not computed yet will begin it.
    pub fn storage_offset(&self) -> usize {
        self.layout().offset
    }

    fn layout(&self) -> Layout {
        match self.state() {
            State::Ready(view) => view.layout.clone(),
            State::Pending(_) | State::Scalar(_) | State::Placeholder | State::Failed(_) => {
                Layout::contiguous(&self.ty().shape)
            }
        }
    }

    /// A tensor of these sizes and strides, in elements, for others to write: zeros, as there are no
    /// undefined ones here.
    ///
    /// # Errors
    /// A stride for each size is missing; a shape that no memory could hold; a block format.
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
    /// As [`Tensor::empty_strided`].
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

    /// [`Tensor::empty`] whose memory is dense, with the dimensions in the order of `layout`, the
    /// slowest first.
    ///
    /// # Errors
    /// As [`Tensor::empty`]; a layout that does not list each dimension once.
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

    /// Makes this handle one on its elements in another shape, in row-major order: the first of them
    /// as far as the shape reaches, then zeros. Other handles stay as they are.
    ///
    /// # Errors
    /// A shape that no memory could hold; a block format.
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

    /// [`Tensor::resize_`] to another tensor's shape.
    ///
    /// # Errors
    /// As [`Tensor::resize_`].
    pub fn resize_as_(&mut self, other: &Self) -> RusTorchResult<&mut Self> {
        self.resize_(other.shape())
    }
}
