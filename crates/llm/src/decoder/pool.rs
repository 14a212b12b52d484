//! The way from the last layer's tokens to embeddings of texts and to scores.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::linear::{Linear, Scaled};
use super::norm::Norm;
use super::pass::Pass;
use crate::LlmError;
use crate::spec::{ModelSpec, Need, NormKind, NormSpec, PoolSpec, Pooling};
use crate::weights::Loader;

/// Products behind pooling, as far as the file has them.
pub(crate) struct Pool {
    spec: PoolSpec,
    width: usize,
    /// The classifier's first product, with an activation behind it.
    classifier: Option<Linear>,
    classifier_norm: Option<Norm>,
    /// The classifier's last product.
    scores: Option<Linear>,
    /// Products of embeddings (`sentence-transformers`' dense modules).
    dense: Vec<Linear>,
}

impl Pool {
    /// The weights `cls`, `cls.norm`, `cls.output`, `dense_2` and `dense_3`.
    pub(crate) fn load(w: &Loader, spec: &ModelSpec) -> Result<Self, LlmError> {
        let norm = NormSpec {
            kind: NormKind::Layer,
            name: "cls.norm",
            weight: Need::Optional,
            bias: true,
            eps: spec.head.norm.map_or(0.0, |norm| norm.eps),
        };
        let has_norm = w.has("cls.norm.weight");
        let (mut dense, mut width) = (Vec::new(), spec.width);
        for name in ["dense_2", "dense_3"] {
            if let Some(product) = product(w, name, width)? {
                width = product.outputs();
                dense.push(product);
            }
        }
        Ok(Self {
            spec: spec.pool,
            width: spec.width,
            classifier: product(w, "cls", spec.width)?,
            classifier_norm: Norm::opt(w, "", Some(&norm).filter(|_| has_norm), spec.width)?,
            scores: product(w, "cls.output", spec.width)?,
            dense,
        })
    }

    /// Numbers of an embedding.
    pub(crate) fn width(&self) -> usize {
        self.dense.last().map_or(self.width, Linear::outputs)
    }

    /// Returns whether there are scores. A first product as wide as the model is only a step to them.
    pub(crate) fn has_scores(&self) -> bool {
        let width = |classifier: &Linear| classifier.outputs() != self.width;
        self.scores.is_some() || self.classifier.as_ref().is_some_and(width)
    }

    /// Rows of texts, `f32` `[texts, …]`, from the last layer's results `x` `[texts, t, width]`: the sums of tokens by
    /// their `weights` `[texts, t]`, and the products behind them. Without pooling, rows of tokens `[texts · t, …]`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        weights: &Tensor,
        pooling: Pooling,
        pass: &Pass,
    ) -> RusTorchResult<Tensor> {
        let rows = match pooling {
            Pooling::None => x.reshape([x.shape()[0] * x.shape()[1], self.width])?,
            _ => weights.unsqueeze(1)?.matmul(x)?.squeeze(1)?,
        };
        match pooling {
            Pooling::Rank => self.rank(rows, pass),
            _ => (self.dense.iter()).try_fold(rows, |x, dense| dense.forward(&x, pass)),
        }
    }

    fn rank(&self, x: Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let x = match &self.classifier {
            Some(classifier) => self.spec.activation.of(&classifier.forward(&x, pass)?)?,
            None => x,
        };
        let x = Norm::apply(self.classifier_norm.as_ref(), x)?;
        let x = match &self.scores {
            Some(scores) => scores.forward(&x, pass)?,
            None => x,
        };
        match self.spec.softmax {
            true => x.softmax(-1),
            false => Ok(x),
        }
    }
}

/// The product `name`, if the file has it. One of a single output is a row, which files write as a vector too.
fn product(w: &Loader, name: &str, inputs: usize) -> Result<Option<Linear>, LlmError> {
    let weight = format!("{name}.weight");
    Ok(match w.shape(&weight).as_deref() {
        None => None,
        Some([_]) => {
            let row = w.get(&weight, &[inputs])?.reshape([1, inputs])?;
            let bias = w.opt_f32(&format!("{name}.bias"), &[1])?;
            Some(Linear::tied(weight, row, bias))
        }
        Some(shape) => {
            let rows = shape.first().copied().unwrap_or(1);
            Some(Linear::load(w, name, rows, inputs, Scaled::Never)?)
        }
    })
}
