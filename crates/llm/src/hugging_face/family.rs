//! Model types of `config.json`: one description each, by tables of keys and names.
//!
//! GGUF's keys and names are facts of llama.cpp's `convert_hf_to_gguf.py` and `gguf-py`.

use crate::LlmError;

use super::config::Config;
use super::encoder;
use super::latent;
use super::rope::{self, Draft};

/// A type of models, and its way to GGUF.
pub(super) struct Family {
    /// `model_type`s.
    pub(super) types: &'static [&'static str],
    /// `general.architecture`.
    pub(super) architecture: &'static str,
    /// Begin of most tensors' names; a file may leave it out.
    pub(super) prefix: &'static str,
    /// Begin of layers' names behind the prefix.
    pub(super) layer: &'static str,
    /// Names of tensors that belong to no layer, behind the prefix; the first one that fits counts.
    pub(super) globals: &'static [&'static [Row]],
    /// Begins of names of no use: predictions of hidden words and next sentences, by which encoders are trained.
    pub(super) ignored: &'static [&'static str],
    /// Names of layers' tensors.
    pub(super) names: &'static [&'static [Row]],
    /// Keys beside [`KEYS`].
    pub(super) keys: &'static [Key],
    /// Keys of `config.json` that have a value where the file lacks them.
    pub(super) defaults: &'static [(&'static str, f64)],
    /// Keys of `config.json` that the architecture has fixed values for, in JSON.
    pub(super) fixed: &'static [(&'static str, &'static [&'static str])],
    /// The other keys and tensors.
    pub(super) also: fn(&Config, &mut Draft) -> Result<(), LlmError>,
}

/// A key of GGUF, and the keys of `config.json` that it may come from.
pub(super) struct Key {
    pub(super) to: &'static str,
    pub(super) from: &'static [&'static str],
    pub(super) kind: Kind,
}

/// The type of a key's value.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Size,
    Number,
    Flag,
}

/// A tensor's name without its end, and what comes of it. A `#` is an expert's number.
pub(super) struct Row {
    pub(super) from: &'static str,
    pub(super) to: &'static [(&'static str, Op)],
}

/// The change of a tensor.
#[derive(Clone, Copy)]
pub(super) enum Op {
    /// None.
    Same,
    /// Puts query rows that are rotated together side by side.
    Queries,
    /// Puts key rows that are rotated together side by side.
    Keys,
    /// Queries, keys and values by key heads come one kind after the other.
    ByKind,
    /// Adds 1 to all elements of a weight.
    AddOne,
    /// Transposes the matrix.
    Transposed,
    /// One of several equal parts of the rows.
    Part(usize, usize),
    /// The rows behind the first ones.
    Behind(usize),
    /// Each n-th row.
    Every(usize, usize),
    /// Each n-th column, rows and columns being exchanged.
    EveryColumn(usize, usize),
    /// One of several equal parts of the columns, rows and columns being exchanged.
    ColumnPart(usize, usize),
    /// One of several equal parts of experts' rows, which versions of `transformers` write either way round.
    ExpertsPart(usize, usize),
    /// Experts' last matrices, either way round.
    ExpertsLast,
    /// Experts' matrices, which the file has one below the other.
    Stacked,
    /// The same, rows and columns of each being exchanged.
    StackedTransposed,
    /// The keys' part of a product of each head, rows and columns being exchanged.
    HeadKeys,
    /// The values' part of a product of each head.
    HeadValues,
    /// A number of each layer, which is a key.
    Number,
    /// Each n-th row of MXFP4 blocks.
    Blocks(usize, usize),
    /// The scales of [`Op::Blocks`].
    Scales(usize, usize),
}

use Op::{
    AddOne, Behind, Blocks, ByKind, ColumnPart, Every, EveryColumn, ExpertsLast, ExpertsPart,
    HeadKeys, HeadValues, Keys, Number, Part, Queries, Same, Scales, Stacked, StackedTransposed,
    Transposed,
};

const fn row(from: &'static str, to: &'static [(&'static str, Op)]) -> Row {
    Row { from, to }
}

const fn size(to: &'static str, from: &'static [&'static str]) -> Key {
    let kind = Kind::Size;
    Key { to, from, kind }
}

const fn number(to: &'static str, from: &'static [&'static str]) -> Key {
    let kind = Kind::Number;
    Key { to, from, kind }
}

const fn flag(to: &'static str, from: &'static [&'static str]) -> Key {
    let kind = Kind::Flag;
    Key { to, from, kind }
}

impl Family {
    /// A type that has Llama's names.
    const fn new(types: &'static [&'static str], architecture: &'static str) -> Self {
        Self {
            types,
            architecture,
            prefix: "model.",
            layer: "layers.",
            globals: &[GLOBALS],
            ignored: &[],
            names: &[DECODER],
            keys: &[],
            defaults: &[],
            fixed: SILU,
            also: |_, _| Ok(()),
        }
    }

    /// The same with queries and keys whose pairs are neighbours in GGUF.
    const fn neighbours(types: &'static [&'static str], architecture: &'static str) -> Self {
        Self {
            names: &[NEIGHBOURS, DECODER],
            ..Self::new(types, architecture)
        }
    }
}

/// Keys of all types.
pub(super) const KEYS: &[Key] = &[
    size(
        "context_length",
        &[
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
            "seq_length",
            "max_seq_len",
        ],
    ),
    size("embedding_length", WIDTH),
    size("attention.head_count", HEADS),
    size("attention.head_count_kv", KV_HEADS),
    number(
        "attention.layer_norm_rms_epsilon",
        &["rms_norm_eps", "norm_eps"],
    ),
    number(
        "attention.layer_norm_epsilon",
        &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"],
    ),
    size("expert_count", EXPERTS),
    size(
        "expert_used_count",
        &[
            "num_experts_per_tok",
            "num_experts_per_token",
            "moe_k",
            "moe_top_k",
            "top_k_experts",
        ],
    ),
    size("expert_group_count", &["n_group"]),
    size("expert_group_used_count", &["topk_group"]),
    size("vocab_size", &["vocab_size"]),
];

pub(super) const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
pub(super) const WIDTH: &[&str] = &["hidden_size", "n_embd", "d_model"];
pub(super) const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads"];
pub(super) const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "kv_n_heads"];
pub(super) const EXPERTS: &[&str] = &[
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
];
pub(super) const FEED_FORWARD: &[&str] = &[
    "prefix_dense_intermediate_size",
    "intermediate_size_mlp",
    "intermediate_size",
    "n_inner",
    "ffn_hidden_size",
];

/// Names of tensors that belong to no layer.
const GLOBALS: &[Row] = &[
    row("embed_tokens", &[("token_embd", Same)]),
    row("embed_tokens_per_layer", &[("per_layer_token_embd", Same)]),
    row(
        "per_layer_model_projection",
        &[("per_layer_model_proj", Same)],
    ),
    row(
        "per_layer_projection_norm",
        &[("per_layer_proj_norm", Same)],
    ),
    row("wte", &[("token_embd", Same)]),
    row("word_embeddings", &[("token_embd", Same)]),
    row("embed_in", &[("token_embd", Same)]),
    row("word_embeddings_layernorm", &[("token_embd_norm", Same)]),
    row("wpe", &[("position_embd", Same)]),
    row("norm", &[("output_norm", Same)]),
    row("final_layernorm", &[("output_norm", Same)]),
    row("final_layer_norm", &[("output_norm", Same)]),
    row("ln_f", &[("output_norm", Same)]),
    row("norm_f", &[("output_norm", Same)]),
    row("lm_head", &[("output", Same)]),
    row("embed_out", &[("output", Same)]),
];

/// A last norm that adds 1 to its weights.
const NORM_PLUS_ONE: &[Row] = &[row("norm", &[("output_norm", AddOne)])];

/// Queries and keys of models whose rotation pairs neighbours in GGUF.
const NEIGHBOURS: &[Row] = &[
    row("self_attn.q_proj", &[("attn_q", Queries)]),
    row("self_attn.k_proj", &[("attn_k", Keys)]),
];

/// Names of most decoders.
const DECODER: &[Row] = &[
    row("input_layernorm", &[("attn_norm", Same)]),
    row("post_attention_layernorm", &[("ffn_norm", Same)]),
    row("self_attn.q_proj", &[("attn_q", Same)]),
    row("self_attn.k_proj", &[("attn_k", Same)]),
    row("self_attn.v_proj", &[("attn_v", Same)]),
    row("self_attn.qkv_proj", &[("attn_qkv", Same)]),
    row("self_attn.o_proj", &[("attn_output", Same)]),
    row("self_attn.dense", &[("attn_output", Same)]),
    row("self_attn.q_norm", &[("attn_q_norm", Same)]),
    row("self_attn.k_norm", &[("attn_k_norm", Same)]),
    row("self_attn.query_layernorm", &[("attn_q_norm", Same)]),
    row("self_attn.key_layernorm", &[("attn_k_norm", Same)]),
    row("self_attn.sinks", &[("attn_sinks", Same)]),
    row("mlp.gate_proj", &[("ffn_gate", Same)]),
    row("mlp.up_proj", &[("ffn_up", Same)]),
    row("mlp.gate_up_proj", &[("ffn_up", Same)]),
    row("mlp.down_proj", &[("ffn_down", Same)]),
    row("mlp.fc1", &[("ffn_up", Same)]),
    row("mlp.fc2", &[("ffn_down", Same)]),
    row("mlp.c_fc", &[("ffn_up", Same)]),
    row("mlp.c_proj", &[("ffn_down", Same)]),
    row("mlp.gate", &[("ffn_gate_inp", Same)]),
    row(
        "mlp.gate.e_score_correction_bias",
        &[("exp_probs_b.bias", Same)],
    ),
    row("mlp.experts.#.gate_proj", &[("ffn_gate_exps", Same)]),
    row("mlp.experts.#.up_proj", &[("ffn_up_exps", Same)]),
    row("mlp.experts.#.down_proj", &[("ffn_down_exps", Same)]),
    row(
        "mlp.experts.gate_up_proj",
        &[("ffn_gate_exps", Part(0, 2)), ("ffn_up_exps", Part(1, 2))],
    ),
    row("mlp.experts.down_proj", &[("ffn_down_exps", Same)]),
    row("mlp.shared_expert_gate", &[("ffn_gate_inp_shexp", Same)]),
    row("mlp.shared_expert.gate_proj", &[("ffn_gate_shexp", Same)]),
    row("mlp.shared_expert.up_proj", &[("ffn_up_shexp", Same)]),
    row("mlp.shared_expert.down_proj", &[("ffn_down_shexp", Same)]),
    row("mlp.shared_experts.gate_proj", &[("ffn_gate_shexp", Same)]),
    row("mlp.shared_experts.up_proj", &[("ffn_up_shexp", Same)]),
    row("mlp.shared_experts.down_proj", &[("ffn_down_shexp", Same)]),
    row("block_sparse_moe.gate", &[("ffn_gate_inp", Same)]),
    row("block_sparse_moe.experts.#.w1", &[("ffn_gate_exps", Same)]),
    row("block_sparse_moe.experts.#.w2", &[("ffn_down_exps", Same)]),
    row("block_sparse_moe.experts.#.w3", &[("ffn_up_exps", Same)]),
];

/// Latent attention.
const LATENT: &[Row] = &[
    row("self_attn.q_a_proj", &[("attn_q_a", Same)]),
    row("self_attn.q_a_layernorm", &[("attn_q_a_norm", Same)]),
    row("self_attn.q_b_proj", &[("attn_q_b", Same)]),
    row("self_attn.kv_a_proj_with_mqa", &[("attn_kv_a_mqa", Same)]),
    row("self_attn.kv_a_layernorm", &[("attn_kv_a_norm", Same)]),
    row(
        "self_attn.kv_b_proj",
        &[("attn_k_b", HeadKeys), ("attn_v_b", HeadValues)],
    ),
];

/// Keys and values of latent attention as one matrix.
const ONE_LATENT: &[Row] = &[row("self_attn.kv_b_proj", &[("attn_kv_b", Same)])];

/// Norms behind both parts, and before them (Gemma 2).
const SANDWICH: &[Row] = &[
    row("post_attention_layernorm", &[("post_attention_norm", Same)]),
    row("pre_feedforward_layernorm", &[("ffn_norm", Same)]),
    row("post_feedforward_layernorm", &[("post_ffw_norm", Same)]),
];

/// Norms of Gemma, which add 1 to their weights.
const GEMMA_NORMS: &[Row] = &[
    row("input_layernorm", &[("attn_norm", AddOne)]),
    row("self_attn.q_norm", &[("attn_q_norm", AddOne)]),
    row("self_attn.k_norm", &[("attn_k_norm", AddOne)]),
];
const GEMMA_FFN_NORM: &[Row] = &[row("post_attention_layernorm", &[("ffn_norm", AddOne)])];
const GEMMA_SANDWICH: &[Row] = &[
    row(
        "post_attention_layernorm",
        &[("post_attention_norm", AddOne)],
    ),
    row("pre_feedforward_layernorm", &[("ffn_norm", AddOne)]),
    row("post_feedforward_layernorm", &[("post_ffw_norm", AddOne)]),
];

/// Gemma 4's experts, inputs of layers' own, and factors.
const GEMMA4: &[Row] = &[
    row("post_feedforward_layernorm_1", &[("post_ffw_norm_1", Same)]),
    row("post_feedforward_layernorm_2", &[("post_ffw_norm_2", Same)]),
    row("pre_feedforward_layernorm_2", &[("pre_ffw_norm_2", Same)]),
    row("layer_scalar", &[("layer_output_scale", Same)]),
    row("per_layer_input_gate", &[("inp_gate", Same)]),
    row("per_layer_projection", &[("proj", Same)]),
    row("post_per_layer_input_norm", &[("post_norm", Same)]),
    row("router.proj", &[("ffn_gate_inp", Same)]),
    row("router.scale", &[("ffn_gate_inp.scale", Same)]),
    row("router.per_expert_scale", &[("ffn_down_exps.scale", Same)]),
    row("experts.gate_up_proj", &[("ffn_gate_up_exps", Same)]),
    row("experts.down_proj", &[("ffn_down_exps", Same)]),
];

/// GLM 4's norms behind both parts.
const GLM_NORMS: &[Row] = &[
    row("post_self_attn_layernorm", &[("post_attention_norm", Same)]),
    row("post_mlp_layernorm", &[("post_ffw_norm", Same)]),
];

/// A norm before the feed-forward part that has the name of one behind attention.
const POST_ATTENTION: &[Row] = &[row(
    "post_attention_layernorm",
    &[("post_attention_norm", Same)],
)];

/// gpt-oss's router and experts, whose gates and values alternate.
const GPT_OSS_EXPERTS: &[Row] = &[
    row("mlp.router", &[("ffn_gate_inp", Same)]),
    row(
        "mlp.experts.gate_up_proj_blocks",
        &[
            ("ffn_gate_exps", Blocks(0, 2)),
            ("ffn_up_exps", Blocks(1, 2)),
        ],
    ),
    row(
        "mlp.experts.gate_up_proj_scales",
        &[
            ("ffn_gate_exps", Scales(0, 2)),
            ("ffn_up_exps", Scales(1, 2)),
        ],
    ),
    row(
        "mlp.experts.down_proj_blocks",
        &[("ffn_down_exps", Blocks(0, 1))],
    ),
    row(
        "mlp.experts.down_proj_scales",
        &[("ffn_down_exps", Scales(0, 1))],
    ),
    row(
        "mlp.experts.gate_up_proj",
        &[
            ("ffn_gate_exps", EveryColumn(0, 2)),
            ("ffn_up_exps", EveryColumn(1, 2)),
        ],
    ),
    row("mlp.experts.down_proj", &[("ffn_down_exps", Transposed)]),
    row(
        "mlp.experts.gate_up_proj_bias",
        &[
            ("ffn_gate_exps.bias", Every(0, 2)),
            ("ffn_up_exps.bias", Every(1, 2)),
        ],
    ),
    row(
        "mlp.experts.down_proj_bias",
        &[("ffn_down_exps.bias", Same)],
    ),
];

/// GPT-2, whose matrices are the other way round.
const GPT2: &[Row] = &[
    row("ln_1", &[("attn_norm", Same)]),
    row("attn.c_attn", &[("attn_qkv", Transposed)]),
    row("attn.c_proj", &[("attn_output", Transposed)]),
    row("ln_2", &[("ffn_norm", Same)]),
    row("mlp.c_fc", &[("ffn_up", Transposed)]),
    row("mlp.c_proj", &[("ffn_down", Transposed)]),
];

/// GPT-BigCode (StarCoder).
const BIG_CODE: &[Row] = &[
    row("ln_1", &[("attn_norm", Same)]),
    row("attn.c_attn", &[("attn_qkv", Same)]),
    row("attn.c_proj", &[("attn_output", Same)]),
    row("ln_2", &[("ffn_norm", Same)]),
];

/// GPT-NeoX, Falcon and BLOOM.
const BY_KIND: &[Row] = &[
    row("input_layernorm", &[("attn_norm", Same)]),
    row("attention.query_key_value", &[("attn_qkv", ByKind)]),
    row("attention.dense", &[("attn_output", Same)]),
    row("self_attention.query_key_value", &[("attn_qkv", ByKind)]),
    row("self_attention.dense", &[("attn_output", Same)]),
    row("post_attention_layernorm", &[("ffn_norm", Same)]),
    row("mlp.dense_h_to_4h", &[("ffn_up", Same)]),
    row("mlp.dense_4h_to_h", &[("ffn_down", Same)]),
    row("ln_mlp", &[("attn_norm", Same)]),
    row("ln_attn", &[("attn_norm_2", Same)]),
];

/// MPT.
const MPT: &[Row] = &[
    row("norm_1", &[("attn_norm", Same)]),
    row("attn.Wqkv", &[("attn_qkv", Same)]),
    row("attn.out_proj", &[("attn_output", Same)]),
    row("norm_2", &[("ffn_norm", Same)]),
    row("ffn.up_proj", &[("ffn_up", Same)]),
    row("ffn.down_proj", &[("ffn_down", Same)]),
];

/// DBRX.
const DBRX: &[Row] = &[
    row("norm_attn_norm.norm_1", &[("attn_norm", Same)]),
    row("norm_attn_norm.norm_2", &[("attn_output_norm", Same)]),
    row("norm_attn_norm.attn.Wqkv", &[("attn_qkv", Same)]),
    row("norm_attn_norm.attn.out_proj", &[("attn_output", Same)]),
    row("ffn.router.layer", &[("ffn_gate_inp", Same)]),
    row("ffn.experts.mlp.w1", &[("ffn_gate_exps", Stacked)]),
    row("ffn.experts.mlp.v1", &[("ffn_up_exps", Stacked)]),
    row(
        "ffn.experts.mlp.w2",
        &[("ffn_down_exps", StackedTransposed)],
    ),
];

/// Apertus's norms and activation.
const APERTUS: &[Row] = &[
    row("attention_layernorm", &[("attn_norm", Same)]),
    row("feedforward_layernorm", &[("ffn_norm", Same)]),
    row("mlp.act_fn.alpha_n", &[("xielu.alpha_n", Number)]),
    row("mlp.act_fn.alpha_p", &[("xielu.alpha_p", Number)]),
    // The rest of the name, `beta`, is the end of biases elsewhere.
    row("mlp.act_fn", &[("xielu.beta", Number)]),
    row("mlp.act_fn.eps", &[("xielu.eps", Number)]),
];

/// Hunyuan's router, and the expert that all tokens share.
const HUNYUAN_EXPERTS: &[Row] = &[
    row("mlp.gate.wg", &[("ffn_gate_inp", Same)]),
    row("mlp.shared_mlp.gate_proj", &[("ffn_gate_shexp", Same)]),
    row("mlp.shared_mlp.up_proj", &[("ffn_up_shexp", Same)]),
    row("mlp.shared_mlp.down_proj", &[("ffn_down_shexp", Same)]),
];

/// Experts of Qwen3-VL.
const TURNED_EXPERTS: &[Row] = &[
    row(
        "mlp.experts.gate_up_proj",
        &[
            ("ffn_gate_exps", ExpertsPart(0, 2)),
            ("ffn_up_exps", ExpertsPart(1, 2)),
        ],
    ),
    row("mlp.experts.down_proj", &[("ffn_down_exps", ExpertsLast)]),
];

/// Llama 4's feed-forward parts.
const LLAMA4: &[Row] = &[
    row("feed_forward.gate_proj", &[("ffn_gate", Same)]),
    row("feed_forward.up_proj", &[("ffn_up", Same)]),
    row("feed_forward.down_proj", &[("ffn_down", Same)]),
    row("feed_forward.router", &[("ffn_gate_inp", Same)]),
    row(
        "feed_forward.experts.gate_up_proj",
        &[
            ("ffn_gate_exps", ColumnPart(0, 2)),
            ("ffn_up_exps", ColumnPart(1, 2)),
        ],
    ),
    row(
        "feed_forward.experts.down_proj",
        &[("ffn_down_exps", Transposed)],
    ),
    row(
        "feed_forward.shared_expert.gate_proj",
        &[("ffn_gate_shexp", Same)],
    ),
    row(
        "feed_forward.shared_expert.up_proj",
        &[("ffn_up_shexp", Same)],
    ),
    row(
        "feed_forward.shared_expert.down_proj",
        &[("ffn_down_shexp", Same)],
    ),
];

/// AFMoE's norms, gate and router.
const AFMOE: &[Row] = &[
    row("pre_mlp_layernorm", &[("ffn_norm", Same)]),
    row("post_mlp_layernorm", &[("post_ffw_norm", Same)]),
    row("self_attn.gate_proj", &[("attn_gate", Same)]),
    row("mlp.router.gate", &[("ffn_gate_inp", Same)]),
    row("mlp.expert_bias", &[("exp_probs_b.bias", Same)]),
];

/// Biases for the choice of experts, by the names of EXAONE, ERNIE and MiniMax.
const CHOICE_BIAS: &[Row] = &[
    row("mlp.e_score_correction_bias", &[("exp_probs_b.bias", Same)]),
    row(
        "mlp.moe_statics.e_score_correction_bias",
        &[("exp_probs_b.bias", Same)],
    ),
    row(
        "block_sparse_moe.e_score_correction_bias",
        &[("exp_probs_b.bias", Same)],
    ),
];

/// MiMo 2's sinks.
const MIMO2: &[Row] = &[row(
    "self_attn.attention_sink_bias",
    &[("attn_sinks", Same)],
)];

/// Laguna's gate and bias for the choice of experts.
const LAGUNA: &[Row] = &[
    row("self_attn.g_proj", &[("attn_gate", Same)]),
    row(
        "mlp.experts.e_score_correction_bias",
        &[("exp_probs_b.bias", Same)],
    ),
];

/// Granite's experts, with both products in one.
const GRANITE_EXPERTS: &[Row] = &[
    row("block_sparse_moe.router.layer", &[("ffn_gate_inp", Same)]),
    row(
        "block_sparse_moe.input_linear",
        &[("ffn_gate_exps", Part(0, 2)), ("ffn_up_exps", Part(1, 2))],
    ),
    row("block_sparse_moe.output_linear", &[("ffn_down_exps", Same)]),
    row(
        "shared_mlp.input_linear",
        &[("ffn_gate_shexp", Part(0, 2)), ("ffn_up_shexp", Part(1, 2))],
    ),
    row("shared_mlp.output_linear", &[("ffn_down_shexp", Same)]),
];

/// Tensors of BERT that belong to no layer.
const BERT_GLOBALS: &[Row] = &[
    row("embeddings.word_embeddings", &[("token_embd", Same)]),
    row("embeddings.position_embeddings", &[("position_embd", Same)]),
    row("embeddings.token_type_embeddings", &[("token_types", Same)]),
    row("embeddings.LayerNorm", &[("token_embd_norm", Same)]),
    row("pooler.dense", &[("cls", Same)]),
    row("classifier", &[("cls.output", Same)]),
    row("classifier.dense", &[("cls", Same)]),
    row("classifier.out_proj", &[("cls.output", Same)]),
];

/// Positions of RoBERTa, whose first two rows are for padding.
const ROBERTA_POSITIONS: &[Row] = &[row(
    "embeddings.position_embeddings",
    &[("position_embd", Behind(2))],
)];

/// BERT's layers.
const BERT: &[Row] = &[
    row("attention.self.query", &[("attn_q", Same)]),
    row("attention.self.key", &[("attn_k", Same)]),
    row("attention.self.value", &[("attn_v", Same)]),
    row("attention.output.dense", &[("attn_output", Same)]),
    row("attention.output.LayerNorm", &[("attn_output_norm", Same)]),
    row("intermediate.dense", &[("ffn_up", Same)]),
    row("output.dense", &[("ffn_down", Same)]),
    row("output.LayerNorm", &[("layer_output_norm", Same)]),
];

/// Tensors of Nomic BERT that belong to no layer.
const NOMIC_BERT_GLOBALS: &[Row] = &[row("emb_ln", &[("token_embd_norm", Same)])];

/// Nomic BERT's layers.
const NOMIC_BERT: &[Row] = &[
    row("attn.Wqkv", &[("attn_qkv", Same)]),
    row("attn.out_proj", &[("attn_output", Same)]),
    row("norm1", &[("attn_output_norm", Same)]),
    row("mlp.fc11", &[("ffn_up", Same)]),
    row("mlp.fc12", &[("ffn_gate", Same)]),
    row("mlp.fc2", &[("ffn_down", Same)]),
    row("norm2", &[("layer_output_norm", Same)]),
];

/// Tensors of ModernBERT that belong to no layer.
const MODERN_BERT_GLOBALS: &[Row] = &[
    row("embeddings.tok_embeddings", &[("token_embd", Same)]),
    row("embeddings.norm", &[("token_embd_norm", Same)]),
    row("final_norm", &[("output_norm", Same)]),
    row("head.dense", &[("cls", Same)]),
    row("head.norm", &[("cls.norm", Same)]),
    row("classifier", &[("cls.output", Same)]),
];

/// ModernBERT's layers.
const MODERN_BERT: &[Row] = &[
    row("attn_norm", &[("attn_norm", Same)]),
    row("attn.Wqkv", &[("attn_qkv", Same)]),
    row("attn.Wo", &[("attn_output", Same)]),
    row("mlp_norm", &[("ffn_norm", Same)]),
    row("mlp.Wi", &[("ffn_up", Same)]),
    row("mlp.Wo", &[("ffn_down", Same)]),
];

const SILU: &[(&str, &[&str])] = &[("hidden_act", &["\"silu\"", "\"swish\""])];
const GELU: &[&str] = &[
    "\"gelu\"",
    "\"gelu_new\"",
    "\"gelu_fast\"",
    "\"gelu_pytorch_tanh\"",
];
const ANY_GELU: &[(&str, &[&str])] = &[
    ("hidden_act", GELU),
    ("hidden_activation", GELU),
    ("activation_function", GELU),
    ("activation", GELU),
];

const GRANITE_KEYS: &[Key] = &[
    number("attention.scale", &["attention_multiplier"]),
    number("embedding_scale", &["embedding_multiplier"]),
    number("residual_scale", &["residual_multiplier"]),
    number("logit_scale", &["logits_scaling"]),
    size(
        "expert_shared_feed_forward_length",
        &["shared_intermediate_size"],
    ),
    WINDOW,
];

const EXPERT_WIDTH: Key = size("expert_feed_forward_length", &["moe_intermediate_size"]);
const WINDOW: Key = size("attention.sliding_window", &["sliding_window"]);

/// Keys of experts beside shared ones, with dense layers first.
const ROUTED: &[Key] = &[
    EXPERT_WIDTH,
    size("expert_shared_count", &["n_shared_experts"]),
    size("leading_dense_block_count", &["first_k_dense_replace"]),
    number("expert_weights_scale", &["routed_scaling_factor"]),
    flag("expert_weights_norm", &["norm_topk_prob"]),
];

const ABSOLUTE: (&str, &[&str]) = ("position_embedding_type", &["\"absolute\""]);
const EXACT_GELU: (&str, &[&str]) = ("hidden_act", &["\"gelu\""]);

/// Every type.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        prefix: "bert.",
        layer: "encoder.layer.",
        globals: &[BERT_GLOBALS],
        ignored: &["cls.predictions.", "cls.seq_relationship."],
        names: &[BERT],
        defaults: &[("layer_norm_eps", 1e-12), ("type_vocab_size", 2.0)],
        fixed: &[EXACT_GELU, ABSOLUTE],
        also: encoder::bert,
        ..Family::new(&["bert"], "bert")
    },
    Family {
        prefix: "roberta.",
        layer: "encoder.layer.",
        globals: &[ROBERTA_POSITIONS, BERT_GLOBALS],
        ignored: &["lm_head."],
        names: &[BERT],
        defaults: &[("layer_norm_eps", 1e-12), ("type_vocab_size", 1.0)],
        fixed: &[EXACT_GELU, ABSOLUTE, ("pad_token_id", &["1"])],
        also: encoder::roberta,
        ..Family::new(&["roberta", "xlm-roberta", "camembert"], "bert")
    },
    Family {
        prefix: "nomic_bert.",
        layer: "encoder.layers.",
        globals: &[NOMIC_BERT_GLOBALS, BERT_GLOBALS],
        ignored: &["cls.predictions."],
        names: &[NOMIC_BERT],
        defaults: &[("rotary_emb_base", 1000.0), ("type_vocab_size", 2.0)],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("activation_function", &["\"swiglu\""]),
            ("moe_every_n_layers", &["0"]),
            ("prenorm", &["false"]),
            ("rotary_emb_fraction", &["1", "1.0"]),
            ("rotary_emb_interleaved", &["false"]),
        ],
        also: encoder::bert,
        ..Family::new(&["nomic_bert"], "nomic-bert")
    },
    Family {
        globals: &[MODERN_BERT_GLOBALS],
        ignored: &["decoder."],
        names: &[MODERN_BERT],
        keys: &[
            number("attention.layer_norm_epsilon", &["norm_eps"]),
            size("attention.sliding_window", &["local_attention"]),
            size(
                "attention.sliding_window_pattern",
                &["global_attn_every_n_layers"],
            ),
            number("rope.freq_base", &["global_rope_theta"]),
            number("rope.freq_base_swa", &["local_rope_theta"]),
        ],
        defaults: &[
            ("norm_eps", 1e-5),
            ("local_attention", 128.0),
            ("global_attn_every_n_layers", 3.0),
            ("global_rope_theta", 160_000.0),
            ("local_rope_theta", 10_000.0),
        ],
        fixed: &[("hidden_activation", &["\"gelu\"", "\"silu\""])],
        also: encoder::modern_bert,
        ..Family::new(&["modernbert"], "modern-bert")
    },
    Family {
        ignored: &["lm_head."],
        also: encoder::both_sides,
        ..Family::new(&["eurobert"], "eurobert")
    },
    Family::neighbours(&["llama", "mistral", "mixtral"], "llama"),
    Family::neighbours(&["smollm3"], "smollm3"),
    Family {
        fixed: &[("hidden_act", &["\"relu2\""])],
        ..Family::neighbours(&["arcee"], "arcee")
    },
    Family {
        also: rope::mistral3,
        ..Family::neighbours(&["mistral3", "ministral3"], "mistral3")
    },
    Family {
        keys: GRANITE_KEYS,
        ..Family::neighbours(&["granite"], "granite")
    },
    Family {
        names: &[NEIGHBOURS, GRANITE_EXPERTS, DECODER],
        keys: GRANITE_KEYS,
        ..Family::new(&["granitemoe", "granitemoeshared"], "granitemoe")
    },
    Family {
        keys: &[number("attention.clamp_kqv", &["clip_qkv"])],
        defaults: &[("layer_norm_eps", 1e-5)],
        ..Family::neighbours(&["olmo"], "olmo")
    },
    Family {
        names: &[SANDWICH, DECODER],
        keys: &[WINDOW],
        also: rope::windows_of_three,
        ..Family::new(&["olmo2", "olmo3"], "olmo2")
    },
    Family {
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("norm_topk_prob", &["false"]),
            ("clip_qkv", &["null"]),
        ],
        ..Family::new(&["olmoe"], "olmoe")
    },
    Family::new(&["qwen2"], "qwen2"),
    Family::new(&["qwen3"], "qwen3"),
    Family {
        keys: &[
            EXPERT_WIDTH,
            size(
                "expert_shared_feed_forward_length",
                &["shared_expert_intermediate_size"],
            ),
        ],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("norm_topk_prob", &["false"]),
            ("decoder_sparse_step", &["1"]),
            ("mlp_only_layers", &["[]"]),
        ],
        ..Family::new(&["qwen2_moe"], "qwen2moe")
    },
    Family {
        keys: &[EXPERT_WIDTH],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("norm_topk_prob", &["true"]),
            ("decoder_sparse_step", &["1"]),
            ("mlp_only_layers", &["[]"]),
        ],
        ..Family::new(&["qwen3_moe"], "qwen3moe")
    },
    Family {
        globals: &[NORM_PLUS_ONE, GLOBALS],
        names: &[GEMMA_NORMS, GEMMA_FFN_NORM, DECODER],
        defaults: &[("tie_word_embeddings", 1.0)],
        fixed: ANY_GELU,
        ..Family::new(&["gemma"], "gemma")
    },
    Family {
        globals: &[NORM_PLUS_ONE, GLOBALS],
        names: &[GEMMA_NORMS, GEMMA_SANDWICH, DECODER],
        keys: &[
            WINDOW,
            number("attn_logit_softcapping", &["attn_logit_softcapping"]),
            number("final_logit_softcapping", &["final_logit_softcapping"]),
        ],
        defaults: &[
            ("tie_word_embeddings", 1.0),
            ("head_dim", 256.0),
            ("query_pre_attn_scalar", 256.0),
        ],
        fixed: ANY_GELU,
        also: |config, draft| rope::score_scale(config, draft, 46),
        ..Family::new(&["gemma2"], "gemma2")
    },
    Family {
        globals: &[NORM_PLUS_ONE, GLOBALS],
        names: &[GEMMA_NORMS, GEMMA_SANDWICH, DECODER],
        keys: &[
            WINDOW,
            number("final_logit_softcapping", &["final_logit_softcapping"]),
        ],
        defaults: &[
            ("tie_word_embeddings", 1.0),
            ("num_attention_heads", 8.0),
            ("num_key_value_heads", 4.0),
            ("head_dim", 256.0),
            ("query_pre_attn_scalar", 256.0),
            ("rms_norm_eps", 1e-6),
            ("max_position_embeddings", 131_072.0),
            ("sliding_window", 4096.0),
            ("rope_theta", 1_000_000.0),
            ("rope_local_base_freq", 10_000.0),
        ],
        fixed: &[
            ("hidden_activation", GELU),
            ("attn_logit_softcapping", &["null"]),
            ("use_bidirectional_attention", &["false", "null"]),
        ],
        also: |config, draft| {
            rope::score_scale(config, draft, 62)?;
            rope::window_period(config, draft, 6)
        },
        ..Family::new(&["gemma3", "gemma3_text"], "gemma3")
    },
    Family {
        names: &[GEMMA4, SANDWICH, DECODER],
        keys: &[
            WINDOW,
            EXPERT_WIDTH,
            number("final_logit_softcapping", &["final_logit_softcapping"]),
            size(
                "embedding_length_per_layer_input",
                &["hidden_size_per_layer_input"],
            ),
            size("attention.shared_kv_layers", &["num_kv_shared_layers"]),
        ],
        defaults: &[("tie_word_embeddings", 1.0)],
        fixed: &[
            ("hidden_activation", GELU),
            ("attention_bias", &["false"]),
            ("use_bidirectional_attention", &["\"vision\"", "null"]),
        ],
        also: rope::gemma4,
        ..Family::new(&["gemma4", "gemma4_text"], "gemma4")
    },
    Family {
        also: rope::phi3,
        ..Family::new(&["phi3"], "phi3")
    },
    Family {
        defaults: &[("partial_rotary_factor", 0.5)],
        fixed: &[("hidden_act", GELU), ("qk_layernorm", &["false"])],
        ..Family::new(&["phi"], "phi2")
    },
    Family {
        layer: "h.",
        prefix: "transformer.",
        names: &[GPT2],
        fixed: ANY_GELU,
        ..Family::new(&["gpt2"], "gpt2")
    },
    Family {
        layer: "h.",
        prefix: "transformer.",
        names: &[BIG_CODE, DECODER],
        defaults: &[("num_key_value_heads", 1.0)],
        fixed: &[("activation_function", GELU), ("multi_query", &["true"])],
        ..Family::new(&["gpt_bigcode"], "starcoder")
    },
    Family {
        fixed: &[("hidden_act", GELU), ("sliding_window", &["null"])],
        ..Family::new(&["starcoder2"], "starcoder2")
    },
    Family {
        prefix: "gpt_neox.",
        names: &[BY_KIND],
        keys: &[flag("use_parallel_residual", &["use_parallel_residual"])],
        defaults: &[("use_parallel_residual", 1.0), ("rotary_pct", 0.25)],
        fixed: ANY_GELU,
        ..Family::new(&["gpt_neox"], "gptneox")
    },
    Family {
        layer: "h.",
        prefix: "transformer.",
        names: &[BY_KIND],
        defaults: &[("max_position_embeddings", 2048.0)],
        fixed: &[
            ("activation", GELU),
            ("alibi", &["false"]),
            ("parallel_attn", &["true"]),
        ],
        ..Family::new(&["falcon"], "falcon")
    },
    Family {
        layer: "h.",
        prefix: "transformer.",
        names: &[BY_KIND],
        defaults: &[("max_position_embeddings", 2048.0)],
        fixed: &[("apply_residual_connection_post_layernorm", &["false"])],
        ..Family::new(&["bloom"], "bloom")
    },
    Family {
        names: &[GPT_OSS_EXPERTS, POST_ATTENTION, DECODER],
        keys: &[
            WINDOW,
            size("expert_feed_forward_length", &["intermediate_size"]),
        ],
        ..Family::new(&["gpt_oss"], "gpt-oss")
    },
    Family {
        names: &[GLM_NORMS, DECODER],
        defaults: &[("partial_rotary_factor", 0.5)],
        ..Family::new(&["glm4"], "glm4")
    },
    Family {
        names: &[POST_ATTENTION, DECODER],
        keys: ROUTED,
        defaults: &[
            ("partial_rotary_factor", 0.5),
            ("n_group", 1.0),
            ("topk_group", 1.0),
        ],
        also: |_, draft| {
            draft.set_sigmoid_gating();
            Ok(())
        },
        ..Family::new(&["glm4_moe"], "glm4moe")
    },
    Family {
        names: &[SANDWICH, DECODER],
        keys: &[WINDOW],
        also: rope::exaone4,
        ..Family::new(&["exaone4"], "exaone4")
    },
    Family {
        names: &[POST_ATTENTION, DECODER],
        ..Family::new(&["seed_oss"], "seed_oss")
    },
    Family {
        keys: &[number("logit_scale", &["logit_scale"])],
        defaults: &[("tie_word_embeddings", 1.0)],
        ..Family::new(&["cohere"], "command-r")
    },
    Family {
        keys: &[WINDOW, number("logit_scale", &["logit_scale"])],
        defaults: &[("tie_word_embeddings", 1.0)],
        ..Family::new(&["cohere2"], "cohere2")
    },
    Family {
        defaults: &[("partial_rotary_factor", 0.25)],
        fixed: &[("hidden_act", &["\"silu\""]), ("qk_layernorm", &["false"])],
        ..Family::new(&["stablelm"], "stablelm")
    },
    Family {
        globals: &[NORM_PLUS_ONE, GLOBALS],
        names: &[NEMOTRON_NORMS, DECODER],
        defaults: &[("partial_rotary_factor", 0.5), ("norm_eps", 1e-5)],
        fixed: &[("hidden_act", &["\"relu2\""])],
        keys: &[number("attention.layer_norm_epsilon", &["norm_eps"])],
        ..Family::new(&["nemotron"], "nemotron")
    },
    Family {
        fixed: &[("hidden_act", &["\"silu\""]), ("use_bias", &["false"])],
        ..Family::new(&["ernie4_5"], "ernie4_5")
    },
    Family {
        also: rope::hunyuan,
        ..Family::new(&["hunyuan_v1_dense"], "hunyuan-dense")
    },
    Family {
        names: &[HUNYUAN_EXPERTS, DECODER],
        also: rope::hunyuan_moe,
        ..Family::new(&["hunyuan_v1_moe"], "hunyuan-moe")
    },
    Family {
        names: &[APERTUS, DECODER],
        fixed: &[("hidden_act", &["\"xielu\""]), ("mlp_bias", &["false"])],
        ..Family::new(&["apertus"], "apertus")
    },
    Family {
        layer: "blocks.",
        prefix: "transformer.",
        names: &[MPT],
        keys: &[
            number("attention.clamp_kqv", &["clip_qkv"]),
            number("attention.max_alibi_bias", &["alibi_bias_max"]),
        ],
        defaults: &[
            ("layer_norm_epsilon", 1e-5),
            ("tie_word_embeddings", 1.0),
            ("alibi_bias_max", 8.0),
        ],
        fixed: &[
            ("alibi", &["true"]),
            ("attn_type", &["\"multihead_attention\""]),
            ("expansion_ratio", &["4"]),
            ("no_bias", &["true"]),
            ("prefix_lm", &["false"]),
            ("qk_ln", &["false"]),
            ("softmax_scale", &["null"]),
        ],
        ..Family::new(&["mpt"], "mpt")
    },
    Family {
        layer: "blocks.",
        prefix: "transformer.",
        names: &[DBRX],
        keys: &[number("attention.clamp_kqv", &["clip_qkv"])],
        defaults: &[("layer_norm_eps", 1e-5)],
        fixed: &[
            ("ffn_act_fn", &["{\"name\":\"silu\"}", "null"]),
            ("moe_normalize_expert_weights", &["1", "1.0"]),
        ],
        ..Family::new(&["dbrx"], "dbrx")
    },
    Family {
        names: &[LLAMA4, DECODER],
        keys: &[
            size("expert_feed_forward_length", &["intermediate_size"]),
            size("interleave_moe_layer_step", &["interleave_moe_layer_step"]),
        ],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("attention_chunk_size", &["8192"]),
        ],
        ..Family::new(&["llama4", "llama4_text"], "llama4")
    },
    Family::new(
        &["qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
        "qwen2vl",
    ),
    Family::new(&["qwen3_vl", "qwen3_vl_text"], "qwen3vl"),
    Family {
        names: &[TURNED_EXPERTS, DECODER],
        keys: &[EXPERT_WIDTH],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("norm_topk_prob", &["true"]),
            ("decoder_sparse_step", &["1"]),
            ("mlp_only_layers", &["[]"]),
        ],
        ..Family::new(&["qwen3_vl_moe", "qwen3_vl_moe_text"], "qwen3vlmoe")
    },
    Family {
        names: &[CHOICE_BIAS, DECODER],
        keys: &[
            EXPERT_WIDTH,
            size("expert_shared_count", &["moe_num_shared_experts"]),
            size("leading_dense_block_count", &["moe_layer_start_index"]),
            size("interleave_moe_layer_step", &["moe_layer_interval"]),
        ],
        fixed: &[("hidden_act", &["\"silu\""]), ("use_bias", &["false"])],
        also: rope::shared_experts,
        ..Family::new(&["ernie4_5_moe"], "ernie4_5-moe")
    },
    Family {
        names: &[CHOICE_BIAS, DECODER],
        keys: &[size("expert_feed_forward_length", &["intermediate_size"])],
        ..Family::new(&["minimax_m2"], "minimax-m2")
    },
    Family {
        names: &[AFMOE, POST_ATTENTION, DECODER],
        keys: &[
            WINDOW,
            EXPERT_WIDTH,
            size("expert_shared_count", &["num_shared_experts"]),
            size("leading_dense_block_count", &["num_dense_layers"]),
            number("expert_weights_scale", &["route_scale"]),
            flag("expert_weights_norm", &["route_norm"]),
        ],
        defaults: &[("route_norm", 1.0)],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("mup_enabled", &["true"]),
            ("global_attn_every_n_layers", &["4"]),
        ],
        ..Family::new(&["afmoe"], "afmoe")
    },
    Family {
        keys: ROUTED,
        also: |_, draft| {
            draft.set_sigmoid_gating();
            Ok(())
        },
        ..Family::new(&["dots1"], "dots1")
    },
    Family {
        names: &[LATENT, DECODER],
        keys: LATENT_KEYS,
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("attention_bias", &["false"]),
            ("topk_method", &["\"greedy\""]),
            ("norm_topk_prob", &["false"]),
        ],
        also: latent::latent,
        ..Family::new(&["deepseek_v2"], "deepseek2")
    },
    Family {
        names: &[LATENT, DECODER],
        keys: LATENT_KEYS,
        fixed: LATENT_FIXED,
        also: |config, draft| {
            draft.set_sigmoid_gating();
            latent::latent(config, draft)
        },
        ..Family::new(&["deepseek_v3", "kimi_k2", "glm4_moe_lite"], "deepseek2")
    },
    Family {
        names: &[LATENT, DECODER],
        keys: LATENT_KEYS,
        fixed: LATENT_FIXED,
        also: latent::mistral4,
        ..Family::new(&["mistral4"], "mistral4")
    },
    Family {
        names: &[ONE_LATENT, LATENT, DECODER],
        keys: &[size("attention.q_lora_rank", &["q_lora_rank"])],
        defaults: &[("tie_word_embeddings", 1.0)],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("attention_bias", &["false"]),
            ("scale_emb", &["12", "12.0"]),
            ("scale_depth", &["1.4"]),
            ("dim_model_base", &["256"]),
        ],
        also: latent::minicpm3,
        ..Family::new(&["minicpm3"], "minicpm3")
    },
    Family {
        names: &[CHOICE_BIAS, DECODER],
        keys: &[
            WINDOW,
            EXPERT_WIDTH,
            size("expert_shared_count", &["num_shared_experts"]),
            number("expert_weights_scale", &["routed_scaling_factor"]),
            flag("expert_weights_norm", &["norm_topk_prob"]),
        ],
        also: |config, draft| {
            draft.set_sigmoid_gating();
            rope::shared_experts(config, draft)?;
            rope::listed_windows(config, draft)?;
            rope::dense_first(config, draft)
        },
        ..Family::new(&["exaone_moe"], "exaone-moe")
    },
    Family {
        keys: &[
            WINDOW,
            number("logit_scale", &["logit_scale"]),
            size("expert_feed_forward_length", &["intermediate_size"]),
            size("expert_shared_count", &["num_shared_experts"]),
            flag("expert_weights_norm", &["norm_topk_prob"]),
        ],
        defaults: &[("tie_word_embeddings", 1.0)],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("attention_bias", &["false"]),
            ("expert_selection_fn", &["\"sigmoid\""]),
            ("prefix_dense_sliding_window_pattern", &["1"]),
            ("shared_expert_combination_strategy", &["\"average\""]),
        ],
        also: |config, draft| {
            draft.set_sigmoid_gating();
            rope::listed_windows(config, draft)?;
            rope::dense_first(config, draft)
        },
        ..Family::new(&["cohere2_moe"], "cohere2moe")
    },
    Family {
        names: &[AFMOE, HUNYUAN_EXPERTS, DECODER],
        keys: &[
            EXPERT_WIDTH,
            number("expert_weights_scale", &["router_scaling_factor"]),
            flag("expert_weights_norm", &["route_norm"]),
        ],
        defaults: &[("route_norm", 1.0)],
        also: |config, draft| {
            draft.set_sigmoid_gating();
            rope::shared_experts(config, draft)
        },
        ..Family::new(&["hy_v3"], "hy_v3")
    },
    Family {
        names: &[MIMO2, DECODER],
        keys: &[
            WINDOW,
            EXPERT_WIDTH,
            number("attention.value_scale", &["attention_value_scale"]),
            number("expert_weights_scale", &["routed_scaling_factor"]),
        ],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("attention_bias", &["false"]),
            ("norm_topk_prob", &["true"]),
        ],
        also: rope::mimo2,
        ..Family::new(&["mimo_v2_flash"], "mimo2")
    },
    Family {
        names: &[LAGUNA, DECODER],
        keys: &[
            WINDOW,
            EXPERT_WIDTH,
            size(
                "expert_shared_feed_forward_length",
                &["shared_expert_intermediate_size"],
            ),
            number("expert_weights_scale", &["moe_routed_scaling_factor"]),
        ],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("moe_apply_router_weight_on_input", &["false"]),
            ("moe_router_logit_softcapping", &["0", "0.0"]),
        ],
        also: |config, draft| {
            draft.set_sigmoid_gating();
            draft.set("expert_weights_norm", true);
            rope::laguna(config, draft)
        },
        ..Family::new(&["laguna"], "laguna")
    },
    Family {
        fixed: &[("hidden_act", &["\"relu2\""])],
        ..Family::new(&["jais2"], "jais2")
    },
    Family {
        keys: GRANITE_KEYS,
        defaults: &[("tie_word_embeddings", 1.0)],
        also: rope::granite_swa,
        ..Family::neighbours(&["granite_swa"], "granite_swa")
    },
    Family {
        keys: &[WINDOW, EXPERT_WIDTH],
        fixed: &[
            ("hidden_act", &["\"silu\""]),
            ("attention_bias", &["false"]),
            ("norm_topk_prob", &["true"]),
        ],
        also: rope::mellum,
        ..Family::new(&["mellum"], "mellum")
    },
    Family {
        ignored: &["vit."],
        also: rope::hunyuan,
        ..Family::new(&["hunyuan_vl", "hunyuan_vl_text"], "hunyuan_vl")
    },
    Family {
        ignored: &["mlp_AR."],
        fixed: &[("hidden_act", &["\"silu\""]), ("use_bias", &["false"])],
        ..Family::new(&["paddleocr_vl", "paddleocr_vl_text"], "paddleocr")
    },
];

/// Keys of latent attention and its experts.
const LATENT_KEYS: &[Key] = &[
    size("attention.q_lora_rank", &["q_lora_rank"]),
    EXPERT_WIDTH,
    size("expert_shared_count", &["n_shared_experts"]),
    size("leading_dense_block_count", &["first_k_dense_replace"]),
    number("expert_weights_scale", &["routed_scaling_factor"]),
    flag("expert_weights_norm", &["norm_topk_prob"]),
];

/// Values that latent attention has in later models.
const LATENT_FIXED: &[(&str, &[&str])] = &[
    ("hidden_act", &["\"silu\""]),
    ("attention_bias", &["false"]),
    ("rope_interleave", &["true"]),
];

/// Nemotron's layer norms, which add 1 to their weights.
const NEMOTRON_NORMS: &[Row] = &[
    row("input_layernorm", &[("attn_norm", AddOne)]),
    row("post_attention_layernorm", &[("ffn_norm", AddOne)]),
];

/// The description of a `model_type`.
pub(super) fn named(kind: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.types.contains(&kind))
}

/// All `model_type`s, sorted.
pub(super) fn types() -> Vec<&'static str> {
    let mut types: Vec<_> = FAMILIES.iter().flat_map(|f| f.types).copied().collect();
    types.sort_unstable();
    types
}
