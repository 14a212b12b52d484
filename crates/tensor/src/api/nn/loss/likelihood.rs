//! Losses that are negative log-likelihoods, and divergences of distributions.

use rustorch_macros::track_calls;

use super::{Reduction, promoted};
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::warnings::warn_once;

#[track_calls]
impl Tensor {
    /// Binary cross entropy `-(y ln x + (1 - y) ln(1 - x))` of probabilities `x` and targets `y` of
    /// one shape, times `weight`, which broadcasts. Logarithms are clamped to at least −100. Takes
    /// floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Evaluation fails for values that are no
    /// probabilities.
    pub fn binary_cross_entropy(
        &self,
        target: &Self,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "binary_cross_entropy";
        self.require_float(NAME)?;
        target.require_float(NAME)?;
        self.require_shape_of(NAME, target)?;
        let [x, y] = self.pair(NAME, target)?;
        let (x, y) = (x.probabilities(NAME)?, y.probabilities(NAME)?);
        let (yes, no) = (
            bounded_log(&x, &x, Tensor::log)?,
            bounded_log(&x.rsub(1)?, &x, |x| x.neg()?.log1p())?,
        );
        let losses = y.mul(&yes)?.add(&y.neg()?.add(1.0)?.mul(&no)?)?.neg()?;
        let losses = times(NAME, &losses, weight)?;
        reduction.of_like(NAME, &losses, self)
    }

    /// [`Tensor::binary_cross_entropy`] of `sigmoid(x)`, computed without overflow or loss of
    /// precision. `pos_weight`, which broadcasts, multiplies the term of `y`.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Self,
        weight: Option<&Self>,
        pos_weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "binary_cross_entropy_with_logits";
        self.require_float(NAME)?;
        self.require_shape_of(NAME, target)?;
        let [x, y] = self.pair(NAME, target)?;
        // -ln sigmoid(x)
        let loss = x.neg()?.log1p_exp()?;
        let loss = match pos_weight {
            Some(weight) => {
                let factor = weight.widened(NAME)?.sub(1.0)?.mul(&y)?.add(1.0)?;
                loss.mul(&factor)?
            }
            None => loss,
        };
        let losses = y.neg()?.add(1.0)?.mul(&x)?.add(&loss)?;
        let losses = times(NAME, &losses, weight)?;
        reduction.of_like(NAME, &losses, promoted(NAME, &[self, target])?)
    }

    /// Kullback-Leibler divergence `y (ln y - x)` for log-probabilities `x` and probabilities `y`.
    /// With `log_target`, `y` holds logarithms too. They broadcast. Takes floats.
    /// [`Tensor::kl_div_batchmean`] divides by the batch, as is right for distributions.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or an unsupported dtype.
    pub fn kl_div(
        &self,
        target: &Self,
        log_target: bool,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "kl_div";
        self.require_float(NAME)?;
        if reduction == Reduction::Mean {
            warn_once(
                NAME,
                "the mean of all elements is not the divergence; kl_div_batchmean divides by the \
                 batch size",
            );
        }
        let [x, y] = self.pair(NAME, target)?;
        let losses = match log_target {
            true => y.exp()?.mul(&y.sub(&x)?)?,
            false => y.xlogy(&y)?.sub(&y.mul(&x)?)?,
        };
        reduction.of_like(NAME, &losses, promoted(NAME, &[self, target])?)
    }

    /// The sum of [`Tensor::kl_div`] divided by the size of the first dimension: PyTorch's reduction
    /// `batchmean`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::kl_div`].
    pub fn kl_div_batchmean(&self, target: &Self, log_target: bool) -> RusTorchResult<Self> {
        const NAME: &str = "kl_div_batchmean";
        let x = self.widened(NAME)?;
        let sum = x.kl_div(target, log_target, Reduction::Sum)?;
        let batch = self.shape().first().copied().unwrap_or(1);
        let like = promoted(NAME, &[self, target])?;
        sum.div(batch as f64)?.cast(NAME, like.dtype())
    }

    /// `λ - y ln λ` for a Poisson distribution of `λ = eˣ` (`log_input`) or `λ = x`. Without
    /// `log_input` it computes `ln(x + eps)`. `full` adds Stirling's approximation of `ln y!` where
    /// `y > 1`. They broadcast. Takes real numbers.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or an unsupported dtype.
    pub fn poisson_nll_loss(
        &self,
        target: &Self,
        log_input: bool,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "poisson_nll_loss";
        let [x, y] = self.pair(NAME, target)?;
        let losses = match log_input {
            true => x.exp()?.sub(&y.mul(&x)?)?,
            false => x.sub(&y.mul(&x.add(eps)?.log()?)?)?,
        };
        let losses = match full {
            true => {
                let half_log = y.mul(std::f64::consts::TAU)?.log()?.mul(0.5)?;
                let stirling = y.mul(&y.log()?)?.sub(&y)?.add(&half_log)?;
                losses.add(&Self::where_(&y.gt(1)?, &stirling, 0.0)?)?
            }
            false => losses,
        };
        reduction.of_like(NAME, &losses, promoted(NAME, &[self, target])?)
    }

    /// `(ln v + (x - target)² / v) / 2` for normal distributions of variance `v = max(var, eps)`.
    /// `full` adds the constant `ln(2π) / 2`. `target` broadcasts. `var` has the shape of `self`,
    /// with size 1 in the last dimension, or without it. It takes floats; `self` may be integers.
    ///
    /// # Errors
    /// Fails for unsupported shapes, or an unsupported dtype. Evaluation fails for negative
    /// variances.
    pub fn gaussian_nll_loss(
        &self,
        target: &Self,
        var: &Self,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "gaussian_nll_loss";
        var.require_float(NAME)?;
        let [x, y] = self.pair(NAME, target)?;
        let (shape, own) = (self.shape(), var.shape());
        let lead = shape.len().saturating_sub(1);
        let is_whole = own.is_empty() || own == shape;
        let is_thin = own == &shape[..lead];
        let others = own.iter().zip(shape).filter(|(own, size)| own != size);
        let others: Vec<usize> = others.map(|(&own, _)| own).collect();
        let is_one = own.len() == shape.len() && others == [1];
        let expected = format_args!(
            "variances {shape:?}, or with one dimension of 1, or with the last left out"
        );
        require(NAME, is_whole || is_thin || is_one, expected, var.ty())?;
        let var = match !is_whole && is_thin {
            true => var.unsqueeze(-1)?,
            false => var.clone(),
        };
        let variances = var.within(NAME, 0.0, f64::INFINITY, true)?;
        // Like PyTorch, whose gradient takes no notice of the bound.
        let own = variances.widened(NAME)?;
        let variances = own.maximum(eps)?.with_gradient_of(&own);
        let squares = x.sub(&y)?.square()?.div(&variances)?;
        let losses = variances.log()?.add(&squares)?.mul(0.5)?;
        let losses = match full {
            true => losses.add(std::f64::consts::TAU.ln() / 2.0)?,
            false => losses,
        };
        reduction.of_like(NAME, &losses, promoted(NAME, &[self, target, &var])?)
    }

    /// `ln(1 + exp(-y x))` for targets `y` of 1 or −1. They broadcast. Takes floats.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or an unsupported dtype.
    pub fn soft_margin_loss(&self, target: &Self, reduction: Reduction) -> RusTorchResult<Self> {
        const NAME: &str = "soft_margin_loss";
        self.require_float(NAME)?;
        let [x, y] = self.pair(NAME, target)?;
        reduction.of_like(NAME, &x.mul(&y)?.neg()?.log1p_exp()?, self)
    }

    /// The mean over classes of `-(y ln sigmoid(x) + (1 - y) ln sigmoid(-x))`, times `weight`, which
    /// broadcasts, for `self` `[…, classes]` and targets `y` of its shape. Takes floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or rank 0.
    pub fn multilabel_soft_margin_loss(
        &self,
        target: &Self,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "multilabel_soft_margin_loss";
        self.require_float(NAME)?;
        require(
            NAME,
            self.rank() > 0,
            "classes in the last dimension",
            self.ty(),
        )?;
        let [x, y] = self.pair(NAME, target)?;
        let (yes, no) = (x.neg()?.log1p_exp()?, x.log1p_exp()?);
        let losses = y.mul(&yes)?.add(&y.neg()?.add(1.0)?.mul(&no)?)?;
        let losses = times(NAME, &losses, weight)?.mean(-1, false)?;
        reduction.of_like(NAME, &losses, promoted(NAME, &[self, target])?)
    }
}

/// The logarithm of a probability, which `log` gives of `x`: at least −100, with a slope that is as finite, as in
/// PyTorch.
fn bounded_log(
    probability: &Tensor,
    x: &Tensor,
    log: impl Fn(&Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Tensor> {
    const STEEPEST: f64 = 1e12;
    let bounded = log(x)?.maximum(-100.0)?;
    if !x.requires_grad() {
        return Ok(bounded);
    }
    let is_steep = probability.lt(1.0 / STEEPEST)?;
    let usual = log(&Tensor::where_(&is_steep, 0.5, x)?)?;
    let sloped = Tensor::where_(&is_steep, &probability.mul(STEEPEST)?, &usual)?;
    Ok(bounded.with_gradient_of(&sloped))
}

fn times(name: &'static str, losses: &Tensor, weight: Option<&Tensor>) -> RusTorchResult<Tensor> {
    match weight {
        Some(weight) => losses.mul(&weight.widened(name)?),
        None => Ok(losses.clone()),
    }
}
