//! Descriptions of models: plain data, from which weights, caches and forward passes are built.

use std::ops::Range;

use rustorch_ir::ops::Rope;

/// Begin of the names of T5's encoder.
pub(crate) const ENCODER: &str = "enc.";

/// The layer that a tensor belongs to, by its name in a file.
pub fn layer_of(name: &str) -> Option<usize> {
    let name = name.strip_prefix(ENCODER).unwrap_or(name);
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Returns whether a tensor serves before the first layer: a table, the norm of its rows, or what makes each layer's
/// own input.
pub fn is_before_layers(name: &str) -> bool {
    Role::of(name).is_some_and(Role::is_table)
        || name.starts_with("token_embd_norm.")
        || name.starts_with("per_layer_")
}

/// A tensor that a model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in a file.
    pub name: String,
    /// Shape, slowest dimension first.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// The role of a matrix or of a stack of matrices; `None` for norms, biases and other factors.
    pub fn role(&self) -> Option<Role> {
        Role::of(&self.name)
    }

    /// Returns whether it is a stack of experts' matrices.
    pub fn are_experts(&self) -> bool {
        self.shape.len() == 3 && self.role().is_some_and(|role| role != Role::EachHead)
    }

    /// Returns whether a low-rank adapter extends its products. This is so for the products of layers that all tokens
    /// pass through.
    pub fn is_adaptable(&self) -> bool {
        let is_product = self.role().is_some_and(|role| role != Role::Router);
        is_product && self.layer().is_some() && self.shape.len() == 2
    }

    /// Returns whether training leaves it unchanged. Divisors of frequencies get no gradient, nor does what
    /// only chooses experts or keys.
    pub fn is_fixed(&self) -> bool {
        let parts = ["exp_probs_b", ".indexer."];
        self.name.starts_with("rope_") || parts.iter().any(|part| self.name.contains(part))
    }

    /// The layer that it belongs to.
    pub fn layer(&self) -> Option<usize> {
        layer_of(&self.name)
    }
}

/// Role of a matrix of weights: the product or the table that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Table of the tokens' features.
    TokenEmbedding,
    /// Table of the positions' features.
    PositionEmbedding,
    /// Table of the token types' features.
    TypeEmbedding,
    /// Product that gives logits.
    Head,
    /// Product that gives queries.
    Queries,
    /// Product that gives keys.
    Keys,
    /// Product that gives values.
    Values,
    /// Product that gives queries, keys and values.
    QueriesKeysValues,
    /// First product of latent attention: features that queries, or keys and values, are products of.
    Latent,
    /// Product of each head's queries or results.
    EachHead,
    /// Gate of attention's result.
    AttentionGate,
    /// Last product of attention.
    AttentionOutput,
    /// Gate of a feed-forward part.
    Gate,
    /// Values of a feed-forward part; in some models with the gate.
    Up,
    /// Gate and values of a feed-forward part.
    GateUp,
    /// Last product of a feed-forward part.
    Down,
    /// Logits of experts.
    Router,
    /// Products that make and read a layer's own input.
    OwnInput,
    /// Product after the pooling of a text's tokens.
    Pooling,
    /// Product that gives operands of a recurrence.
    RecurrentInput,
    /// Last product of a recurrence.
    RecurrentOutput,
}

impl Role {
    /// Names that no layer has, without endings.
    const TABLES: [(&str, Self); 10] = [
        ("token_embd", Self::TokenEmbedding),
        ("per_layer_token_embd", Self::TokenEmbedding),
        ("per_layer_model_proj", Self::OwnInput),
        ("position_embd", Self::PositionEmbedding),
        ("token_types", Self::TypeEmbedding),
        ("output", Self::Head),
        ("cls", Self::Pooling),
        ("cls.output", Self::Pooling),
        ("dense_2", Self::Pooling),
        ("dense_3", Self::Pooling),
    ];

    /// Names in layers, without the layer's prefix and without endings.
    const PRODUCTS: [(&str, Self); 42] = [
        ("attn_q", Self::Queries),
        ("attn_q_a", Self::Latent),
        ("attn_q_b", Self::Queries),
        ("attn_kv_a_mqa", Self::Latent),
        ("attn_k_b", Self::EachHead),
        ("attn_v_b", Self::EachHead),
        ("attn_k", Self::Keys),
        ("attn_v", Self::Values),
        ("attn_kv_b", Self::Values),
        ("attn_qkv", Self::QueriesKeysValues),
        ("attn_gate", Self::AttentionGate),
        ("attn_output", Self::AttentionOutput),
        ("ffn_gate", Self::Gate),
        ("ffn_up", Self::Up),
        ("ffn_gate_up", Self::GateUp),
        ("ffn_down", Self::Down),
        ("ffn_gate_inp", Self::Router),
        ("ffn_latent_down", Self::Up),
        ("ffn_latent_up", Self::Down),
        ("inp_gate", Self::OwnInput),
        ("proj", Self::OwnInput),
        ("ssm_in", Self::RecurrentInput),
        ("ssm_x", Self::RecurrentInput),
        ("ssm_dt", Self::RecurrentInput),
        ("ssm_ba", Self::RecurrentInput),
        ("ssm_alpha", Self::RecurrentInput),
        ("ssm_beta", Self::RecurrentInput),
        ("ssm_f_a", Self::RecurrentInput),
        ("ssm_f_b", Self::RecurrentInput),
        ("ssm_g_a", Self::RecurrentInput),
        ("ssm_g_b", Self::RecurrentInput),
        ("in_proj", Self::RecurrentInput),
        ("time_mix_receptance", Self::RecurrentInput),
        ("time_mix_key", Self::RecurrentInput),
        ("time_mix_value", Self::RecurrentInput),
        ("time_mix_gate", Self::RecurrentInput),
        ("channel_mix_key", Self::RecurrentInput),
        ("channel_mix_receptance", Self::RecurrentInput),
        ("ssm_out", Self::RecurrentOutput),
        ("out_proj", Self::RecurrentOutput),
        ("time_mix_output", Self::RecurrentOutput),
        ("channel_mix_value", Self::RecurrentOutput),
    ];

    /// Endings of names: experts, experts that all tokens share, and experts of groups.
    const ENDINGS: [&str; 4] = ["", "_exps", "_shexp", "_chexps"];

    /// Returns whether a token reads one row of it.
    pub fn is_table(self) -> bool {
        matches!(
            self,
            Self::TokenEmbedding | Self::PositionEmbedding | Self::TypeEmbedding
        )
    }

    /// The role of the tensor of this name. Names of other architectures have more before the same parts.
    pub fn of(name: &str) -> Option<Self> {
        let part = name.strip_suffix(".weight")?;
        if let Some((_, role)) = Self::TABLES.iter().find(|(own, _)| *own == part) {
            return Some(*role);
        }
        let (_, part) = part.rsplit_once('.')?;
        let part = part.strip_prefix("cross_").unwrap_or(part);
        let is_named = |own: &str| {
            let ending = part.strip_prefix(own);
            ending.is_some_and(|ending| Self::ENDINGS.contains(&ending))
        };
        let mut names = Self::PRODUCTS.iter();
        names.find(|(own, _)| is_named(own)).map(|(_, role)| *role)
    }
}

/// Description of a decoder or an encoder: the sizes of a model and of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Architecture (`general.architecture`).
    pub architecture: String,
    /// Vocabulary size.
    pub vocab: usize,
    /// Features of a token (`embedding_length`).
    pub width: usize,
    /// Context size in tokens: that of training, or the larger one that YaRN extends it to.
    pub context: usize,
    /// The embedding: from token ids to the first layer.
    pub embedding: EmbeddingSpec,
    /// Layers in the order in which they compute.
    pub layers: Vec<LayerSpec>,
    /// The head: from the last layer to logits.
    pub head: HeadSpec,
    /// The way from the last layer to the embedding of a text.
    pub pool: PoolSpec,
    /// Parts of the names of tensors that a file may have but the model does not read.
    pub unread: &'static [&'static str],
}

/// Whether a file must have this tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Required: a file without it is rejected.
    Required,
    /// Optional: used if the file has it.
    Optional,
    /// Never read.
    Absent,
}

/// Kind of a norm of the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Root-mean-square norm ([Zhang and Sennrich](https://arxiv.org/abs/1910.07467)).
    Rms,
    /// Layer norm ([Ba et al.](https://arxiv.org/abs/1607.06450)).
    Layer,
}

/// A norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// The kind.
    pub kind: NormKind,
    /// Name of the tensors in their layer, without `.weight`.
    pub name: &'static str,
    /// Presence of the weights.
    pub weight: Need,
    /// Adds `{name}.bias`, if the file has it.
    pub bias: bool,
    /// Addend to the mean square or variance.
    pub eps: f64,
}

/// Token embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// Multiplier of the rows.
    pub scale: f64,
    /// Norm of the rows.
    pub norm: Option<NormSpec>,
    /// Presence of learned positions (`position_embd`), `[context, width]`.
    pub positions: Need,
    /// Number of token types (`token_types`); 0 for a model without them.
    pub types: usize,
    /// Inputs that each layer has of its own.
    pub layer_inputs: Option<LayerInputsSpec>,
    /// Name of the first value `[width]` of a second state (HRM-Text); the embedding is that of the other.
    pub low_state: Option<&'static str>,
    /// Number of streams that layers predict and correct
    /// ([AltUp](https://arxiv.org/abs/2301.13310)). The first one is the embedding, the others are products of it.
    pub streams: Option<usize>,
}

/// Inputs that each layer has of its own (Gemma 4): `(n(x · per_layer_model_proj / √width) + √w · row) / √2`, with
/// rows of `per_layer_token_embd`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInputsSpec {
    /// Features `w` of a layer's input.
    pub width: usize,
    /// The norm `n` of each layer's part of the product.
    pub norm: NormSpec,
}

/// Output head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// Norm of the last layer's result.
    pub norm: Option<NormSpec>,
    /// Presence of `output`. The embedding table serves where an optional one is not there. A model that has none
    /// by its architecture computes no logits.
    pub output: Need,
    /// Number of logits that the head computes; earlier ones are −∞.
    pub logits: usize,
    /// Multiplies the result by `output.scale`, if the file has it.
    pub scales: bool,
    /// Adds `output.bias`, if the file has it.
    pub bias: bool,
    /// Multiplier of the logits.
    pub scale: f64,
    /// `c` of `c · tanh(logit / c)`.
    pub soft_cap: Option<f64>,
    /// Tokens that are never chosen; their logits are the smallest number.
    pub hidden: Range<usize>,
}

/// Way from the last layer's tokens to one vector of a text. The numbers are those of `pooling_type` in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// None: a vector for each token.
    None = 0,
    /// The mean of all tokens.
    Mean = 1,
    /// The first token.
    Cls = 2,
    /// The last token.
    Last = 3,
    /// The scores of the model's classifier.
    Rank = 4,
}

impl Pooling {
    /// The pooling of a number in a file, if there is one.
    pub(crate) fn of(number: u64) -> Option<Self> {
        let all = [Self::None, Self::Mean, Self::Cls, Self::Last, Self::Rank];
        all.into_iter().find(|&pooling| pooling as u64 == number)
    }
}

/// The way from the last layer to the embedding of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolSpec {
    /// The pooling that the file asks for.
    pub pooling: Pooling,
    /// The vector that the classifier reads.
    pub ranked: Pooling,
    /// Activation after the classifier's first product (`cls`).
    pub activation: Activation,
    /// Whether the classifier's scores are probabilities.
    pub softmax: bool,
    /// Tokens beyond which a text is cut; the context, if the file has no such key.
    pub tokens: usize,
}

/// A layer: `x + mixer(norm(x))`, then the same with the feed-forward part.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Index of the layer whose weights these are (`blk.{index}`).
    pub index: usize,
    /// Begin of the names of its tensors, before `blk`.
    pub scope: &'static str,
    /// Norm before the mixer.
    pub norm: Option<NormSpec>,
    /// The part that mixes tokens.
    pub mixer: Mixer,
    /// Norm of the mixer's result.
    pub out_norm: Option<NormSpec>,
    /// Products by way of few features of the mixer's input. Their result and the mixer's share the sum equally.
    pub laurel: Option<LaurelSpec>,
    /// Norm of the input of the router that predicts and corrects streams, in a model with streams.
    pub router_norm: Option<NormSpec>,
    /// Norms of the sum of input and mixer's result. Before each further one, the input is added again.
    pub sum_norms: Vec<NormSpec>,
    /// Order of the two parts.
    pub residual: Residual,
    /// Norm before the feed-forward part.
    pub ffn_norm: Option<NormSpec>,
    /// The part that computes each token separately.
    pub ffn: FfnSpec,
    /// Norm of the feed-forward part's result.
    pub ffn_out_norm: Option<NormSpec>,
    /// Experts that read the layer's input through their own norm; their result is added (Arctic).
    pub input_experts: Option<(NormSpec, ExpertsSpec)>,
    /// Multiplier of both parts' results.
    pub residual_scale: f64,
    /// Norm of the layer's result.
    pub result_norm: Option<NormSpec>,
    /// Whether the layer adds the embedding, times `layer_output_scale`.
    pub embedding_skip: bool,
    /// The part that reads the layer's own input.
    pub own_input: Option<OwnInputSpec>,
    /// Presence of a factor of the layer's result (`layer_output_scale`).
    pub factor: Need,
    /// Multiplier of the layer's result.
    pub result_scale: f64,
    /// Norm of the layer's result, whose weights belong to no layer.
    pub last_norm: Option<NormSpec>,
    /// The end of a stack that the layer is.
    pub stack: StackSpec,
}

/// The ends of a stack of layers that the layer is, in a model with two states (HRM-Text). The first layer reads the
/// sum of both states, and the result of the last one replaces a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSpec {
    /// Whether the layer is the first one.
    pub is_first: bool,
    /// The state that the result replaces, if the layer is the last one.
    pub replaces: Option<State>,
}

/// One of two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The state of more cycles.
    Low,
    /// The state of the embedding and of the logits.
    High,
}

/// The part that reads a layer's own input `i`: `x + norm((act(x · inp_gate) · i) · proj)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnInputSpec {
    /// Features of the input.
    pub width: usize,
    /// The activation.
    pub activation: Activation,
    /// The norm.
    pub norm: NormSpec,
}

/// Learned augmented residual of few features (Gemma 3n): `x + norm(x · laurel_l · laurel_r)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaurelSpec {
    /// Features between the products.
    pub rank: usize,
    /// The norm.
    pub norm: NormSpec,
}

/// Order of a layer's two parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residual {
    /// The feed-forward part reads the sum of input and mixer.
    Sequential,
    /// Both parts read the layer's input. The feed-forward part uses its own norm, or the mixer's.
    Parallel,
    /// The order of `Sequential`. Each result has its normed input added, times this factor (MiniMax-01).
    Normed(f64),
}

/// The part of a layer that mixes tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Self-attention.
    Attention(Box<AttentionSpec>),
    /// A recurrence.
    Recurrent(Box<RecurrentSpec>),
    /// The sum of both (Falcon-H1).
    Sum(Box<AttentionSpec>, Box<RecurrentSpec>),
    /// One product with `attn_output`.
    Linear,
    /// Nothing; there is no residual connection either.
    None,
}

impl Mixer {
    /// Self-attention, if it has some.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        match self {
            Self::Attention(attention) | Self::Sum(attention, _) => Some(attention),
            Self::Recurrent(_) | Self::Linear | Self::None => None,
        }
    }

    /// The recurrence, if it has one.
    pub fn recurrent(&self) -> Option<&RecurrentSpec> {
        match self {
            Self::Recurrent(recurrent) | Self::Sum(_, recurrent) => Some(recurrent),
            Self::Attention(_) | Self::Linear | Self::None => None,
        }
    }
}

/// A recurrence: a causal convolution of a few tokens, and heads with a state `[value width, key width]` each. RWKV has
/// a mixture of two tokens in the place of the convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentSpec {
    /// The kind.
    pub kind: RecurrentKind,
    /// Tokens that the convolution reads.
    pub kernel: usize,
    /// Heads.
    pub heads: usize,
    /// Groups of heads with the same keys.
    pub groups: usize,
    /// Features of a key head.
    pub key_width: usize,
    /// Features of a value head.
    pub value_width: usize,
    /// Multiplies the results of products by `.scale` tensors, if the file has them.
    pub scales: bool,
}

/// Kinds of recurrences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecurrentKind {
    /// Selective state space of single channels ([Mamba](https://arxiv.org/abs/2312.00752)). A channel is a head.
    Mamba {
        /// Features that time steps are made of.
        rank: usize,
        /// Norm of time steps, keys and reads, without names.
        norm: Option<NormSpec>,
        /// Whether several channels are a head with one decay (PLaMo 2). Products then have their parts in another
        /// order.
        by_head: bool,
    },
    /// State space of heads with one decay each ([Mamba 2](https://arxiv.org/abs/2405.21060)).
    Mamba2 {
        /// Norm of each group's result (`ssm_norm`).
        norm: Option<NormSpec>,
    },
    /// Gated delta net ([Yang et al.](https://arxiv.org/abs/2412.06464)).
    DeltaNet {
        /// Norm of each head's result (`ssm_norm`).
        norm: NormSpec,
        /// Whether one product (`ssm_ba`) makes both gates, and heads of one group follow each other.
        is_grouped: bool,
    },
    /// Delta net with a decay of each key feature ([Kimi Linear](https://arxiv.org/abs/2510.26692)).
    Kda {
        /// Norm of each head's result (`ssm_norm`).
        norm: NormSpec,
    },
    /// Linear attention with a constant decay of each head, without a convolution
    /// ([Lightning Attention 2](https://arxiv.org/abs/2401.04658)).
    Lightning {
        /// Norm of all heads' results together.
        norm: NormSpec,
        /// Multiplier of the decays' exponents.
        slope: f64,
    },
    /// Convolution between two gates, without a matrix ([LFM2](https://arxiv.org/abs/2511.23404)).
    ShortConvolution,
    /// Gated linear attention with decays that depend on the token ([RWKV 6](https://arxiv.org/abs/2404.05892)).
    Rwkv6(Rwkv6Spec),
    /// Delta rule with decays and rates of channels ([RWKV 7](https://arxiv.org/abs/2503.14456)).
    Rwkv7(Rwkv7Spec),
}

/// Widths between the products of RWKV 6, and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwkv6Spec {
    /// Features between the products that make shares of tokens.
    pub shares: usize,
    /// Features between the products that make decays.
    pub decays: usize,
    /// Whether a token's own value has a factor of its own, and each head's result a norm.
    pub has_bonus: bool,
}

/// Widths between the products of RWKV 7, and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwkv7Spec {
    /// Features between the products that make decays.
    pub decays: usize,
    /// Features between the products that make rates of correction.
    pub rates: usize,
    /// Features between the products that make shares of the first layer's values; `None` in that layer.
    pub values: Option<usize>,
    /// Features between the products of the gate; `None` without a gate.
    pub gate: Option<usize>,
    /// Presence of the norm of each head's result (`time_mix_ln`).
    pub norm: Need,
}

impl RecurrentSpec {
    /// Features of all value heads.
    pub fn values(&self) -> usize {
        self.heads * self.value_width
    }

    /// Features of all groups' keys.
    pub fn keys(&self) -> usize {
        self.groups * self.key_width
    }

    /// Channels of the convolution.
    pub fn channels(&self) -> usize {
        match self.kind {
            RecurrentKind::Mamba { .. }
            | RecurrentKind::ShortConvolution
            | RecurrentKind::Lightning { .. }
            | RecurrentKind::Rwkv6(_)
            | RecurrentKind::Rwkv7(_) => self.values(),
            RecurrentKind::Mamba2 { .. }
            | RecurrentKind::DeltaNet { .. }
            | RecurrentKind::Kda { .. } => self.values() + 2 * self.keys(),
        }
    }

    /// Shapes of the state: the last inputs of the convolution `[kernel − 1, channels]`, then the heads' matrices.
    pub fn states(&self) -> Vec<Vec<usize>> {
        let inputs = vec![self.kernel.saturating_sub(1), self.channels()];
        let matrices = vec![self.heads, self.value_width, self.key_width];
        match self.kind {
            RecurrentKind::ShortConvolution => vec![inputs],
            RecurrentKind::Lightning { .. } => vec![matrices],
            _ => vec![inputs, matrices],
        }
    }

    /// Multiplications of a token beside its products.
    pub fn multiplications(&self) -> usize {
        let matrices = match self.kind {
            RecurrentKind::Mamba { .. }
            | RecurrentKind::Mamba2 { .. }
            | RecurrentKind::Lightning { .. }
            | RecurrentKind::Rwkv6(_) => 3,
            RecurrentKind::DeltaNet { .. }
            | RecurrentKind::Kda { .. }
            | RecurrentKind::Rwkv7(_) => 5,
            RecurrentKind::ShortConvolution => 0,
        };
        self.kernel * self.channels() + matrices * self.values() * self.key_width
    }
}

/// Self-attention. Queries, keys and values are three products or one (`attn_qkv`), depending on
/// the file.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a query and key head.
    pub key_width: usize,
    /// Features of a value head.
    pub value_width: usize,
    /// Bound of the absolute values of queries, keys and values.
    pub clamp: Option<f64>,
    /// Norm of the queries.
    pub query_norm: Option<HeadNormSpec>,
    /// Norm of the keys.
    pub key_norm: Option<HeadNormSpec>,
    /// Norm of each head's values.
    pub value_norm: Option<NormSpec>,
    /// Makes the keys' product serve for values, if the file has no `attn_v`.
    pub keys_as_values: bool,
    /// The keys and values.
    pub source: KeysValues,
    /// Products by way of few features, in the place of those of queries, keys and values.
    pub latent: Option<LatentSpec>,
    /// The keys that a token sees, of latent attention that does not see all.
    pub indexer: Option<IndexerSpec>,
    /// Rotates queries and keys before their norms.
    pub norm_after_rope: bool,
    /// Rotation of queries and keys.
    pub rope: Option<RopeSpec>,
    /// Whether a query sees no later keys.
    pub causal: bool,
    /// Keys that a query sees, besides causality.
    pub window: Option<Window>,
    /// Largest slope of ALiBi's bias ([Press et al.](https://arxiv.org/abs/2108.12409)), as a power of two.
    pub alibi: Option<f64>,
    /// Bias by the distance of query and key.
    pub distances: Option<DistancesSpec>,
    /// Presence of sinks (`attn_sinks`): one score per head that takes weight and adds nothing.
    pub sinks: Need,
    /// Multiplier of the scores.
    pub scale: f64,
    /// Growth of the scores with the position.
    pub temperature: Option<Temperature>,
    /// `c` of `c · tanh(score / c)`.
    pub soft_cap: Option<f64>,
    /// Activation and presence of a gate (`attn_gate`) that multiplies heads or elements of the
    /// result.
    pub gate: Option<(Activation, Need)>,
    /// Whether the queries' product also gives a gate of each element, head by head; its sigmoid multiplies the result.
    pub gated_queries: bool,
    /// Norm of the heads' results, before the last product.
    pub inner_norm: Option<NormSpec>,
    /// Multiplier of the result.
    pub out_scale: f64,
    /// Multiplies queries, keys and values by `.scale` tensors, if the file has them.
    pub scales: bool,
    /// Adds biases of queries, keys and values, if the file has them.
    pub biases: bool,
    /// Adds the bias of the last product, if the file has it.
    pub out_bias: bool,
}

/// A bias of scores that is learned for some distances of query and key (T5,
/// [Raffel et al.](https://arxiv.org/abs/1910.10683), section 2.1), both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistancesSpec {
    /// Name of the table, `[buckets, heads]`.
    pub table: String,
    /// Number of buckets: near distances have one each, far ones share some.
    pub buckets: usize,
}

/// Latent attention ([DeepSeek-V2](https://arxiv.org/abs/2405.04434), section 2.1): keys and values of all heads are
/// products of one vector. The rotated features of keys are the same in all heads.
///
/// A file may have that product in two parts. Then it is computed of queries and results: all heads share one key
/// and value, the vector itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentSpec {
    /// Features between the two products of queries, and their norm; `None` for one product.
    pub queries: Option<(usize, NormSpec)>,
    /// Features of the vector.
    pub rank: usize,
    /// Norm of the vector.
    pub norm: NormSpec,
    /// Features of a head's queries and keys that are rotated.
    pub rotated: usize,
    /// Features of a head's queries and keys that are not.
    pub plain: usize,
    /// Features of a head's result.
    pub value_width: usize,
    /// Whether the product is one of queries and results (`attn_k_b`, `attn_v_b`), not of the vector (`attn_kv_b`).
    pub absorbed: bool,
}

/// Choice of the keys that a token sees (DeepSeek V3.2,
/// [DeepSeek Sparse Attention](https://arxiv.org/abs/2512.02556)): those with the largest sums of
/// `weight · max(query · key, 0)` over heads of its own. They all share a key, which the cache has behind the
/// layer's own.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexerSpec {
    /// Its own choice.
    Own {
        /// Heads.
        heads: usize,
        /// Features of a head.
        width: usize,
        /// Number of keys.
        chosen: usize,
        /// Norm of the key.
        norm: NormSpec,
        /// Rotation of queries and keys.
        rope: Rope,
    },
    /// The choice of the latest layer with its own.
    Before,
}

/// Keys and values that a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysValues {
    /// Its own.
    Own,
    /// Its own, which later layers read, too.
    Lent,
    /// Keys and values of an earlier layer, by its place.
    Of(usize),
}

/// A norm of queries or keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadNormSpec {
    /// The norm.
    pub norm: NormSpec,
    /// The features that form one vector, and the shape of the weights.
    pub over: NormedOver,
}

/// The features that one norm of queries or keys covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormedOver {
    /// Each head separately, weights `[head width]`.
    Head,
    /// Each head separately, weights `[heads, head width]`.
    HeadOwnWeights,
    /// Each head separately, weights `[heads, 1]`.
    HeadOneWeight,
    /// All heads together, weights `[heads · head width]`.
    Width,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// The rotation.
    pub op: Rope,
    /// Divisors of the frequencies.
    pub factors: RopeFactors,
    /// Number of divisors in a file; the first ones are used.
    pub factor_count: usize,
    /// Context size above which the long factors are used.
    pub original_context: usize,
}

/// Divisors of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeFactors {
    /// None; their tensors are ignored.
    None,
    /// `rope_freqs` if the file has it; otherwise `rope_factors_long` or `rope_factors_short` if it
    /// has them.
    File,
}

/// Keys at positions `j` that a query at position `i` sees, of those that causality leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// The last ones: `i − j < n`.
    Sliding(usize),
    /// Keys of the query's own chunk: `j ≥ i − i mod n`.
    Chunked(usize),
    /// Keys on both sides: `|i − j| ≤ n / 2`.
    Symmetric(usize),
}

/// Multiplier `1 + scale · ln(1 + ⌊(position + offset) / floor⌋)` of the queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Multiplier of the logarithm.
    pub scale: f64,
    /// Addend to the position.
    pub offset: f64,
    /// Positions of one step.
    pub floor: usize,
}

/// Activation function. With a gate `g` and values `u` it gives `f(g) · u`, without one `f(u)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// GELU.
    Gelu,
    /// GELU by its approximation with the hyperbolic tangent.
    GeluTanh,
    /// The same of what exceeds the mean of all features by this many standard deviations (Gemma 3n).
    GeluSparse {
        /// Standard deviations.
        deviations: f64,
    },
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    ReluSquared,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `ln(1 + eˣ)`.
    Softplus,
    /// `min(g, limit) · σ(alpha · g) · (1 + clamp(u, ±limit))` (gpt-oss).
    SwiGluOai {
        /// Multiplier inside of the sigmoid.
        alpha: f64,
        /// Bound of both operands.
        limit: f64,
    },
    /// `silu(min(g, limit)) · clamp(u, ±limit)`.
    SwiGluClamped {
        /// Bound of both operands.
        limit: f64,
    },
    /// `min(silu(g), limit) · clamp(u, ±limit)`.
    SwiGluLimited {
        /// Bound of both factors.
        limit: f64,
    },
    /// xIELU ([Huang and Schlag](https://arxiv.org/abs/2411.13010)).
    Xielu {
        /// Factor of negative numbers.
        negative: f64,
        /// Factor of the square of positive numbers.
        positive: f64,
        /// Factor of the linear part.
        beta: f64,
        /// Upper bound of negative numbers in the exponential.
        eps: f64,
    },
}

/// The part of a layer that computes each token separately. The results of its parts are added.
#[derive(Clone, Debug, PartialEq)]
pub struct FfnSpec {
    /// An activation of the input, without products.
    pub bare: Option<Activation>,
    /// The dense part, of two or three products.
    pub dense: Option<DenseSpec>,
    /// Mixture of experts.
    pub experts: Option<Box<ExpertsSpec>>,
    /// The part of RWKV, which also reads the token before.
    pub channel_mix: Option<ChannelMixSpec>,
    /// Multiplier of the result.
    pub scale: f64,
}

/// RWKV's feed-forward part: `relu²` between two products, of a mixture of the token and the one before. Its state is
/// that token, `[1, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelMixSpec {
    /// Features of a token.
    pub inputs: usize,
    /// Features between the products.
    pub width: usize,
    /// Whether the sigmoid of a third product multiplies the result (RWKV 6).
    pub has_gate: bool,
}

/// Gate of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// A separate product (`ffn_gate`).
    Separate,
    /// The first half of `ffn_up`.
    Fused,
    /// None.
    None,
}

/// The products whose results are multiplied by `.scale` tensors, if the file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// All.
    All,
    /// The last one.
    Down,
    /// None.
    None,
}

/// Dense feed-forward part.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseSpec {
    /// Features between the products.
    pub width: usize,
    /// The gate.
    pub gate: Gate,
    /// The activation.
    pub activation: Activation,
    /// End of the tensors' names: `_shexp` for an expert that all tokens share.
    pub suffix: &'static str,
    /// Norm before the last product.
    pub inner_norm: Option<NormSpec>,
    /// Norm of the result.
    pub out_norm: Option<NormSpec>,
    /// Products that are multiplied by their `.scale` tensors.
    pub scales: Scales,
    /// Adds biases, if the file has them.
    pub biases: bool,
    /// Multiplies the result by `σ(x · ffn_gate_inp_shexp)`.
    pub token_gate: bool,
}

/// Mixture of experts: a router chooses some experts for each token and weights their results.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertsSpec {
    /// Number of experts.
    pub count: usize,
    /// Number of experts that each token uses.
    pub used: usize,
    /// Features between an expert's products.
    pub width: usize,
    /// Activation of an expert.
    pub activation: Activation,
    /// The function from the router's logits to probabilities.
    pub gating: Gating,
    /// The scores that experts are chosen by.
    pub chosen_by: ChosenBy,
    /// Presence of a bias that affects only the choice (`exp_probs_b`).
    pub choice_bias: Need,
    /// Groups of experts, and the number of groups that each token uses.
    pub groups: Option<(usize, usize)>,
    /// Divides the chosen experts' weights by their sum.
    pub normalised: bool,
    /// Multiplier of the weights.
    pub scale: f64,
    /// Multiplies the experts' input by the weights, not their result.
    pub weights_before: bool,
    /// Makes the router read the layer's input, not the norm's result.
    pub router_reads_input: bool,
    /// Norms of experts that read what the layer's own norm reads.
    pub norms: Option<ExpertNorms>,
    /// Features that experts read and give, if a product before them and one behind them change the width.
    pub latent: Option<usize>,
    /// Multiplies results by `.scale` tensors, if the file has them.
    pub scales: bool,
    /// End of the experts' names: `_exps`.
    pub suffix: &'static str,
    /// More experts with the same router, which read the result of these, and the multiplier of
    /// their result.
    pub chunks: Option<(Box<ExpertsSpec>, f64)>,
    /// Number of the router's experts that share one expert here; 1 if each has its own.
    pub per_group: usize,
}

/// Norms around experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertNorms {
    /// Norm of the router's input, which is also divided by the root of its width.
    pub router: NormSpec,
    /// Norm of the experts' input.
    pub input: NormSpec,
    /// Norm of the experts' result.
    pub output: NormSpec,
}

/// The function from a router's logits to probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
    /// Softmax over the chosen experts' logits.
    SoftmaxOfChosen,
    /// Square root of softplus of each logit.
    SqrtSoftplus,
}

/// The scores that experts are chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// The probabilities.
    Probabilities,
    /// The logits.
    Logits,
    /// Sigmoid of each logit.
    Sigmoid,
}

/// Keys and values that a layer keeps between forward passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSpec {
    /// Keys `[kv heads, rows, key width]` and values `[kv heads, rows, value width]`.
    KeyValue {
        /// Heads.
        kv_heads: usize,
        /// Features of a key head.
        key_width: usize,
        /// Features of a value head.
        value_width: usize,
        /// Last tokens that a token sees at most; `None` for all.
        window: Option<usize>,
    },
    /// Nothing.
    None,
}

impl ModelSpec {
    /// Returns whether each token is computed from those before it, with logits as results. Then the model makes
    /// texts token by token.
    pub fn makes_texts(&self) -> bool {
        self.head.output != Need::Absent && self.is_causal()
    }

    /// Returns whether each token is computed from all others, with logits as results. Then the model makes texts by
    /// diffusion.
    pub fn is_for_diffusion(&self) -> bool {
        self.head.output != Need::Absent && !self.is_causal()
    }

    /// Does no token see later ones?
    fn is_causal(&self) -> bool {
        self.layers.iter().all(|layer| {
            let attention = layer.mixer.attention();
            attention.is_none_or(|attention| attention.causal)
        })
    }

    /// The fraction of a tensor of this name and rank that a token reads: the chosen experts of a layer, or all of it.
    pub fn part_read(&self, name: &str, rank: usize) -> f64 {
        let index = layer_of(name);
        let mut layers = self.layers.iter();
        let layer = layers.find(|layer| Some(layer.index) == index);
        match layer.and_then(|layer| layer.ffn.experts.as_ref()) {
            Some(experts) if rank == 3 && Role::of(name) != Some(Role::EachHead) => {
                experts.used as f64 / experts.count as f64
            }
            _ => 1.0,
        }
    }
}

impl AttentionSpec {
    /// Features of a head's result.
    pub(crate) fn result_width(&self) -> usize {
        let latent = self.latent.as_ref();
        latent.map_or(self.value_width, |latent| latent.value_width)
    }

    /// Are its keys and values kept for later tokens?
    fn has_state(&self) -> bool {
        self.causal && !matches!(self.source, KeysValues::Of(_))
    }
}

impl LayerSpec {
    /// The keys and values that this layer keeps.
    pub fn state(&self) -> StateSpec {
        match self.mixer.attention() {
            Some(attention) if attention.has_state() => StateSpec::KeyValue {
                kv_heads: attention.kv_heads,
                key_width: attention.key_width,
                value_width: attention.value_width,
                window: match attention.window {
                    Some(Window::Sliding(n) | Window::Chunked(n)) => Some(n),
                    Some(Window::Symmetric(_)) | None => None,
                },
            },
            _ => StateSpec::None,
        }
    }

    /// Shapes of the recurrent states that this layer keeps, the mixer's first. A session has two of each.
    pub fn recurrent_states(&self) -> Vec<Vec<usize>> {
        let recurrent = self.mixer.recurrent();
        let mut states = recurrent.map_or(Vec::new(), RecurrentSpec::states);
        states.extend((self.ffn.channel_mix).map(|channels| vec![1, channels.inputs]));
        states
    }

    /// Bytes of the recurrent states that a session keeps.
    pub fn recurrent_bytes(&self) -> usize {
        let states = self.recurrent_states().into_iter();
        let bytes = states.map(|shape| {
            let sizes = shape.into_iter();
            sizes.fold(2 * size_of::<f32>(), usize::saturating_mul)
        });
        bytes.fold(0, usize::saturating_add)
    }
}
