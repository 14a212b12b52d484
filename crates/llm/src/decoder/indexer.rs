//! Choice of the keys that a token sees.

use rustorch_ir::DType;
use rustorch_ir::ops::Rope;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::linear::{Linear, Scaled};
use super::norm::Norm;
use super::pass::Pass;
use crate::LlmError;
use crate::spec::IndexerSpec;
use crate::weights::Loader;

/// Queries `[…, heads, t, width]` and weights `[…, heads, t, 1]` of tokens.
pub(super) struct Asked {
    queries: Tensor,
    weights: Tensor,
}

impl Asked {
    /// The part of the token at this place among all.
    pub(super) fn row(&self, index: usize) -> RusTorchResult<Self> {
        Ok(Self {
            queries: self.queries.narrow(-2, index, 1)?,
            weights: self.weights.narrow(-2, index, 1)?,
        })
    }
}

/// Choice of the keys that a token sees.
pub(super) struct Indexer {
    heads: usize,
    width: usize,
    chosen: usize,
    rope: Rope,
    queries: Linear,
    key: Linear,
    norm: Norm,
    weights: Linear,
}

impl Indexer {
    /// The weights `{prefix}indexer.*`, of queries that are products of `rank` features.
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        spec: &IndexerSpec,
        [width, rank]: [usize; 2],
    ) -> Result<Option<Self>, LlmError> {
        let IndexerSpec::Own {
            heads,
            width: own,
            chosen,
            norm,
            rope,
        } = spec
        else {
            return Ok(None);
        };
        let load = |name, outputs, inputs| {
            let name = format!("{prefix}indexer.{name}");
            Linear::load(w, &name, outputs, inputs, Scaled::Never)
        };
        Ok(Some(Self {
            queries: load("attn_q_b", heads * own, rank)?,
            key: load("attn_k", *own, width)?,
            norm: Norm::load(w, prefix, norm, *own)?,
            weights: load("proj", *heads, width)?,
            heads: *heads,
            width: *own,
            chosen: *chosen,
            rope: rope.clone(),
        }))
    }

    /// Features of a key.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The layer's input `x` `[b · t, width]` to keys `[b · t, own width]`.
    pub(super) fn keys(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let keys = self
            .norm
            .forward(&pass.at_home(&self.key.forward(x, pass)?)?)?;
        let keys = pass
            .by_sequence(&keys, [1, self.width])?
            .transpose(-3, -2)?;
        let keys = keys.rope(pass.positions, None, &self.rope)?;
        keys.transpose(-3, -2)?.reshape([x.size(0)?, self.width])
    }

    /// Operands of the choice, for the layer's input `x` `[b · t, width]`. Queries are products of `few`
    /// `[b · t, rank]`.
    pub(super) fn asked(&self, x: &Tensor, few: &Tensor, pass: &Pass) -> RusTorchResult<Asked> {
        let queries = pass.at_home(&self.queries.forward(few, pass)?)?;
        let queries = pass.by_sequence(&queries, [self.heads, self.width])?;
        let queries = queries.transpose(-3, -2)?;
        let weights = pass.at_home(&self.weights.forward(x, pass)?)?;
        let weights = pass.by_sequence(&weights, [self.heads, 1])?;
        Ok(Asked {
            queries: queries.rope(pass.positions, None, &self.rope)?,
            weights: weights.transpose(-3, -2)?,
        })
    }

    /// The addend to scores, `f32` `[…, 1, t, s]`: −∞ where a key is not chosen. The keys are those of the cache,
    /// `[…, 1, s, features]`, with the indexer's behind. `None` if all are chosen.
    pub(super) fn mask(
        &self,
        asked: &Asked,
        keys: &Tensor,
        pass: &Pass,
    ) -> RusTorchResult<Option<Tensor>> {
        let count = keys.size(-2)?;
        if count <= self.chosen {
            return Ok(None);
        }
        let own = keys.narrow(-1, keys.size(-1)? - self.width, self.width)?;
        let own = own.to_dtype(DType::F32)?;
        let scores = asked.queries.matmul(&own.transpose(-2, -1)?)?.relu()?;
        let scores = scores.mul(&asked.weights)?.sum(-3, true)?;
        let places = Tensor::arange_with(0, count as i64, 1, DType::I32)?;
        let is_seen = places.le(&pass.positions.unsqueeze(1)?)?;
        let never = Tensor::full([1], f64::NEG_INFINITY, DType::F32)?;
        let scores = Tensor::where_(&is_seen, &scores, &never)?;
        let (_, chosen) = scores.topk(self.chosen, -1, true)?;
        let none = Tensor::full(scores.shape(), f64::NEG_INFINITY, DType::F32)?;
        Ok(Some(none.scatter(-1, &chosen, 0.0)?))
    }
}
