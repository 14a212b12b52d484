//! Hyper-parameters of a transformer, read from GGUF keys.

use rustorch_gguf::Gguf;
use rustorch_ir::ops::{RopeLayout, RopeScaling};

use crate::LlmError;
use crate::keys::Keys;
use crate::rotary::{RopeOptions, Rotary};

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
    /// Tokens of the context it was trained with (`context_length`), or that YaRN was asked to
    /// stretch that to.
    pub context: usize,
    /// Added to the mean square by the norms (`attention.layer_norm_rms_epsilon`).
    pub rms_eps: f64,
    /// Features of a head that turn with the position (`rope.dimension_count`).
    pub rope_dims: usize,
    /// Which features form pairs: the architecture's own.
    pub rope_layout: RopeLayout,
    /// Base of the rotary frequencies (`rope.freq_base`, or [`RopeOptions`]).
    pub rope_base: f64,
    /// Scaling of the angles (`rope.scaling.*`, or [`RopeOptions`]).
    pub rope_scaling: RopeScaling,
}

/// More layers than this are a mistake, or an attack.
const MAX_LAYERS: usize = 4096;

impl Config {
    /// The hyper-parameters of a file of `architecture`, whose pairs lie as `rope_layout`, with the
    /// rotary embedding that `rope` asks for.
    ///
    /// # Errors
    /// A key is missing, of another type, or makes no sense; so does an option.
    pub fn from_gguf(
        gguf: &Gguf,
        architecture: &str,
        rope_layout: RopeLayout,
        rope: &RopeOptions,
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
        let rotary = Rotary::resolve(&keys, rope, context)?;
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
            context: rotary.context,
            rms_eps: keys.positive("attention.layer_norm_rms_epsilon", 1e-5)?,
            rope_dims,
            rope_layout,
            rope_base: rotary.base,
            rope_scaling: rotary.scaling,
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
