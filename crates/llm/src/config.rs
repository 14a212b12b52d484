//! Hyper-parameters of a transformer, read from GGUF keys.

use rustorch_gguf::Gguf;
use rustorch_ir::ops::{RopeLayout, RopeScaling};

use crate::LlmError;

/// Sizes of a decoder-only transformer. Names in brackets are the GGUF keys, without the
/// architecture's prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Architecture (`general.architecture`).
    pub architecture: String,
    /// Number of layers (`block_count`).
    pub layers: usize,
    /// Features of a token (`embedding_length`).
    pub width: usize,
    /// Query heads (`attention.head_count`).
    pub heads: usize,
    /// Key and value heads (`attention.head_count_kv`).
    pub kv_heads: usize,
    /// Features of a query and key head (`attention.key_length`).
    pub key_width: usize,
    /// Features of a value head (`attention.value_length`).
    pub value_width: usize,
    /// Features between the two products of the feed-forward part (`feed_forward_length`).
    pub ff_width: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Tokens of the context it was trained with (`context_length`).
    pub context: usize,
    /// Added to the mean square by the norms (`attention.layer_norm_rms_epsilon`).
    pub rms_eps: f64,
    /// Features of a head that turn with the position (`rope.dimension_count`).
    pub rope_dims: usize,
    /// Which features form pairs: the architecture's own.
    pub rope_layout: RopeLayout,
    /// Base of the rotary frequencies (`rope.freq_base`).
    pub rope_base: f64,
    /// Scaling of the angles (`rope.scaling.*`).
    pub rope_scaling: RopeScaling,
}

/// Sizes beyond these are mistakes, or attacks: they keep sums and products in range.
const MAX_SIZE: usize = 1 << 30;
const MAX_LAYERS: usize = 4096;

/// Reads the keys of one architecture.
struct Keys<'a> {
    gguf: &'a Gguf,
    prefix: &'a str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn wrong(&self, name: &str, problem: impl ToString) -> LlmError {
        LlmError::Key {
            key: self.key(name),
            problem: problem.to_string(),
        }
    }

    fn size(&self, name: &str) -> Result<usize, LlmError> {
        let value = self.gguf.metadata.u64(&self.key(name))?;
        self.check(name, value)
    }

    fn opt_size(&self, name: &str) -> Result<Option<usize>, LlmError> {
        let value = self.gguf.metadata.opt_u64(&self.key(name))?;
        value.map(|v| self.check(name, v)).transpose()
    }

    fn check(&self, name: &str, value: u64) -> Result<usize, LlmError> {
        let size = usize::try_from(value).ok();
        size.filter(|s| (1..=MAX_SIZE).contains(s))
            .ok_or_else(|| self.wrong(name, format!("expected 1 to {MAX_SIZE}, got {value}")))
    }

    fn opt_f64(&self, name: &str) -> Result<Option<f64>, LlmError> {
        let value = self.gguf.metadata.opt_f32(&self.key(name))?.map(f64::from);
        match value {
            Some(v) if !v.is_finite() => Err(self.wrong(name, format!("{v} is not finite"))),
            _ => Ok(value),
        }
    }

    fn positive(&self, name: &str, default: f64) -> Result<f64, LlmError> {
        let value = self.opt_f64(name)?.unwrap_or(default);
        if value > 0.0 {
            Ok(value)
        } else {
            Err(self.wrong(name, format!("expected more than 0, got {value}")))
        }
    }

    /// A number of heads; some files list one for each layer, which have to agree.
    fn heads(&self, name: &str) -> Result<Option<usize>, LlmError> {
        let key = self.key(name);
        match self.gguf.metadata.opt_u64(&key) {
            Ok(value) => value.map(|v| self.check(name, v)).transpose(),
            Err(scalar) => {
                let list = self.gguf.metadata.i32_array(&key).map_err(|_| scalar)?;
                match &*list {
                    [first, rest @ ..] if rest.iter().all(|n| n == first) => {
                        let first = u64::try_from(*first).unwrap_or(0);
                        self.check(name, first).map(Some)
                    }
                    _ => Err(self.wrong(
                        name,
                        "layers with different numbers of heads are not supported",
                    )),
                }
            }
        }
    }

    fn rope_scaling(&self, context: usize) -> Result<RopeScaling, LlmError> {
        let kind = self.gguf.metadata.opt_str(&self.key("rope.scaling.type"))?;
        let legacy = self.opt_f64("rope.scale_linear")?;
        let factor = self
            .opt_f64("rope.scaling.factor")?
            .or(legacy)
            .unwrap_or(1.0);
        // llama.cpp treats a factor of 0 as none.
        let factor = if factor > 0.0 { 1.0 / factor } else { 1.0 };
        match kind {
            Some("yarn") => Ok(RopeScaling::Yarn {
                factor: factor.into(),
                extrapolation: self
                    .opt_f64("rope.scaling.yarn_ext_factor")?
                    .unwrap_or(1.0)
                    .into(),
                attention: self.positive("rope.scaling.attn_factor", 1.0)?.into(),
                beta_fast: self.positive("rope.scaling.yarn_beta_fast", 32.0)?.into(),
                beta_slow: self.positive("rope.scaling.yarn_beta_slow", 1.0)?.into(),
                original_context: (self.opt_size("rope.scaling.original_context_length")?)
                    .unwrap_or(context),
            }),
            None | Some("linear") => Ok(RopeScaling::Linear {
                factor: factor.into(),
            }),
            Some("none") => Ok(RopeScaling::NONE),
            Some(other) => Err(LlmError::Unsupported {
                what: format!("rope scaling {other:?}"),
                supported: "none, linear, yarn and rope_freqs.weight (llama3) are".to_owned(),
            }),
        }
    }
}

impl Config {
    /// The hyper-parameters of a file of `architecture`, whose pairs lie as `rope_layout`.
    ///
    /// # Errors
    /// A key is missing, of another type, or makes no sense.
    pub fn from_gguf(
        gguf: &Gguf,
        architecture: &str,
        rope_layout: RopeLayout,
    ) -> Result<Self, LlmError> {
        let keys = Keys {
            gguf,
            prefix: architecture,
        };
        let experts = gguf
            .metadata
            .opt_u64(&keys.key("expert_count"))?
            .unwrap_or(0);
        if experts > 0 {
            return Err(LlmError::Unsupported {
                what: format!("{architecture} with {experts} experts"),
                supported: "models with one dense feed-forward part in each layer are".to_owned(),
            });
        }
        let layers = keys.size("block_count")?;
        if layers > MAX_LAYERS {
            return Err(keys.wrong(
                "block_count",
                format!("{layers} layers are more than {MAX_LAYERS}"),
            ));
        }
        let (width, context) = (keys.size("embedding_length")?, keys.size("context_length")?);
        let heads = keys.heads("attention.head_count")?;
        let heads = heads.ok_or_else(|| keys.wrong("attention.head_count", "missing"))?;
        let kv_heads = keys.heads("attention.head_count_kv")?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let problem = format!("{kv_heads} does not divide the {heads} query heads");
            return Err(keys.wrong("attention.head_count_kv", problem));
        }
        let head_width = || match width.is_multiple_of(heads) {
            true => Ok(width / heads),
            false => Err(keys.wrong(
                "attention.key_length",
                "missing, and heads do not divide the width",
            )),
        };
        let key_width = keys
            .opt_size("attention.key_length")?
            .map_or_else(head_width, Ok)?;
        let value_width = keys
            .opt_size("attention.value_length")?
            .map_or_else(head_width, Ok)?;
        let rope_dims = keys.opt_size("rope.dimension_count")?.unwrap_or(key_width);
        if rope_dims > key_width || !rope_dims.is_multiple_of(2) {
            let problem =
                format!("expected an even number of at most {key_width}, got {rope_dims}");
            return Err(keys.wrong("rope.dimension_count", problem));
        }
        Ok(Self {
            architecture: architecture.to_owned(),
            layers,
            width,
            heads,
            kv_heads,
            key_width,
            value_width,
            ff_width: keys.size("feed_forward_length")?,
            vocab: vocab(gguf, &keys)?,
            context,
            rms_eps: keys.positive("attention.layer_norm_rms_epsilon", 1e-5)?,
            rope_dims,
            rope_layout,
            rope_base: keys.positive("rope.freq_base", 10_000.0)?,
            rope_scaling: keys.rope_scaling(context)?,
        })
    }
}

/// Size of the vocabulary: that of the embedding table, which every other has to fit.
fn vocab(gguf: &Gguf, keys: &Keys) -> Result<usize, LlmError> {
    let name = "token_embd.weight";
    let table = gguf.tensor(name).ok_or_else(|| LlmError::Weight {
        name: name.to_owned(),
        problem: "missing".to_owned(),
    })?;
    match table.shape()[..] {
        [vocab, _] => keys.check("vocab_size", vocab as u64),
        ref shape => Err(LlmError::Weight {
            name: name.to_owned(),
            problem: format!("expected a table of 2 dimensions, got {shape:?}"),
        }),
    }
}
