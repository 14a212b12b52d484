//! Indices along one dimension, and flat indices of all elements.

use rustorch_ir::ops::ScatterMode;
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::promote::Operand;
use crate::api::promote::{AsValue, Number};
use crate::args::dims::{Integer, OptionalDim};
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// A copy with `alpha · source[i]` added at `index[i]` of `dim`, for each `i`. `index` is `i64`
    /// or `i32`, `[n]` or of rank 0. `source` has this dtype, and this shape except for `n` indices
    /// of `dim`.
    ///
    /// # Errors
    /// Fails for unsupported operands. Evaluation fails for an index outside `dim`.
    pub fn index_add(
        &self,
        dim: impl Integer,
        index: &Self,
        source: &Self,
        alpha: impl Number,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "index_add";
        let scaled = match alpha.to_number() {
            one if one.as_f64() == 1.0 && one.imag() == 0.0 => source.clone(),
            alpha => source.mul(&Operand::Scalar(alpha).as_element(NAME, source.dtype())?)?,
        };
        self.indexed(NAME, dim.to_isize(), index, &scaled, ScatterMode::Add)
    }

    /// A copy with `source[i]` at `index[i]` of `dim`, for each `i`. Operands are as for
    /// [`Tensor::index_add`]; the last of several writes to one index counts.
    ///
    /// # Errors
    /// The same errors as [`Tensor::index_add`].
    pub fn index_copy(
        &self,
        dim: impl Integer,
        index: &Self,
        source: &Self,
    ) -> RusTorchResult<Self> {
        self.indexed(
            "index_copy",
            dim.to_isize(),
            index,
            source,
            ScatterMode::Set,
        )
    }

    /// A copy with one value at the indices of `dim` in `index`; negative ones count from the end.
    /// The value is a number or a tensor of rank 0.
    ///
    /// # Errors
    /// Fails for an index that is not `i64` or `i32`, or has more than one dimension. Also fails
    /// for a value with dimensions. Evaluation fails for an index outside `dim`.
    pub fn index_fill(
        &self,
        dim: impl Integer,
        index: &Self,
        value: impl AsValue,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "index_fill";
        let value = value.as_value()?.as_element(NAME, self.dtype())?;
        require(NAME, value.rank() == 0, "a value of rank 0", value.ty())?;
        let dim = self.wrap_dim(NAME, dim)?;
        let mut shape = self.atleast_1d()?.ty().shape.clone();
        shape.to_mut()[dim] = index.numel();
        let index = index.wrapped(NAME, self.shape().get(dim).copied().unwrap_or(1))?;
        self.indexed(
            NAME,
            dim as isize,
            &index,
            &value.expand(&shape)?,
            ScatterMode::Set,
        )
    }

    fn indexed(
        &self,
        name: &'static str,
        dim: isize,
        index: &Self,
        source: &Self,
        mode: ScatterMode,
    ) -> RusTorchResult<Self> {
        let dim = self.wrap_dim(name, dim)?;
        require(
            name,
            index.rank() <= 1,
            "an index of rank 0 or 1",
            index.ty(),
        )?;
        let (x, source) = (self.atleast_1d()?, source.atleast_1d()?);
        let wanted = x.ty().shape.clone().with_dim(dim, index.numel());
        let expected = format_args!("a source {}{wanted}", self.dtype());
        let fits = *source.shape() == *wanted && source.dtype() == self.dtype();
        require(name, fits, expected, source.ty())?;
        let index = index.spread_along(dim, &wanted)?;
        x.placed(name, dim, mode, &index, &source)?
            .reshape(self.shape())
    }

    /// The elements at flat indices in row-major order, in the shape of the index; negative ones
    /// count from the end.
    ///
    /// # Errors
    /// Fails for an index that is not `i64` or `i32`. Evaluation fails for an index out of range.
    pub fn take(&self, index: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "take";
        let places = index.wrapped(NAME, self.numel())?.ravel()?;
        self.ravel()?
            .picked(NAME, 0, &places)?
            .reshape(index.shape())
    }

    /// A copy with the elements of `source` at flat indices in row-major order, or added there
    /// (`accumulate`). `source` has this dtype and as many elements as the index; negative ones
    /// count from the end. If an index occurs several times, the last element counts.
    ///
    /// # Errors
    /// Fails for unsupported operands. Evaluation fails for an index out of range.
    pub fn put(&self, index: &Self, source: &Self, accumulate: bool) -> RusTorchResult<Self> {
        const NAME: &str = "put";
        let fits = source.dtype() == self.dtype() && source.numel() == index.numel();
        let expected = format_args!("{} elements of {}", index.numel(), self.dtype());
        require(NAME, fits, expected, source.ty())?;
        let is_there = self.numel() > 0 || index.numel() == 0;
        let expected = "a tensor with elements, or no index";
        require(NAME, is_there, expected, self.ty())?;
        let mode = match accumulate {
            true => ScatterMode::Add,
            false => ScatterMode::Set,
        };
        let (x, source) = (self.ravel()?, source.ravel()?);
        let places = index.wrapped(NAME, self.numel())?.ravel()?;
        x.placed(NAME, 0, mode, &places, &source)?
            .reshape(self.shape())
    }

    /// [`Tensor::gather`] whose operands broadcast except in `dim`, for results of `argmax` or
    /// `argsort`. Without a dimension (`None`), indices count all elements in row-major order.
    /// Negative indices count from the end.
    ///
    /// # Errors
    /// Fails for an index that is not `i64` or `i32`, unsupported ranks, or shapes that do not
    /// broadcast. Evaluation fails for an index outside `dim`.
    pub fn take_along_dim(&self, index: &Self, dim: impl OptionalDim) -> RusTorchResult<Self> {
        const NAME: &str = "take_along_dim";
        let Some(dim) = dim.to_dim() else {
            return self.ravel()?.take_along_dim(&index.ravel()?, 0);
        };
        let dim = self.dim(NAME, dim)?;
        let got = format_args!("{} and {}", self.ty(), index.ty());
        require(
            NAME,
            self.rank() == index.rank(),
            "operands of one rank",
            got,
        )?;
        let shape = |t: &Self, n| t.ty().shape.clone().with_dim(dim, n);
        let common = rustorch_ir::broadcast_shapes(NAME, &shape(self, 1), &shape(index, 1))
            .map_err(|e| OpError {
                got: got.to_string(),
                ..e
            })?;
        let whole = |t: &Self| t.expand(&common.clone().with_dim(dim, t.shape()[dim]));
        let wrapped = index.wrapped(NAME, self.shape()[dim])?;
        whole(self)?.gathered(NAME, dim, &whole(&wrapped)?)
    }

    /// One-hot vectors, `i64`, along a new last dimension of size `classes`: 1 at the index that the element gives,
    /// else 0. Without a number of classes (`None`), it follows from the largest element, which is computed at once.
    ///
    /// # Errors
    /// Fails for a dtype other than `i64` and `i32`, or for an empty tensor without a number of
    /// classes. Evaluation fails for an element that is not a class.
    pub fn one_hot(&self, classes: impl Into<Option<usize>>) -> RusTorchResult<Self> {
        const NAME: &str = "one_hot";
        let legal = matches!(self.dtype(), DType::I64 | DType::I32);
        require(NAME, legal, "classes of i64 or i32", self.ty())?;
        let classes = match classes.into() {
            Some(classes) => classes,
            None => {
                require(
                    NAME,
                    self.numel() > 0,
                    "elements, or a number of classes",
                    self.ty(),
                )?;
                let most = self
                    .cast(NAME, DType::I64)?
                    .max(None, false)?
                    .to_scalar::<i64>()?;
                let count = usize::try_from(most)
                    .ok()
                    .and_then(|most| most.checked_add(1));
                let negative = || OpError::new(NAME, "classes that are not negative", most);
                count.ok_or_else(negative)?
            }
        };
        let zeros = Self::zeros([self.shape(), &[classes]].concat(), DType::I64)?;
        let index = self.unsqueeze(-1)?;
        zeros.scattered(
            NAME,
            -1,
            &index,
            Operand::Scalar(1.into()),
            ScatterMode::Set,
        )
    }
}
