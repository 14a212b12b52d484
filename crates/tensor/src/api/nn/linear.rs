//! Products of inputs and weights.

use rustorch_ir::ops::{ExpertLinear, Linear};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::amp::{lowered, lowered_if_some};
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// `self · weightᵀ + bias`. `self` is `[…, k]`, floats; `weight` `[n, k]`, floats or a block
    /// format; `bias` `[n]` has `self`'s dtype. The result is `[…, n]` in `self`'s dtype. A weight
    /// `[k]` is one row, and adds no dimension to the result. All operands may also be integers or
    /// complex numbers of one dtype.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> RusTorchResult<Self> {
        const NAME: &str = "linear";
        let [this, weight] = &lowered(NAME, [self, weight])?;
        let bias = lowered_if_some(NAME, bias)?;
        let (this, weight, bias) = (&**this, &**weight, bias.as_deref());
        this.weighed(NAME, weight, bias)
    }

    /// [`Tensor::linear`] in the precision of these.
    fn weighed(
        &self,
        name: &'static str,
        weight: &Self,
        bias: Option<&Self>,
    ) -> RusTorchResult<Self> {
        if self.dtype().is_float() && weight.rank() == 2 {
            let inputs: Vec<&Self> = [self, weight].into_iter().chain(bias).collect();
            return Self::apply(name, Linear, &inputs);
        }
        let fits = self.rank() > 0 && self.shape().last() == weight.shape().last();
        let got = format_args!("{} and {}", self.ty(), weight.ty());
        let expected = "x [.., k] and w [n, k]";
        require(name, fits && weight.rank() <= 2, expected, got)?;
        let product = match weight.rank() {
            1 => self.matmul(weight)?,
            _ => self.matmul(&weight.t()?)?,
        };
        match bias {
            Some(bias) => {
                let fits = bias.dtype() == self.dtype();
                require(name, fits, "a bias of x's dtype", bias.ty())?;
                product.add(bias)
            }
            None => Ok(product),
        }
    }

    /// Products whose weights are chosen for each row, as in a mixture of experts:
    /// `y[t, s] = self[t, s] · weights[ids[t, s]]ᵀ`. `self` is `[t, s, k]`, or `[t, 1, k]` for one
    /// row in all `s` slots, floats. `weights` are `[experts, n, k]`, floats or a block format.
    /// `ids` are `[t, s]`, `i32` or `i64`. The result is `[t, s, n]` in `self`'s dtype.
    ///
    /// ```
    /// use rustorch_tensor::tensor;
    ///
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// let weights = tensor![[[1.0, 0.0]], [[0.0, 10.0]]];
    /// let x = tensor![[[1.0, 2.0]], [[3.0, 4.0]]];
    /// let y = x.expert_linear(&weights, &tensor![[1, 0], [1, 1]])?;
    /// assert_eq!(y.to_vec::<f32>()?, [20.0, 1.0, 40.0, 40.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Evaluation fails for an id outside the experts.
    pub fn expert_linear(&self, weights: &Self, ids: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "expert_linear";
        let [this, weights] = &lowered(NAME, [self, weights])?;
        Self::apply(NAME, ExpertLinear, &[this, weights, ids])
    }

    /// `x Wᵢ y + biasᵢ` for each `i`: `self` `[…, k]`, `other` `[…, l]`, `weight` `[n, k, l]` and
    /// `bias` `[n]` of one dtype, numbers. Result `[…, n]`.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn bilinear(
        &self,
        other: &Self,
        weight: &Self,
        bias: Option<&Self>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "bilinear";
        let got = format_args!("{}, {} and {}", self.ty(), other.ty(), weight.ty());
        let expected = "x [.., k], y [.., l] and a weight [n, k, l]";
        let (Some((&k, lead)), Some((&l, others))) =
            (self.shape().split_last(), other.shape().split_last())
        else {
            return Err(rustorch_ir::OpError::new(NAME, expected, got).into());
        };
        let fits = lead == others && weight.rank() == 3 && weight.shape()[1..] == [k, l];
        require(NAME, fits, expected, got)?;
        let n = weight.shape()[0];
        if let Some(bias) = bias {
            let expected = format_args!("a bias [{n}]");
            require(NAME, bias.shape() == [n], expected, bias.ty())?;
        }
        let (x, y, w) = (
            self.widened(NAME)?,
            other.widened(NAME)?,
            weight.widened(NAME)?,
        );
        let rows = lead.iter().product::<usize>();
        let w = w.permute([1, 0, 2])?.reshape([k, n * l])?;
        let half = x.reshape([rows, k])?.matmul(&w)?.reshape([rows, n, l])?;
        let product = half.matmul(&y.reshape([rows, l, 1])?)?;
        let product = product.reshape(&[lead, &[n]].concat()[..])?;
        let sum = match bias {
            Some(bias) => product.add(&bias.widened(NAME)?)?,
            None => product,
        };
        sum.cast(NAME, self.dtype())
    }
}
