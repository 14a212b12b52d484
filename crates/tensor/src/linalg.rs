//! Products of vectors and matrices.

use rustorch_ir::ops::Matmul;

use crate::Tensor;
use crate::error::{RusTorchResult, require};

impl Tensor {
    /// The matrix product, as `torch.matmul`: of `[…, m, k]` and `[…, k, n]` it is
    /// `[…, m, n]`, with leading dimensions broadcast. A vector on the left counts as a row,
    /// on the right as a column, and leaves no dimension in the result.
    ///
    /// Numbers of one dtype.
    ///
    /// # Errors
    /// Rank 0; inner sizes that differ; leading ones that do not broadcast; different dtypes.
    pub fn matmul(&self, other: &Self) -> RusTorchResult<Self> {
        self.product("matmul", other)
    }

    fn product(&self, name: &'static str, other: &Self) -> RusTorchResult<Self> {
        let ranks = (self.rank(), other.rank());
        let got = format!("{} and {}", self.ty(), other.ty());
        let expected = "operands of rank 1 or more";
        require(name, ranks.0 > 0 && ranks.1 > 0, expected, got)?;
        let row = match ranks.0 {
            1 => self.unsqueeze(0)?,
            _ => self.clone(),
        };
        let column = match ranks.1 {
            1 => other.unsqueeze(1)?,
            _ => other.clone(),
        };
        let product = Self::apply(name, Matmul, &[&row, &column])?;
        match ranks {
            (1, 1) => product.reshape([0usize; 0]),
            (1, _) => product.squeeze(-2),
            (_, 1) => product.squeeze(-1),
            _ => Ok(product),
        }
    }

    fn product_of_ranks(
        &self,
        name: &'static str,
        other: &Self,
        ranks: (usize, usize),
    ) -> RusTorchResult<Self> {
        let fits = (self.rank(), other.rank()) == ranks;
        let expected = format!("operands of rank {} and {}", ranks.0, ranks.1);
        let got = format!("{} and {}", self.ty(), other.ty());
        require(name, fits, expected, got)?;
        self.product(name, other)
    }

    /// The product of two matrices `[m, k]` and `[k, n]` of one dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn mm(&self, other: &Self) -> RusTorchResult<Self> {
        self.product_of_ranks("mm", other, (2, 2))
    }

    /// The products of two batches of matrices `[b, m, k]` and `[b, k, n]` of one dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn bmm(&self, other: &Self) -> RusTorchResult<Self> {
        let got = format!("{} and {}", self.ty(), other.ty());
        let same = self.shape().first() == other.shape().first();
        require("bmm", same, "batches of one size", got)?;
        self.product_of_ranks("bmm", other, (3, 3))
    }

    /// The product of a matrix `[m, k]` and a vector `[k]` of one dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn mv(&self, vector: &Self) -> RusTorchResult<Self> {
        self.product_of_ranks("mv", vector, (2, 1))
    }

    /// The product of two vectors `[k]` of one dtype: a tensor of rank 0.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn dot(&self, other: &Self) -> RusTorchResult<Self> {
        self.product_of_ranks("dot", other, (1, 1))
    }
}
