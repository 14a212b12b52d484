//! Poisson's and the binomial distribution: counts, drawn in double precision.
//!
//! For an expectation below [`FEW`], a number is found by inversion, in the sums of probabilities.
//! Otherwise it is found by transformed rejection with a squeeze: PTRS for Poisson's
//! ([Hörmann 1993](https://doi.org/10.1016/0167-6687(93)90997-4)), BTRS for the binomial
//! ([Hörmann 1993](https://doi.org/10.1080/00949659308811496)). Enough proposals are made at once
//! that all fail only once in billions of numbers.

use rustorch_ir::{DType, Shape};
use rustorch_macros::track_calls;

use super::Generator;
use super::distributions::{common, drawn_dtype};
use crate::Tensor;
use crate::api::promote::AsOperand;
use crate::api::promote::Operand;
use crate::error::RusTorchResult;

/// The mean from which on a bell curve is close enough to propose numbers by.
const FEW: f64 = 10.0;

/// Counts that are looked at where the mean is below [`FEW`]: a larger one is less likely than the
/// step of the random numbers.
const MOST_OF_FEW: usize = 40;

/// Number of proposals for a number of a large mean. Each is accepted with a probability above 0.7.
const PROPOSALS: usize = 20;

/// The shape of a proposal: parameters of the transformed-rejection algorithms.
struct Hat {
    center: Tensor,
    a: Tensor,
    b: Tensor,
    squeeze: Tensor,
    alpha: Tensor,
}

/// `ln k!`.
fn log_factorial(k: &Tensor) -> RusTorchResult<Tensor> {
    k.add(1)?.lgamma()
}

#[track_calls]
impl Generator {
    /// Samples Poisson's distribution: the number of events for each expected number, in the shape
    /// and dtype of the rates.
    ///
    /// # Errors
    /// Fails for an unsupported dtype. Evaluation fails for a rate that is negative or NaN.
    pub fn poisson(&self, rates: &Tensor) -> RusTorchResult<Tensor> {
        const NAME: &str = "poisson";
        rates.require_float(NAME)?;
        let rate = rates.within(NAME, 0.0, f64::INFINITY, false)?;
        let rate = rate.cast(NAME, DType::F64)?;
        let few = rate.minimum(FEW)?;
        let few = self.inverted(few.shape(), &few.neg()?.exp()?, |k| few.div(k))?;
        let large = rate.maximum(FEW)?;
        let many = self.rejected(
            rate.shape(),
            &poisson_hat(&large)?,
            |k| k.mul(&large.log()?)?.sub(&large)?.sub(&log_factorial(k)?),
            |k| k.ge(0),
        )?;
        Tensor::where_(&rate.lt(FEW)?, &few, &many)?.cast(NAME, rates.dtype())
    }

    /// Samples the binomial distribution: the number of successes in `count` trials of this
    /// probability. The result has the common shape and dtype of the parameters.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or complex parameters.
    pub fn binomial(
        &self,
        count: impl AsOperand,
        probability: impl AsOperand,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "binomial";
        let (n, p) = (count.as_operand()?, probability.as_operand()?);
        let dtype = drawn_dtype(NAME, &[n, p])?;
        let shape: Shape = common(NAME, &[n, p])?;
        let wide = |x: Operand| x.to_tensor(NAME, DType::F64)?.expand(&shape);
        let (n, given) = (wide(n)?.floor()?, wide(p)?);
        // Of more successes than failures, the failures are counted.
        let is_likely = given.gt(0.5)?;
        let p = Tensor::where_(&is_likely, &given.neg()?.add(1)?, &given)?;
        let mean = n.mul(&p)?;
        let is_few = mean.lt(FEW)?;
        let few_p = Tensor::where_(&is_few, &p, 0.0)?;
        let q = few_p.neg()?.add(1)?;
        let (none, odds) = (q.log()?.mul(&n)?.exp()?, few_p.div(&q)?);
        let few = self.inverted(&shape, &none, |k| {
            n.sub(k - 1.0)?.maximum(0)?.mul(&odds)?.div(k)
        })?;
        let many = self.many_successes(
            &Tensor::where_(&is_few, 4.0 * FEW, &n)?,
            &Tensor::where_(&is_few, 0.5, &p)?,
        )?;
        let found = Tensor::where_(&is_few, &few, &many)?.minimum(&n)?;
        let found = Tensor::where_(&is_likely, &n.sub(&found)?, &found)?;
        let legal = given
            .ge(0)?
            .logical_and(&given.le(1)?)?
            .logical_and(&n.ge(0)?)?;
        Tensor::where_(&legal, &found, f64::NAN)?.cast(NAME, dtype)
    }

    /// Successes of many trials, of a probability of at most ½.
    fn many_successes(&self, n: &Tensor, p: &Tensor) -> RusTorchResult<Tensor> {
        let log_odds = p.log()?.sub(&p.neg()?.log1p()?)?;
        let mode = n.add(1)?.mul(p)?.floor()?;
        let weight = |k: &Tensor| {
            let ways = log_factorial(k)?.add(&log_factorial(&n.sub(k)?.maximum(0)?)?)?;
            k.mul(&log_odds)?.sub(&ways)
        };
        let at_mode = weight(&mode)?;
        self.rejected(
            n.shape(),
            &binomial_hat(n, p)?,
            |k| weight(k)?.sub(&at_mode),
            |k| k.ge(0)?.logical_and(&k.le(n)?),
        )
    }

    /// The least count whose sum of probabilities is above an even number: `none` is the
    /// probability of 0, `ratio` that of `k` by that of `k − 1`.
    fn inverted(
        &self,
        shape: &[usize],
        none: &Tensor,
        ratio: impl Fn(f64) -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        let even = self.rand(shape, DType::F64)?;
        let (mut probability, mut sum) = (none.clone(), none.clone());
        let mut count = Tensor::zeros(shape, DType::F64)?;
        for k in 1..=MOST_OF_FEW {
            count = count.add(&even.ge(&sum)?.cast("inverted", DType::F64)?)?;
            probability = probability.mul(&ratio(k as f64)?)?;
            sum = sum.add(&probability)?;
        }
        Ok(count)
    }

    /// The first accepted of many proposals. `log_weight` is the logarithm of the probability of
    /// `legal` counts, up to a factor that `hat.alpha` makes good.
    fn rejected(
        &self,
        shape: &[usize],
        hat: &Hat,
        log_weight: impl Fn(&Tensor) -> RusTorchResult<Tensor>,
        legal: impl Fn(&Tensor) -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        let many = [&[PROPOSALS], shape].concat();
        let u = self.rand(&many, DType::F64)?.sub(0.5)?;
        let v = self.open("rejected", &many, DType::F64)?;
        let edge = u.abs()?.neg()?.add(0.5)?;
        let slope = hat.a.mul(2)?.div(&edge)?.add(&hat.b)?;
        let count = slope.mul(&u)?.add(&hat.center)?.floor()?;
        let is_inside = edge.ge(0.07)?.logical_and(&v.le(&hat.squeeze)?)?;
        let is_legal = legal(&count)?;
        let counted = Tensor::where_(&is_legal, &count, 0.0)?;
        let density = hat.a.div(&edge.square()?)?.add(&hat.b)?;
        let bound = v.mul(&hat.alpha)?.div(&density)?.log()?;
        let is_below = bound.le(&log_weight(&counted)?)?.logical_and(&is_legal)?;
        let is_accepted = is_inside.logical_or(&is_below)?;
        let last = PROPOSALS as isize - 1;
        (0..last)
            .rev()
            .try_fold(count.select(0, last)?, |found, i| {
                Tensor::where_(&is_accepted.select(0, i)?, &count.select(0, i)?, &found)
            })
    }
}

/// Constants of PTRS.
fn poisson_hat(mean: &Tensor) -> RusTorchResult<Hat> {
    let b = mean.sqrt()?.mul(2.53)?.add(0.931)?;
    Ok(Hat {
        center: mean.add(0.43)?,
        a: b.mul(0.02483)?.sub(0.059)?,
        squeeze: b.sub(2)?.reciprocal()?.mul(-3.6224)?.add(0.9277)?,
        alpha: b.sub(3.4)?.reciprocal()?.mul(1.1328)?.add(1.1239)?,
        b,
    })
}

/// Constants of BTRS.
fn binomial_hat(n: &Tensor, p: &Tensor) -> RusTorchResult<Hat> {
    let mean = n.mul(p)?;
    let deviation = mean.mul(&p.neg()?.add(1)?)?.sqrt()?;
    let b = deviation.mul(2.53)?.add(1.15)?;
    Ok(Hat {
        center: mean.add(0.5)?,
        a: b.mul(0.0248)?.add(&p.mul(0.01)?)?.sub(0.0873)?,
        squeeze: b.reciprocal()?.mul(-4.2)?.add(0.92)?,
        alpha: b.reciprocal()?.mul(5.1)?.add(2.83)?.mul(&deviation)?,
        b,
    })
}
