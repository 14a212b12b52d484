//! Elements chosen or placed by index.

use rustorch_ir::ops::{Gather, IndexSelect, Scatter, ScatterMode};

use crate::Tensor;
use crate::error::RusTorchResult;

impl Tensor {
    /// `out[i][j][k] = self[i][index[i][j][k]][k]` for `dim` 1. `index` is `i64` or `i32` of
    /// `self`'s rank, nowhere larger than `self` except in `dim`; the result has its shape.
    ///
    /// # Errors
    /// An index tensor other than this; when computed, an index outside `dim`.
    pub fn gather(&self, dim: isize, index: &Self) -> RusTorchResult<Self> {
        let dim = self.dim("gather", dim)?;
        Self::apply("gather", Gather { dim }, &[self, index])
    }

    /// A copy in which `out[i][index[i][j][k]][k] = source[i][j][k]` for `dim` 1; of several
    /// writes to one place the last counts. `index` as for [`Tensor::gather`]; `source` has
    /// its shape and `self`'s dtype.
    ///
    /// # Errors
    /// Operands other than these; when computed, an index outside `dim`.
    pub fn scatter(&self, dim: isize, index: &Self, source: &Self) -> RusTorchResult<Self> {
        self.scattered("scatter", dim, index, source, ScatterMode::Set)
    }

    /// [`Tensor::scatter`] that adds to what is there.
    ///
    /// # Errors
    /// As [`Tensor::scatter`]; booleans.
    pub fn scatter_add(&self, dim: isize, index: &Self, source: &Self) -> RusTorchResult<Self> {
        self.scattered("scatter_add", dim, index, source, ScatterMode::Add)
    }

    fn scattered(
        &self,
        name: &'static str,
        dim: isize,
        index: &Self,
        source: &Self,
        mode: ScatterMode,
    ) -> RusTorchResult<Self> {
        let dim = self.dim(name, dim)?;
        Self::apply(name, Scatter { dim, mode }, &[self, index, source])
    }

    /// The indices of `dim` that `index`, `i64` or `i32` `[n]`, lists.
    ///
    /// # Errors
    /// An index tensor other than this; when computed, an index outside `dim`.
    pub fn index_select(&self, dim: isize, index: &Self) -> RusTorchResult<Self> {
        let dim = self.dim("index_select", dim)?;
        Self::apply("index_select", IndexSelect { dim }, &[self, index])
    }
}
