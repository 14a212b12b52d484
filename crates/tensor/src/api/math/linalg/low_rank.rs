//! Approximations of low rank by random projections, after Halko, Martinsson and Tropp, [Finding
//! structure with randomness](https://arxiv.org/abs/0909.4061), algorithms 4.4 and 5.1.

use rustorch_macros::track_calls;

use super::factors::{QrMode, qr, svd};
use super::{adjoint, sizes};
use crate::Tensor;
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// Approximates the `q` largest singular values and their vectors of matrices `[…, m, n]` of
    /// low rank. `U` `[…, m, q]`, `S` `[…, q]` and `V` `[…, n, q]` give `A ≈ U·diag(S)·Vᴴ`, or
    /// `A - mean`. More iterations (PyTorch: 2) are more exact if the values decrease slowly. It
    /// draws from the [default generator](crate::default_generator). `q` is at most the number of
    /// rows and of columns.
    ///
    /// # Errors
    /// Fails for operands other than matrices of single or double precision. Also fails for a
    /// `mean` that does not broadcast to them.
    pub fn svd_lowrank(
        &self,
        q: usize,
        iterations: usize,
        mean: Option<&Self>,
    ) -> RusTorchResult<(Self, Self, Self)> {
        low_rank("svd_lowrank", self, q, iterations, mean)
    }

    /// Approximates the `q` principal components of `m` samples with `n` features `[…, m, n]`. `U`,
    /// `S` and `V` are those of [`Tensor::svd_lowrank`] of the samples, minus each feature's mean
    /// (`center`). The columns of `V` are the principal directions.
    ///
    /// # Errors
    /// The same errors as [`Tensor::svd_lowrank`]. Also fails for more components than samples or
    /// features.
    pub fn pca_lowrank(
        &self,
        q: usize,
        center: bool,
        iterations: usize,
    ) -> RusTorchResult<(Self, Self, Self)> {
        const NAME: &str = "pca_lowrank";
        let [m, n] = sizes(NAME, self)?;
        let expected = format_args!("at most {} components of {m} x {n}", m.min(n));
        require(NAME, q <= m.min(n), expected, q)?;
        let mean = match center {
            true => Some(self.mean(-2, true)?),
            false => None,
        };
        low_rank(NAME, self, q, iterations, mean.as_ref())
    }
}

fn low_rank(
    name: &'static str,
    a: &Tensor,
    q: usize,
    iterations: usize,
    mean: Option<&Tensor>,
) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    let [m, n] = sizes(name, a)?;
    let a = match mean {
        Some(mean) => a.sub(mean)?,
        None => a.clone(),
    };
    let turned = adjoint(&a)?;
    // The side with fewer vectors is projected.
    let [a, turned] = if m < n { [turned, a] } else { [a, turned] };
    let shape = [&a.shape()[..a.rank() - 2], &[m.min(n), q]].concat();
    let basis = |x: &Tensor| -> RusTorchResult<Tensor> { Ok(qr(x, QrMode::Reduced)?.0) };
    let mut found = basis(&a.matmul(&Tensor::randn(shape, a.dtype())?)?)?;
    for _ in 0..iterations {
        let other = basis(&turned.matmul(&found)?)?;
        found = basis(&a.matmul(&other)?)?;
    }
    let (u, s, vh) = svd(&adjoint(&found)?.matmul(&a)?, false)?;
    let (u, v) = (found.matmul(&u)?, adjoint(&vh)?);
    Ok(if m < n { (v, s, u) } else { (u, s, v) })
}
