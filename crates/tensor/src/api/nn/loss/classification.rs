//! Losses for classification.

use rustorch_ir::DType;
use rustorch_ir::ops::{CrossEntropy, CrossEntropyMean, Gather};
use rustorch_macros::track_calls;

use super::Reduction;
use crate::Tensor;
use crate::api::promote::result_dtype;
use crate::args::setting::setters;
use crate::error::{RusTorchResult, require};

/// The class index that does not count by itself.
const DEFAULT_IGNORE: i64 = -100;

/// The optional arguments of [`Tensor::cross_entropy`].
#[derive(Clone, Copy)]
pub struct CrossEntropyOptions<'a> {
    /// A weight for each class, `[c]`.
    pub weight: Option<&'a Tensor>,
    /// The class index that is left out.
    pub ignore_index: i64,
    /// The reduction of the losses.
    pub reduction: Reduction,
    /// Label smoothing: the share of the target that is uniform over all classes.
    pub label_smoothing: f64,
}

setters!(CrossEntropyOptions<'a> {
    weight: Option<&'a Tensor>, ignore_index: i64, reduction: Reduction, label_smoothing: f64,
});

impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        Self {
            weight: None,
            ignore_index: DEFAULT_IGNORE,
            reduction: Reduction::Mean,
            label_smoothing: 0.0,
        }
    }
}

#[track_calls]
impl Tensor {
    /// `-ln softmax(x)` of the target class, for `self` `[n, c, …]` or `[c]`. The target is the class as an integer,
    /// `[n, …]` or `[]`. It may also be the probability of each class, floats of `self`'s shape. A mean over class
    /// indices is weighted by the class weights. A mean over probabilities, which promote, divides by the number of
    /// positions. Takes floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or a `label_smoothing` outside 0 to 1. Also fails
    /// for an `ignore_index` of 0 or more with probabilities. Evaluation fails for an unknown
    /// class.
    pub fn cross_entropy(
        &self,
        target: &Self,
        options: &CrossEntropyOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "cross_entropy";
        self.require_float(NAME)?;
        require(
            NAME,
            self.rank() > 0,
            "a tensor [n, c, ..] or [c]",
            self.ty(),
        )?;
        let smoothing = options.label_smoothing;
        let legal = (0.0..=1.0).contains(&smoothing);
        require(NAME, legal, "a label_smoothing from 0 to 1", smoothing)?;
        let of_classes = target.dtype().is_int();
        if of_classes && options.weight.is_none() && options.label_smoothing == 0.0 {
            return self.cross_entropy_of_classes(NAME, target, options);
        }
        let classes = usize::from(self.rank() > 1);
        let of_probabilities = target.shape() == self.shape() && target.dtype().is_float();
        let legal = !of_probabilities || options.ignore_index < 0;
        let expected = "no ignored class with probabilities";
        require(NAME, legal, expected, options.ignore_index)?;
        let dtype = match of_probabilities {
            true => result_dtype(NAME, &[self.into(), target.into()])?,
            false => self.dtype(),
        };
        let logs = self.cast(NAME, dtype)?.widened(NAME)?;
        let logs = logs.log_softmax(classes as isize)?;
        let loss = match of_probabilities {
            true => logs.cross_entropy_of_probabilities(NAME, target, options)?,
            false => {
                let loss = logs.nll(NAME, target, options)?;
                match options.label_smoothing == 0.0 {
                    true => loss.reduced(options.reduction)?,
                    false => logs.smoothed(NAME, &loss, options)?,
                }
            }
        };
        loss.cast(NAME, dtype)
    }

    /// The options for equally weighted classes.
    fn cross_entropy_of_classes(
        &self,
        name: &'static str,
        target: &Self,
        options: &CrossEntropyOptions,
    ) -> RusTorchResult<Self> {
        let (target, dim) = self.classes(name, target)?;
        let ignore_index = options.ignore_index;
        let op = CrossEntropy { dim, ignore_index };
        let loss = match options.reduction {
            Reduction::Mean => {
                let mean = CrossEntropyMean { loss: op };
                Self::apply(name, mean, &[self, &target])?
            }
            other => other.of(&Self::apply(name, op, &[self, &target])?)?,
        };
        loss.cast(name, self.dtype())
    }

    /// The classes of all samples, `i64`, without the dimension of the classes, and that dimension.
    fn classes(&self, name: &'static str, target: &Self) -> RusTorchResult<(Self, usize)> {
        let dim = usize::from(self.rank() > 1);
        let mut rest = self.shape().to_vec();
        let fits = self.rank() > 0 && {
            rest.remove(dim);
            // One sample may have its class as [1] as well.
            target.shape() == rest || (rest.is_empty() && *target.shape() == [1])
        };
        let expected = format_args!("a class for each of {rest:?}");
        require(name, fits, expected, target.ty())?;
        let is_int = target.dtype().is_int();
        require(name, is_int, "integer classes", target.ty())?;
        let classes = target.cast(name, DType::I64)?;
        match classes.shape() == rest {
            true => Ok((classes, dim)),
            false => Ok((classes.reshape(&rest[..])?, dim)),
        }
    }

    /// [`Tensor::cross_entropy`] of `self` `[n, k]` or `[k]`, multiplied by `weight` `[c, …, k]` and
    /// increased by `bias` `[c, …]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::linear`] and [`Tensor::cross_entropy`].
    pub fn linear_cross_entropy(
        &self,
        weight: &Self,
        target: &Self,
        bias: Option<&Self>,
        options: &CrossEntropyOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "linear_cross_entropy";
        let got = format_args!("{} and {}", self.ty(), weight.ty());
        let fits = matches!(self.rank(), 1 | 2)
            && weight.rank() >= 2
            && self.shape().last() == weight.shape().last()
            && (weight.rank() == 2 || self.rank() == 2);
        let expected = "x [n, k] and a weight [c, .., k], or x [k] and [c, k]";
        require(NAME, fits, expected, got)?;
        let outputs = &weight.shape()[..weight.rank() - 1];
        if let Some(bias) = bias {
            require(
                NAME,
                bias.shape() == outputs,
                format!("a bias {outputs:?}"),
                bias.ty(),
            )?;
        }
        let rows = weight.flatten(0, -2)?;
        let bias = bias.map(|bias| bias.flatten(0, -1)).transpose()?;
        let shape = [&self.shape()[..self.rank() - 1], outputs].concat();
        let is_plain = target.shape() != shape || options.ignore_index == DEFAULT_IGNORE;
        require(
            NAME,
            is_plain,
            "no ignore_index beside probabilities",
            options.ignore_index,
        )?;
        let logits = self.linear(&rows, bias.as_ref())?.reshape(&shape[..])?;
        logits.cross_entropy(target, options)
    }

    /// The negative log-likelihood `-x` of the target class, for log-probabilities `self`
    /// `[n, c, …]` or `[c]`. Classes are integers `[n, …]` or `[]`. A mean is weighted by the
    /// classes' weights `[c]`. Takes floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Evaluation fails for an unknown class.
    pub fn nll_loss(
        &self,
        target: &Self,
        weight: Option<&Self>,
        ignore_index: i64,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "nll_loss";
        self.require_float(NAME)?;
        let options = CrossEntropyOptions {
            weight,
            ignore_index,
            ..Default::default()
        };
        let loss = self.widened(NAME)?.nll(NAME, target, &options)?;
        loss.reduced(reduction)?.cast(NAME, self.dtype())
    }

    /// Loss for logarithms of probabilities.
    fn nll(
        &self,
        name: &'static str,
        target: &Self,
        options: &CrossEntropyOptions,
    ) -> RusTorchResult<Weighted> {
        let (target, classes) = self.classes(name, target)?;
        let rest = target.shape();
        let counts = target.ne(options.ignore_index)?;
        let class = Self::where_(&counts, &target, 0)?;
        let place = class.unsqueeze(classes as isize)?;
        let chosen = Self::apply(name, Gather { dim: classes }, &[self, &place])?;
        let chosen = chosen.squeeze(classes as isize)?;
        let weights = match options.weight {
            Some(weight) => {
                let c = self.shape()[classes];
                let fits = *weight.shape() == [c];
                require(
                    name,
                    fits,
                    format!("a weight for each of {c} classes"),
                    weight.ty(),
                )?;
                let listed = weight.index_select(0, &class.reshape([-1])?)?;
                listed.reshape(rest)?.cast(name, self.dtype())?
            }
            None => Self::full(rest, 1, self.dtype())?,
        };
        let weights = Self::where_(&counts, &weights, 0.0)?;
        // What does not count may be infinite.
        let loss = Self::where_(&counts, &chosen.mul(&weights)?.neg()?, 0.0)?;
        Ok(Weighted {
            loss,
            weights,
            counts,
        })
    }

    /// Losses of classes, mixed with those of a target that is even over all.
    fn smoothed(
        &self,
        name: &'static str,
        own: &Weighted,
        options: &CrossEntropyOptions,
    ) -> RusTorchResult<Self> {
        let classes = usize::from(self.rank() > 1);
        let even = self.class_weighted(name, options.weight)?.neg()?;
        let even = even.sum(classes as isize, false)?;
        let even = Self::where_(&own.counts, &even, 0.0)?;
        let smoothing = options.label_smoothing;
        let each = smoothing / self.shape()[classes] as f64;
        let mixed = own.loss.mul(1.0 - smoothing)?.add(&even.mul(each)?)?;
        let weighted = Weighted {
            loss: mixed,
            weights: own.weights.clone(),
            counts: own.counts.clone(),
        };
        weighted.reduced(options.reduction)
    }

    /// Logarithms times the weights of their classes.
    fn class_weighted(&self, name: &'static str, weight: Option<&Self>) -> RusTorchResult<Self> {
        match weight {
            Some(weight) if self.rank() > 1 => {
                self.mul(&weight.cast(name, self.dtype())?.by_channel(self.rank())?)
            }
            Some(weight) => self.mul(&weight.cast(name, self.dtype())?),
            None => Ok(self.clone()),
        }
    }

    fn cross_entropy_of_probabilities(
        &self,
        name: &'static str,
        target: &Self,
        options: &CrossEntropyOptions,
    ) -> RusTorchResult<Self> {
        let classes = usize::from(self.rank() > 1);
        let size = self.shape()[classes];
        let target = target.cast(name, self.dtype())?;
        let target = match options.label_smoothing {
            0.0 => target,
            smoothing => target.mul(1.0 - smoothing)?.add(smoothing / size as f64)?,
        };
        let weighted = self.class_weighted(name, options.weight)?;
        let losses = weighted.mul(&target)?.sum(classes as isize, false)?.neg()?;
        match options.reduction {
            Reduction::Mean => losses.sum(None, false)?.div(losses.numel() as f64),
            other => other.of(&losses),
        }
    }
}

/// Losses that have weights already, which they are divided by in a mean, and which ones count.
struct Weighted {
    loss: Tensor,
    weights: Tensor,
    counts: Tensor,
}

impl Weighted {
    fn reduced(&self, reduction: Reduction) -> RusTorchResult<Tensor> {
        match reduction {
            Reduction::Mean => self
                .loss
                .sum(None, false)?
                .div(&self.weights.sum(None, false)?),
            other => other.of(&self.loss),
        }
    }
}
