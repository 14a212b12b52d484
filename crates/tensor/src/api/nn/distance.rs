//! Distances between vectors.

use rustorch_ir::broadcast_shapes;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require};

/// Method by which [`Tensor::cdist`] computes Euclidean distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CdistMode {
    /// Uses a matrix product if one side has more than 25 vectors.
    #[default]
    UseMmForEuclidDistIfNecessary,
    /// Product of matrices.
    UseMmForEuclidDist,
    /// Differences of the elements.
    DontUseMmForEuclidDist,
}

#[track_calls]
impl Tensor {
    /// `x · y / (max(‖x‖, eps) max(‖y‖, eps))` along `dim`; the tensors broadcast and promote.
    /// Takes floats.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, if the dimension does not exist, or for an
    /// unsupported dtype. Also fails for a negative `eps`.
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
    /// Fails for shapes that do not broadcast, or rank 0.
    pub fn pairwise_distance(
        &self,
        other: &Self,
        p: f64,
        eps: f64,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        self.sub(other)?.add(eps)?.norm(p, -1, keepdim)
    }

    /// The `p`-norms of the differences of all pairs of rows of `self` `[n, d]`, ordered by the
    /// first row: `[n (n - 1) / 2]`. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported shape or dtype, or negative `p`.
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
        let difference = firsts.wide_difference(NAME, &seconds)?;
        difference.distance(p)?.cast(NAME, self.dtype())
    }

    /// The `p`-norms of the differences of all pairs of rows of `self` `[…, n, d]` and `other`
    /// `[…, m, d]`: `[…, n, m]`. Leading dimensions broadcast. Takes floats of one dtype.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or negative `p`.
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
        let [x, y] = [self.unsqueeze(-2)?, other.unsqueeze(-3)?];
        let mut difference = x.wide_difference(NAME, &y)?;
        if p == f64::INFINITY {
            // The largest difference is that of numbers, as in PyTorch, where `pdist` has NaN.
            difference = Self::where_(&difference.isnan()?, 0.0, &difference)?;
        }
        difference.distance(p)?.cast(NAME, self.dtype())
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

    fn wide_difference(&self, name: &'static str, other: &Self) -> RusTorchResult<Self> {
        self.widened(name)?.sub(&other.widened(name)?)
    }

    /// The `p`-norms of differences along the last dimension.
    fn distance(&self, p: f64) -> RusTorchResult<Self> {
        match self.shape().last() {
            // Each difference other than 0 counts, and one that is NaN gives NaN. `norm` counts that, too.
            _ if p == 0.0 => self.abs()?.ceil()?.clamp_max(1)?.sum(-1, false),
            // The largest of nothing is 0 here.
            Some(0) => Self::zeros(&self.shape()[..self.rank() - 1], self.dtype()),
            _ => self.norm(p, -1, false),
        }
    }
}
