//! Latent attention: keys and values of all heads by way of one vector.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::experts::ExpertLinear;
use super::indexer::{Asked, Indexer};
use super::linear::{Linear, Scaled};
use super::norm::Norm;
use super::pass::Pass;
use crate::LlmError;
use crate::spec::{IndexerSpec, LatentSpec};
use crate::weights::Loader;

/// The product from the vector to keys and values.
enum Expansion {
    /// Two products: one of the queries, for keys, and one of the results, for values.
    Absorbed {
        keys: ExpertLinear,
        values: ExpertLinear,
    },
    Whole(Linear),
}

/// The products that make queries, keys and values. Rotated features come first in a head.
pub(super) struct Latent {
    spec: LatentSpec,
    heads: usize,
    /// The queries' first product and its norm.
    query_rank: Option<(Linear, Norm)>,
    queries: Linear,
    /// The vector, and the rotated features of the keys.
    vector: Linear,
    norm: Norm,
    expansion: Expansion,
    /// The choice of keys, if it has its own.
    indexer: Option<Indexer>,
}

impl Latent {
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        spec: &LatentSpec,
        indexer: Option<&IndexerSpec>,
        [heads, width]: [usize; 2],
    ) -> Result<Self, LlmError> {
        let name = |part| format!("{prefix}attn_{part}");
        let load =
            |part, outputs, inputs| Linear::load(w, &name(part), outputs, inputs, Scaled::Never);
        let all = heads * (spec.plain + spec.rotated);
        let (query_rank, queries) = match &spec.queries {
            Some((rank, norm)) => {
                let first = load("q_a", *rank, width)?;
                let norm = Norm::load(w, prefix, norm, *rank)?;
                (Some((first, norm)), load("q_b", all, *rank)?)
            }
            None => (None, load("q", all, width)?),
        };
        let each = |part, outputs, inputs| {
            ExpertLinear::load(w, &name(part), [heads, outputs, inputs], false)
        };
        Ok(Self {
            query_rank,
            queries,
            vector: load("kv_a_mqa", spec.rank + spec.rotated, width)?,
            norm: Norm::load(w, prefix, &spec.norm, spec.rank)?,
            expansion: match spec.absorbed {
                true => Expansion::Absorbed {
                    keys: each("k_b", spec.rank, spec.plain)?,
                    values: each("v_b", spec.value_width, spec.rank)?,
                },
                false => {
                    let all = heads * (spec.plain + spec.value_width);
                    Expansion::Whole(load("kv_b", all, spec.rank)?)
                }
            },
            indexer: match (indexer, &spec.queries) {
                (Some(indexer), Some((rank, _))) => {
                    Indexer::load(w, prefix, indexer, [width, *rank])?
                }
                _ => None,
            },
            spec: *spec,
            heads,
        })
    }

    /// The choice of keys, if it has its own.
    pub(super) fn indexer(&self) -> Option<&Indexer> {
        self.indexer.as_ref()
    }

    /// `x` `[t, width]` to queries, keys and values `[t, heads · head width]`, and the operands of the choice of keys.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
    ) -> RusTorchResult<([Tensor; 3], Option<Asked>)> {
        let (spec, t, heads) = (&self.spec, x.size(0)?, self.heads);
        let product = |linear: &Linear, x: &Tensor| pass.at_home(&linear.forward(x, pass)?);
        let few = match &self.query_rank {
            Some((first, norm)) => norm.forward(&product(first, x)?)?,
            None => x.clone(),
        };
        let q = product(&self.queries, &few)?;
        let q = q.reshape([t, heads, spec.plain + spec.rotated])?;
        let plain = q.narrow(2, 0, spec.plain)?;
        let rotated = q.narrow(2, spec.plain, spec.rotated)?;
        let vector = product(&self.vector, x)?;
        let shared = vector.narrow(1, spec.rank, spec.rotated)?;
        let vector = self.norm.forward(&vector.narrow(1, 0, spec.rank)?)?;
        let (plain, k, v) = match &self.expansion {
            Expansion::Absorbed { keys, .. } => {
                let plain = pass.at_home(&keys.forward(&plain, &self.ids(t)?, pass)?)?;
                let k = Tensor::cat(&[&shared, &vector], 1)?;
                (plain, k, vector)
            }
            Expansion::Whole(both) => {
                let each = spec.plain + spec.value_width;
                let both = product(both, &vector)?.reshape([t, heads, each])?;
                let shared = shared.unsqueeze(1)?.expand([t, heads, spec.rotated])?;
                let k = Tensor::cat(&[&shared, &both.narrow(2, 0, spec.plain)?], 2)?;
                (plain, k, both.narrow(2, spec.plain, spec.value_width)?)
            }
        };
        let mut q = Tensor::cat(&[&rotated, &plain], 2)?;
        let (mut k, mut asked) = (k, None);
        if let Some(indexer) = &self.indexer {
            // Queries have zeros where keys have those of the choice.
            let zeros = Tensor::zeros([t, heads, indexer.width()], DType::F32)?;
            q = Tensor::cat(&[&q, &zeros], 2)?;
            k = Tensor::cat(&[&k, &indexer.keys(x, pass)?], 1)?;
            asked = Some(indexer.asked(x, &few, pass)?);
        }
        let flat = |x: Tensor| match x.rank() {
            2 => Ok(x),
            _ => x.flatten(1, 2),
        };
        Ok(([flat(q)?, flat(k)?, flat(v)?], asked))
    }

    /// The heads' results, for what they attended to: `[t, heads, value width]`.
    pub(super) fn results(&self, y: Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        match &self.expansion {
            Expansion::Absorbed { values, .. } => {
                let ids = self.ids(y.size(0)?)?;
                pass.at_home(&values.forward(&y, &ids, pass)?)
            }
            Expansion::Whole(_) => Ok(y),
        }
    }

    /// The heads of each token, `i64` `[t, heads]`: a product of a head has weights of its own, as that of an expert.
    fn ids(&self, t: usize) -> RusTorchResult<Tensor> {
        let ids = Tensor::arange_with(0, self.heads as i64, 1, DType::I64)?;
        ids.unsqueeze(0)?.expand([t, self.heads])
    }
}
