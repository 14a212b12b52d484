//! Losses for regression.

use rustorch_macros::track_calls;

use super::Reduction;
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::warnings::warn_once;

/// Warns of shapes that differ: most often a dimension of size 1 is missing, and every prediction is compared with every
/// target.
fn warn_of_sizes(name: &'static str, x: &Tensor, target: &Tensor) {
    let (x, target) = (x.shape(), target.shape());
    if x != target {
        warn_once(
            name,
            format_args!(
                "the target's shape {target:?} is not the input's {x:?}: both broadcast, which is rarely meant; \
                 view or unsqueeze gives them one shape"
            ),
        );
    }
}

#[track_calls]
impl Tensor {
    /// `(x - target)²`, times `weight` if there is one. The weights also apply to the mean. Takes
    /// floats that broadcast.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or an unsupported dtype.
    pub fn mse_loss(
        &self,
        target: &Self,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "mse_loss";
        let [x, y] = self.pair(NAME, target)?;
        warn_of_sizes(NAME, self, target);
        let losses = x.sub(&y)?.square()?;
        self.weighted(NAME, target, &losses, weight, reduction)
    }

    /// `|x - target|`, times `weight` if there is one. The weights also apply to the mean. Takes
    /// floats and complex numbers that broadcast.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or an unsupported dtype.
    pub fn l1_loss(
        &self,
        target: &Self,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "l1_loss";
        let [x, y] = self.pair(NAME, target)?;
        warn_of_sizes(NAME, self, target);
        let losses = x.sub(&y)?.abs()?;
        self.weighted(NAME, target, &losses, weight, reduction)
    }

    /// `(x - target)² / (2 beta)` where `|x - target| < beta`, else `|x - target| - beta / 2`.
    /// Takes floats that broadcast.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, an unsupported dtype, or a negative `beta`.
    pub fn smooth_l1_loss(
        &self,
        target: &Self,
        beta: f64,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "smooth_l1_loss";
        require(NAME, beta >= 0.0, "beta >= 0", beta)?;
        if beta == 0.0 {
            return self.l1_loss(target, None, reduction);
        }
        let [x, y] = self.pair(NAME, target)?;
        warn_of_sizes(NAME, self, target);
        let difference = x.sub(&y)?;
        let distance = difference.abs()?;
        let is_far = distance.ge(beta)?;
        let near = difference.squared_unless(&is_far)?.mul(0.5 / beta)?;
        let far = distance.sub(0.5 * beta)?;
        let losses = Self::where_(&is_far, &far, &near)?;
        self.weighted(NAME, target, &losses, None, reduction)
    }

    /// `(x - target)² / 2` where `|x - target| <= delta`, else `delta (|x - target| - delta / 2)`. It
    /// is multiplied by `weight` if there is one, which also applies to the mean. Takes floats that
    /// broadcast. The result has the dtype of `self`, unless there is a weight.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, an unsupported dtype, or a `delta` that is not
    /// positive.
    pub fn huber_loss(
        &self,
        target: &Self,
        delta: f64,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "huber_loss";
        require(NAME, delta > 0.0, "delta > 0", delta)?;
        let [x, y] = self.pair(NAME, target)?;
        warn_of_sizes(NAME, self, target);
        let difference = x.sub(&y)?;
        let distance = difference.abs()?;
        let is_far = distance.ge(delta)?;
        let near = difference.squared_unless(&is_far)?.mul(0.5)?;
        let far = distance.sub(0.5 * delta)?.mul(delta)?;
        let losses = Self::where_(&is_far, &far, &near)?;
        let loss = self.weighted(NAME, target, &losses, weight, reduction)?;
        match self.dtype().is_float() && weight.is_none() {
            true => loss.cast(NAME, self.dtype()),
            false => Ok(loss),
        }
    }

    /// The square, or 0 where `condition`: an infinite slope would make NaN of a gradient that does not count.
    fn squared_unless(&self, condition: &Self) -> RusTorchResult<Self> {
        Self::where_(condition, 0.0, self)?.square()
    }

    /// Losses reduced with weights, in the dtype that `self` and `target` promote to.
    fn weighted(
        &self,
        name: &'static str,
        target: &Self,
        losses: &Self,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        let dtype = match self.dtype().promote(target.dtype()) {
            Some(dtype) => dtype.real(),
            None => losses.dtype(),
        };
        let loss = match weight {
            None => reduction.of(losses)?,
            Some(weight) => {
                weight.require_shape_of(name, losses)?;
                let weight = weight.widened(name)?;
                let weighted = losses.mul(&weight)?;
                match reduction {
                    Reduction::Mean => weighted.sum(None, false)?.div(&weight.sum(None, false)?)?,
                    other => other.of(&weighted)?,
                }
            }
        };
        loss.cast(name, dtype)
    }
}
