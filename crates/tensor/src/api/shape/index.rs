//! Elements selected or written by index.
//!
//! An index outside its dimension is an error of evaluation. Each function says whether negative
//! indices count from the end, as in PyTorch.

mod along;
mod chosen;
mod list;
mod masks;
mod places;

use rustorch_ir::ops::{Gather, IndexSelect, Scatter, ScatterMode};
use rustorch_ir::{DType, Shape};
use rustorch_macros::track_calls;

pub use list::{Ellipsis, Index, Indices, NewAxis};

use crate::Tensor;
use crate::api::promote::AsOperand;
use crate::api::promote::Operand;
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// `out[i][j][k] = self[i][index[i][j][k]][k]` for `dim` 1. `index` is `i64` or `i32`, has
    /// `self`'s rank, and is at most as large as `self` except in `dim`. The result has its shape.
    ///
    /// # Errors
    /// Fails for an unsupported index tensor. Evaluation fails for an index outside `dim`.
    pub fn gather(&self, dim: impl Integer, index: &Self) -> RusTorchResult<Self> {
        self.gathered("gather", self.wrap_dim("gather", dim)?, index)
    }

    /// A copy in which `out[i][index[i][j][k]][k] = source[i][j][k]` for `dim` 1; the last of
    /// several writes to one element counts. `index` is as for [`Tensor::gather`]. `source` is a
    /// number, or has `self`'s dtype and is at least as large as `index`.
    ///
    /// # Errors
    /// Fails for unsupported operands. Evaluation fails for an index outside `dim`.
    pub fn scatter(
        &self,
        dim: impl Integer,
        index: &Self,
        source: impl AsOperand,
    ) -> RusTorchResult<Self> {
        self.scattered(
            "scatter",
            dim.to_isize(),
            index,
            source.as_operand()?,
            ScatterMode::Set,
        )
    }

    /// [`Tensor::scatter`] that adds to the existing elements.
    ///
    /// # Errors
    /// The same errors as [`Tensor::scatter`]. Also fails for booleans.
    pub fn scatter_add(
        &self,
        dim: impl Integer,
        index: &Self,
        source: impl AsOperand,
    ) -> RusTorchResult<Self> {
        self.scattered(
            "scatter_add",
            dim.to_isize(),
            index,
            source.as_operand()?,
            ScatterMode::Add,
        )
    }

    fn scattered(
        &self,
        name: &'static str,
        dim: isize,
        index: &Self,
        source: Operand,
        mode: ScatterMode,
    ) -> RusTorchResult<Self> {
        let dim = self.wrap_dim(name, dim)?;
        let source = match source {
            Operand::Tensor(source) => source.front_of(name, index)?,
            Operand::Scalar(_) => source
                .as_element(name, self.dtype())?
                .expand(index.shape())?,
        };
        if self.rank() == 0 && index.rank() == 0 {
            let [x, index, source] = [self, index, &source].map(Self::atleast_1d);
            return x?
                .placed(name, dim, mode, &index?, &source?)?
                .reshape(self.shape());
        }
        self.placed(name, dim, mode, index, &source)
    }

    /// [`Scatter`], in which booleans are added by or, and an index of nothing has any dtype.
    pub(crate) fn placed(
        &self,
        name: &'static str,
        dim: usize,
        mode: ScatterMode,
        index: &Self,
        source: &Self,
    ) -> RusTorchResult<Self> {
        let index = index.none_of_i64(name)?;
        self.require_places(name, dim, &index)?;
        let op = Scatter { dim, mode };
        if mode == ScatterMode::Add && self.dtype() == DType::Bool {
            let mode = ScatterMode::Max;
            return Self::apply(name, Scatter { dim, mode }, &[self, &index, source]);
        }
        Self::apply(name, op, &[self, &index, source])
    }

    /// An index; one of nothing as `i64`, whatever dtype it has.
    fn none_of_i64(&self, name: &'static str) -> RusTorchResult<Self> {
        match self.numel() {
            0 => self.cast(name, DType::I64),
            _ => Ok(self.clone()),
        }
    }

    /// A part of it as large as `index`, from the start of each dimension.
    fn front_of(&self, name: &'static str, index: &Self) -> RusTorchResult<Self> {
        let (own, wanted) = (self.shape(), index.shape());
        let fits = own.len() == wanted.len() && own.iter().zip(wanted).all(|(a, b)| a >= b);
        let expected = format_args!("a source no smaller than the index {}", index.ty());
        require(name, fits, expected, self.ty())?;
        let cut = wanted
            .iter()
            .enumerate()
            .filter(|&(dim, &size)| own[dim] != size);
        cut.into_iter().try_fold(self.clone(), |x, (dim, &size)| {
            x.narrow(dim as isize, 0, size)
        })
    }

    /// [`Tensor::gather`] along a dimension that has been checked.
    fn gathered(&self, name: &'static str, dim: usize, index: &Self) -> RusTorchResult<Self> {
        let index = &index.none_of_i64(name)?;
        self.require_places(name, dim, index)?;
        // Nothing is asked for, whatever the rank.
        if index.numel() == 0 && index.rank() != self.rank() {
            return Self::zeros(index.shape(), self.dtype());
        }
        if self.rank() > 0 || index.rank() > 1 {
            return Self::apply(name, Gather { dim }, &[self, index]);
        }
        let (x, line) = (self.atleast_1d()?, index.atleast_1d()?);
        Self::apply(name, Gather { dim }, &[&x, &line])?.reshape(index.shape())
    }

    /// Selects the indices of `dim` that `index` lists, an `i64` or `i32` tensor `[n]` or of
    /// rank 0. A tensor of rank 0 counts as a vector of one element.
    ///
    /// # Errors
    /// Fails for an unsupported index tensor. Evaluation fails for an index outside `dim`.
    pub fn index_select(&self, dim: impl Integer, index: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "index_select";
        let dim = self.wrap_dim(NAME, dim)?;
        let index = index.atleast_1d()?;
        if self.rank() > 0 {
            return self.picked(NAME, dim, &index);
        }
        require(
            NAME,
            index.numel() == 1,
            "one index of a number",
            index.ty(),
        )?;
        self.atleast_1d()?
            .picked(NAME, dim, &index)?
            .reshape(self.shape())
    }

    /// [`Tensor::index_select`] of a vector, along a dimension that has been checked.
    pub(crate) fn picked(
        &self,
        name: &'static str,
        dim: usize,
        index: &Self,
    ) -> RusTorchResult<Self> {
        self.require_places(name, dim, index)?;
        Self::apply(name, IndexSelect { dim }, &[self, index])
    }

    /// Fails if there is nothing along `dim` that an index could name.
    pub(crate) fn require_places(
        &self,
        name: &'static str,
        dim: usize,
        index: &Self,
    ) -> RusTorchResult<()> {
        let any = self.shape().get(dim) != Some(&0) || index.numel() == 0;
        let expected = format_args!("no index, as dim {dim} of {} has no element", self.ty());
        require(name, any, expected, index.ty())
    }

    /// An index, `i64` or `i32`, in which negative numbers count from the end of `size`.
    fn wrapped(&self, name: &'static str, size: usize) -> RusTorchResult<Self> {
        let legal = matches!(self.dtype(), DType::I64 | DType::I32);
        require(name, legal, "an index of i64 or i32", self.ty())?;
        // Wide enough for what is outside to stay outside.
        let index = self.cast(name, DType::I64)?;
        Self::where_(&index.lt(0)?, &index.add(size as i64)?, &index)
    }

    /// A vector of indices of `dim`, spread over the other dimensions of `shape`.
    fn spread_along(&self, dim: usize, shape: &[usize]) -> RusTorchResult<Self> {
        let line = Shape::from(vec![1; shape.len()]).with_dim(dim, self.numel());
        self.reshape(&line)?.expand(shape)
    }
}
