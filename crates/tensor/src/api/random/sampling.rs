//! Random sampling of indices.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use super::distributions::wide;
use super::{Generator, WORDS};
use crate::Tensor;
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Generator {
    /// The numbers of `0..n` in a random order. The result has an integer or float dtype.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or for more numbers than memory could hold.
    pub fn randperm(&self, n: usize, dtype: DType) -> RusTorchResult<Tensor> {
        const NAME: &str = "randperm";
        let legal = dtype.is_float() || dtype.is_int();
        require(NAME, legal, "an integer or floating-point dtype", dtype)?;
        // Places sorted by 63 random bits: among a million, two that are equal are a chance of
        // one in ten million.
        let words = self.randint(0, WORDS, [2, n], DType::I64)?;
        let high = words.select(0, 0)?.remainder(WORDS / 2)?.mul(WORDS)?;
        high.add(&words.select(0, 1)?)?
            .argsort(0, false)?
            .cast(NAME, dtype)
    }

    /// Draws `samples` indices with these `weights`. Weights `[k]` give `[samples]`, and `[m, k]` give `[m, samples]`,
    /// `i64`. Without `replacement` all indices of a row differ. Takes floats, which need not add up to 1. Weights are
    /// computed and checked at once, unless they belong to a [`Trace`](crate::Trace).
    ///
    /// # Errors
    /// Fails for an unsupported rank or dtype, or for 0 samples. Without replacement it also fails
    /// for more than `k` samples. Also fails for weights that are negative, not finite, or all 0.
    pub fn multinomial(
        &self,
        weights: &Tensor,
        samples: usize,
        replacement: bool,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "multinomial";
        weights.require_float(NAME)?;
        let &[.., k] = weights.shape() else {
            return require(NAME, false, "weights [k] or [m, k]", weights.ty())
                .map(|()| weights.clone());
        };
        require(
            NAME,
            weights.rank() <= 2,
            "weights [k] or [m, k]",
            weights.ty(),
        )?;
        let most = if replacement { usize::MAX } else { k };
        let expected = format_args!("1 to {most} samples");
        require(NAME, (1..=most).contains(&samples), expected, samples)?;
        check_weights(NAME, weights)?;
        let weights = weights.cast(NAME, wide(weights.dtype()))?;
        match replacement {
            true => self.with_replacement(NAME, &weights, samples),
            // Those whose exponential clocks of these rates ring first.
            false => {
                let times = self.exponential(1, weights.shape(), weights.dtype())?;
                let (_, indices) = weights.div(&times)?.topk(samples, -1, true)?;
                Ok(indices)
            }
        }
    }

    fn with_replacement(
        &self,
        name: &'static str,
        weights: &Tensor,
        samples: usize,
    ) -> RusTorchResult<Tensor> {
        let rows = &weights.shape()[..weights.rank() - 1];
        let sums = weights.cumsum(-1)?;
        let total = sums.narrow(-1, sums.shape()[rows.len()] - 1, 1)?;
        let even = self.rand([rows, &[samples]].concat(), weights.dtype())?;
        let index = sums.places_of(name, (&even.mul(&total)?).into(), true)?;
        // A number that rounding made the total belongs to the last of any weight.
        let last = sums.places_of(name, (&total).into(), false)?;
        index.minimum(&last)
    }

    /// Draws one index of the last dimension, which is dropped, with these `weights`: a sample of
    /// PyTorch's `Categorical`. The weights are floats and not negative.
    ///
    /// # Errors
    /// Fails for rank 0, or an unsupported dtype. Also fails for weights that are negative, not
    /// finite, or all 0.
    pub fn categorical(&self, weights: &Tensor) -> RusTorchResult<Tensor> {
        const NAME: &str = "categorical";
        require(NAME, weights.rank() > 0, "rank 1 or more", weights.ty())?;
        let (rows, k) = weights.shape().split_at(weights.rank() - 1);
        let table = weights.reshape([rows.iter().product::<usize>(), k[0]])?;
        self.multinomial(&table, 1, true)?.reshape(rows)
    }
}

/// Fails if weights that are known are none.
fn check_weights(name: &'static str, weights: &Tensor) -> RusTorchResult<()> {
    if weights.is_traced() || weights.numel() == 0 {
        return Ok(());
    }
    let finite = weights.ge(0)?.logical_and(&weights.lt(f64::INFINITY)?)?;
    let some = weights.sum(-1, false)?.gt(0)?;
    let found = Tensor::stack(&[&finite.all(None, false)?, &some.all(None, false)?], 0)?;
    let found = found.to_vec::<bool>()?;
    let expected = "weights that are finite and not negative";
    require(name, found[0], expected, "others")?;
    require(name, found[1], "rows with a weight above 0", "one without")
}
