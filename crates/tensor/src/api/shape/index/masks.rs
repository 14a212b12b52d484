//! Elements selected by masks, and indices of nonzero elements.

use rustorch_ir::ops::Where;
use rustorch_ir::{DType, broadcast_shapes};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::IntoShape;
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// Places in row-major order, counted through the whole tensor, of elements that are not 0:
    /// read there and then.
    pub(crate) fn set_places(&self, name: &'static str) -> RusTorchResult<Vec<i64>> {
        let is_set = self.cast(name, DType::Bool)?.to_vec::<bool>()?;
        let places = is_set.iter().enumerate().filter(|&(_, &set)| set);
        Ok(places.map(|(place, _)| place as i64).collect())
    }

    /// The indices of all nonzero elements, `i64` `[n, rank]`, in row-major order. The shape
    /// depends on the elements, so they are computed at once and read by the host.
    ///
    /// # Errors
    /// Fails for a block format, or if evaluation fails.
    pub fn nonzero(&self) -> RusTorchResult<Self> {
        self.set_indices("nonzero")
    }

    /// NumPy's name of [`Tensor::nonzero`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::nonzero`].
    pub fn argwhere(&self) -> RusTorchResult<Self> {
        self.set_indices("argwhere")
    }

    fn set_indices(&self, name: &'static str) -> RusTorchResult<Self> {
        let places = self.set_places(name)?;
        let mut indices = vec![0; places.len() * self.rank()];
        for (row, &place) in indices.chunks_exact_mut(self.rank().max(1)).zip(&places) {
            let mut rest = place;
            for (index, &size) in row.iter_mut().zip(self.shape()).rev() {
                *index = rest % size as i64;
                rest /= size as i64;
            }
        }
        Self::from_vec(indices, [places.len(), self.rank()])
    }

    /// The first `size` rows of [`Tensor::nonzero`]; missing rows are `fill`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::nonzero`].
    pub fn nonzero_static(&self, size: usize, fill: i64) -> RusTorchResult<Self> {
        const NAME: &str = "nonzero_static";
        let indices = self.set_indices(NAME)?;
        let kept = indices.narrow(0, 0, size.min(indices.shape()[0]))?;
        let rest = Self::full([size - kept.shape()[0], self.rank()], fill, DType::I64)?;
        Self::cat(&[&kept, &rest], 0)
    }

    /// Indices of a tensor of `shape`, one `i64` tensor for each dimension, from flat indices in row-major order. The
    /// flat indices are integers of any shape. They are not checked: an index beyond the end gives a first index that
    /// is too large.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape without elements.
    pub fn unravel_index(&self, shape: impl IntoShape) -> RusTorchResult<Vec<Self>> {
        const NAME: &str = "unravel_index";
        let shape = &shape.into_shape()[..];
        require(
            NAME,
            self.dtype().is_int(),
            "places that are integers",
            self.ty(),
        )?;
        let some = !shape.contains(&0);
        require(
            NAME,
            some,
            "a shape with elements",
            format_args!("{shape:?}"),
        )?;
        let mut rest = self.cast(NAME, DType::I64)?;
        let mut indices = Vec::with_capacity(shape.len());
        for (dim, &size) in shape.iter().enumerate().rev() {
            indices.push(match dim {
                0 => rest.clone(),
                _ => rest.remainder(size as i64)?,
            });
            rest = rest.floor_divide(size as i64)?;
        }
        indices.reverse();
        Ok(indices)
    }

    /// [`Tensor::nonzero`] as one vector for each dimension: PyTorch's `as_tuple`. A tensor of rank
    /// 0 counts as `[1]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::nonzero`].
    pub fn nonzero_tuple(&self) -> RusTorchResult<Vec<Self>> {
        let columns = self
            .atleast_1d()?
            .set_indices("nonzero_tuple")?
            .t()?
            .contiguous()?;
        columns.unbind(0)
    }

    /// A vector of the elements for which `mask`, a `bool` tensor, is true; both broadcast. The
    /// mask is computed at once.
    ///
    /// # Errors
    /// Fails for an unsupported mask, for shapes that do not broadcast, or if evaluation fails.
    pub fn masked_select(&self, mask: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "masked_select";
        require(NAME, mask.dtype() == DType::Bool, "a bool mask", mask.ty())?;
        let shape = broadcast_shapes(NAME, self.shape(), mask.shape())?;
        let places = mask.expand(&shape)?.set_places(NAME)?;
        let count = places.len();
        let places = Self::from_vec(places, [count])?;
        self.expand(&shape)?.ravel()?.picked(NAME, 0, &places)
    }

    /// A copy with the elements of `source`, one after the other, where `mask`, a `bool` tensor, is true.
    /// `source` has this dtype; both broadcast. If the source is smaller than this tensor, the mask is
    /// computed at once to compare their sizes.
    ///
    /// # Errors
    /// Fails for an unsupported mask or source. Also fails if the source has fewer elements than
    /// the mask has true ones.
    pub fn masked_scatter(&self, mask: &Self, source: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "masked_scatter";
        require(NAME, mask.dtype() == DType::Bool, "a bool mask", mask.ty())?;
        let expected = format_args!("a source of {}", self.dtype());
        require(NAME, source.dtype() == self.dtype(), expected, source.ty())?;
        let shape = broadcast_shapes(NAME, self.shape(), mask.shape())?;
        let (x, mask) = (self.expand(&shape)?, mask.expand(&shape)?);
        if source.numel() < x.numel() {
            let count = mask.set_places(NAME)?.len();
            let expected = format_args!("a source of at least {count} elements");
            require(NAME, count <= source.numel(), expected, source.ty())?;
        }
        if source.numel() == 0 {
            return Ok(x);
        }
        // How many are true before: the place in the source.
        let before = mask.ravel()?.cumsum(0)?.sub(1)?.maximum(0)?;
        let placed =
            source
                .ravel()?
                .picked(NAME, 0, &before.minimum(source.numel() as i64 - 1)?)?;
        Self::apply(NAME, Where, &[&mask, &placed.reshape(&shape)?, &x])
    }
}
