//! Losses of numbers that should be others.

use rustorch_macros::track_calls;

use super::Reduction;
use crate::Tensor;
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// `(x - target)²`, times `weight` if there is one, of which a mean is then weighted, too.
    /// Floats that broadcast.
    ///
    /// # Errors
    /// Shapes that do not broadcast; another dtype.
    pub fn mse_loss(
        &self,
        target: &Self,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "mse_loss";
        let [x, y] = self.pair(NAME, target)?;
        let losses = x.sub(&y)?.square()?;
        self.weighted(NAME, target, &losses, weight, reduction)
    }

    /// `|x - target|`, times `weight` if there is one, of which a mean is then weighted, too.
    /// Floats and complex numbers that broadcast.
    ///
    /// # Errors
    /// Shapes that do not broadcast; another dtype.
    pub fn l1_loss(
        &self,
        target: &Self,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "l1_loss";
        let [x, y] = self.pair(NAME, target)?;
        let losses = x.sub(&y)?.abs()?;
        self.weighted(NAME, target, &losses, weight, reduction)
    }

    /// `(x - target)² / (2 beta)` where `|x - target| < beta`, else `|x - target| - beta / 2`.
    /// Floats that broadcast.
    ///
    /// # Errors
    /// Shapes that do not broadcast; another dtype; a negative `beta`.
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
        let difference = x.sub(&y)?;
        let distance = difference.abs()?;
        let is_far = distance.ge(beta)?;
        let near = difference.squared_unless(&is_far)?.mul(0.5 / beta)?;
        let far = distance.sub(0.5 * beta)?;
        let losses = Self::where_(&is_far, &far, &near)?;
        self.weighted(NAME, target, &losses, None, reduction)
    }

    /// `(x - target)² / 2` where `|x - target| <= delta`, else `delta (|x - target| - delta / 2)`;
    /// times `weight` if there is one, of which a mean is then weighted, too. Floats that broadcast. In
    /// the dtype of `self`, unless there is a weight.
    ///
    /// # Errors
    /// Shapes that do not broadcast; another dtype; a `delta` that is not positive.
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
