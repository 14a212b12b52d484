//! A softmax of many classes with few frequent ones:
//! [Grave et al. 2017](https://arxiv.org/abs/1609.04309).

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Forward, Linear, Module, ModuleList};
use crate::error::require;

const NAME: &str = "AdaptiveLogSoftmaxWithLoss";

/// Log-probabilities of classes, and the loss of targets. Classes are numbered by frequency, the
/// most frequent one first. The head has the classes below the first cutoff, and one cluster for
/// each range of the others. Clusters of rarer classes have narrower layers.
///
/// The clusters that a batch needs are unknown in advance, so all clusters are computed for all
/// rows.
#[derive(Module)]
pub struct AdaptiveLogSoftmaxWithLoss {
    /// The layer of the frequent classes and the clusters.
    pub head: Linear,
    /// Two linear layers for each cluster, without biases.
    pub tail: ModuleList<ModuleList<Linear>>,
    /// The first class of each cluster; the number of classes.
    #[module(skip)]
    cutoffs: Vec<usize>,
}

#[track_calls(AdaptiveLogSoftmaxWithLoss)]
impl AdaptiveLogSoftmaxWithLoss {
    /// A layer of `n_classes` classes, with a cluster from each of the `cutoffs` to the next. The
    /// layers of cluster `i` are `in_features / div_valueⁱ⁺¹` wide. The head has no bias, unless
    /// `head` sets another layer. PyTorch's `div_value` is 4.
    ///
    /// # Errors
    /// Fails for cutoffs that do not rise from above 0 to below the number of classes. Also fails
    /// for a `div_value` that leaves a layer without width, or sizes too large for memory.
    pub fn new(
        in_features: usize,
        n_classes: usize,
        cutoffs: &[usize],
        div_value: f64,
    ) -> RusTorchResult<Self> {
        let ends = [cutoffs, &[n_classes]].concat();
        let rise = !cutoffs.is_empty() && cutoffs[0] > 0 && ends.is_sorted_by(|a, b| a < b);
        let expected = format_args!("cutoffs that rise from above 0 to below {n_classes}");
        require(NAME, rise, expected, format_args!("{cutoffs:?}"))?;
        let layer = |inner, outer| -> RusTorchResult<Linear> {
            Ok(Linear::new(inner, outer)?.without_bias())
        };
        let cluster = |i: usize| {
            let width = (in_features as f64 / div_value.powf(i as f64 + 1.0)).floor();
            let got = format_args!(
                "{in_features} features divided by {div_value}, {} times",
                i + 1
            );
            require(
                NAME,
                width >= 1.0 && width.is_finite(),
                "a layer for each cluster",
                got,
            )?;
            let width = width as usize;
            Ok(vec![
                layer(in_features, width)?,
                layer(width, ends[i + 1] - ends[i])?,
            ])
        };
        let head = layer(in_features, cutoffs[0] + cutoffs.len())?;
        let tail = (0..cutoffs.len())
            .map(cluster)
            .collect::<RusTorchResult<_>>()?;
        Ok(Self {
            head,
            tail,
            cutoffs: ends,
        })
    }

    /// The log-probabilities of the classes in `target`, `[n]`, and their negated mean, for `x`
    /// `[n, in_features]` and `target` `[n]`. The batch dimension is optional. Targets are integers.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Evaluation fails for a target that is not a class.
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
        let fits = matches!(x.rank(), 1 | 2) && target.shape() == &x.shape()[..x.rank() - 1];
        let got = format_args!(
            "{:?} and {} {:?}",
            x.shape(),
            target.dtype(),
            target.shape()
        );
        let expected = "an input [n, features] and targets [n], or without n";
        require(NAME, fits && target.dtype().is_int(), expected, got)?;
        let x = if x.rank() == 2 {
            x.clone()
        } else {
            x.unsqueeze(0)?
        };
        let targets = target.to_dtype(DType::I64)?.reshape([target.numel(), 1])?;
        let (head, shortlist) = (
            self.head.forward(&x)?.log_softmax(1)?,
            self.cutoffs[0] as i64,
        );
        // In the head rare classes have their cluster's place.
        let mut places = targets.clone();
        for (i, &begin) in self.cutoffs[..self.tail.len()].iter().enumerate() {
            let cluster = shortlist + i as i64;
            places = Tensor::where_(&targets.ge(begin as i64)?, cluster, &places)?;
        }
        let mut logs = head.gather(1, &places)?;
        for (i, layers) in self.tail.iter().enumerate() {
            let begin = self.cutoffs[i] as i64;
            let mut is_in = targets.ge(begin)?;
            if i + 1 < self.tail.len() {
                is_in = is_in.logical_and(&targets.lt(self.cutoffs[i + 1] as i64)?)?;
            }
            let place = Tensor::where_(&is_in, &targets.sub(begin)?, 0)?;
            let log = cluster(layers, &x)?.gather(1, &place)?;
            logs = logs.add(&Tensor::where_(&is_in, &log, 0.0)?)?;
        }
        let logs = logs.reshape(target.shape())?;
        let loss = logs.mean_all()?.neg()?;
        Ok((logs, loss))
    }

    /// The log-probabilities of all classes, `[n, n_classes]`, for `x` `[n, in_features]`.
    ///
    /// # Errors
    /// Fails for an unsupported shape or dtype.
    pub fn log_prob(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let head = self.head.forward(x)?.log_softmax(1)?;
        let mut parts = vec![head.narrow(1, 0, self.cutoffs[0])?];
        for (i, layers) in self.tail.iter().enumerate() {
            let of_cluster = head.narrow(1, self.cutoffs[0] + i, 1)?;
            parts.push(cluster(layers, x)?.add(&of_cluster)?);
        }
        Tensor::cat(&parts, 1)
    }

    /// The most probable class, `i64` `[n]`, for `x` `[n, in_features]`.
    ///
    /// # Errors
    /// Fails for an unsupported shape or dtype.
    pub fn predict(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        self.log_prob(x)?.argmax(1, false)
    }
}

/// Logarithms of the probabilities in a cluster.
fn cluster(layers: &[Linear], x: &Tensor) -> RusTorchResult<Tensor> {
    let mut x = x.clone();
    for layer in layers {
        x = layer.forward(&x)?;
    }
    x.log_softmax(1)
}
