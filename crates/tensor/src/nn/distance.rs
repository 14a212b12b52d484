//! Distances between vectors.

use rustorch_ir::{DType, broadcast_shapes};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::dims::Integer;
use crate::error::{RusTorchResult, require};

/// How [`Tensor::cdist`] computes Euclidean distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CdistMode {
    /// By a product of matrices where one side has more than 25 vectors.
    #[default]
    UseMmForEuclidDistIfNecessary,
    /// By a product of matrices.
    UseMmForEuclidDist,
    /// From the differences.
    DontUseMmForEuclidDist,
}

#[track_calls]
impl Tensor {
    /// `x · y / (max(‖x‖, eps) max(‖y‖, eps))` along `dim`; the tensors broadcast and promote.
    /// Floats.
    ///
    /// # Errors
    /// Shapes that do not broadcast; no such dimension; another dtype; a negative `eps`.
    pub fn cosine_similarity(
        &self,
        other: &Self,
        dim: impl Integer,
        eps: f64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "cosine_similarity";
        require(NAME, eps >= 0.0, "an eps from 0 on", eps)?;
        let sum = self.mul(other)?;
        sum.require_float(NAME)?;
        let wide = sum.widened(NAME)?.dtype();
        let shape = broadcast_shapes(NAME, self.shape(), other.shape())?;
        let unit = |x: &Self| {
            let x = x.cast(NAME, wide)?.expand(&shape)?;
            let length = x.norm(2.0, dim, true)?;
            // Like PyTorch, whose gradient takes no notice of the bound.
            x.div(length.maximum(eps)?.with_gradient_of(&length))
        };
        let product = unit(self)?.mul(&unit(other)?)?;
        product.sum(dim, false)?.cast(NAME, sum.dtype())
    }

    /// `‖x - y + eps‖` by the `p`-norm of the last dimension; the tensors broadcast and promote.
    ///
    /// # Errors
    /// Shapes that do not broadcast; rank 0.
    pub fn pairwise_distance(
        &self,
        other: &Self,
        p: f64,
        eps: f64,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        self.sub(other)?.add(eps)?.norm(p, -1, keepdim)
    }

    /// The `p`-norms of the differences of each two rows of `self` `[n, d]`, the first one's with all
    /// behind it first: `[n (n - 1) / 2]`. Floats.
    ///
    /// # Errors
    /// Another shape or dtype; negative `p`.
    pub fn pdist(&self, p: f64) -> RusTorchResult<Self> {
        const NAME: &str = "pdist";
        self.require_float(NAME)?;
        require(NAME, self.rank() == 2, "a tensor [n, d]", self.ty())?;
        require(NAME, p >= 0.0, "p >= 0", p)?;
        let n = self.shape()[0] as i64;
        let pairs = || (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
        let listed = |index: Vec<i64>| {
            let count = index.len();
            self.index_select(0, &Self::from_vec(index, [count])?)
        };
        let firsts = listed(pairs().map(|(i, _)| i).collect())?;
        let seconds = listed(pairs().map(|(_, j)| j).collect())?;
        firsts.distance(NAME, &seconds, p)
    }

    /// The `p`-norms of the differences of each row of `self` `[…, n, d]` and each of `other`
    /// `[…, m, d]`: `[…, n, m]`. Leading dimensions broadcast. Floats of one dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these; negative `p`.
    pub fn cdist(&self, other: &Self, p: f64, mode: CdistMode) -> RusTorchResult<Self> {
        const NAME: &str = "cdist";
        self.require_float(NAME)?;
        let got = format_args!("{} and {}", self.ty(), other.ty());
        let fits = self.rank() >= 2
            && other.rank() >= 2
            && self.shape().last() == other.shape().last()
            && self.dtype() == other.dtype();
        require(
            NAME,
            fits,
            "x [.., n, d] and y [.., m, d] of one dtype",
            got,
        )?;
        require(NAME, p >= 0.0, "p >= 0", p)?;
        const MANY: usize = 25;
        let many = |x: &Self| x.shape()[x.rank() - 2] > MANY;
        let by_product = match mode {
            CdistMode::UseMmForEuclidDist => true,
            CdistMode::DontUseMmForEuclidDist => false,
            CdistMode::UseMmForEuclidDistIfNecessary => many(self) || many(other),
        };
        if p == 2.0 && by_product {
            return self.euclidean(NAME, other);
        }
        self.unsqueeze(-2)?.distance(NAME, &other.unsqueeze(-3)?, p)
    }

    /// `√(‖x‖² - 2 x · y + ‖y‖²)`.
    fn euclidean(&self, name: &'static str, other: &Self) -> RusTorchResult<Self> {
        let (x, y) = (self.widened(name)?, other.widened(name)?);
        let squares = |x: &Self| x.square()?.sum(-1, true);
        let lengths = squares(&x)?.add(&squares(&y)?.transpose(-2, -1)?)?;
        let product = x.matmul(&y.transpose(-2, -1)?)?.mul(2.0)?;
        let distance = lengths.sub(&product)?.clamp_min(0.0)?.root()?;
        distance.cast(name, self.dtype())
    }

    /// The `p`-norm of the difference along the last dimension.
    fn distance(&self, name: &'static str, other: &Self, p: f64) -> RusTorchResult<Self> {
        let difference = self.widened(name)?.sub(&other.widened(name)?)?;
        let distance = match difference.shape().last() {
            // The largest of nothing is 0 here.
            Some(0) => {
                let shape = &difference.shape()[..difference.rank() - 1];
                Self::zeros(shape, DType::F32)?
            }
            _ => difference.norm(p, -1, false)?,
        };
        distance.cast(name, self.dtype())
    }
}
