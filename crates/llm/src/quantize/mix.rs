//! Choice of each tensor's type in a file.
//!
//! A file type is a mix: the tensors that affect the output most get more bits. The rules are
//! llama.cpp's (`src/llama-quant.cpp`), so both give a model the same types.

use rustorch_gguf::GgmlType;

use super::FileType;
use crate::spec::{Role, layer_of};

/// Facts of a model that the mixes depend on, besides its tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTraits {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Attention heads of the first layer.
    pub heads: usize,
    /// Key/value heads of the first layer, 0 if it has none.
    pub kv_heads: usize,
    /// Experts of a mixture of experts, 0 in a dense model.
    pub experts: usize,
    /// Tensors that hold attention values, on their own or fused.
    pub attention_values: usize,
    /// Whether the token embeddings serve as the output matrix.
    pub tied_output: bool,
}

/// Numbers of earlier tensors of two kinds, in the new file's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Tensors of attention values.
    pub attention_values: usize,
    /// Down projections.
    pub ffn_down: usize,
}

/// The type that a tensor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The type.
    pub ty: GgmlType,
    /// The type that the mix requested, if the tensor's rows do not fill whole blocks of it.
    pub wanted: GgmlType,
}

impl ModelTraits {
    /// Counts tensors by their names; the caller sets the other fields.
    pub fn count_tensors<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.attention_values = 0;
        self.tied_output = true;
        for name in names {
            self.attention_values += usize::from(are_values(name));
            self.tied_output &= Role::of(name) != Some(Role::Head);
        }
    }

    fn query_heads_per_kv_head(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// A model that llama.cpp classifies as 70B.
    fn is_70b(&self) -> bool {
        match (self.architecture.as_str(), self.layers) {
            ("llama", 80) => self.heads != self.kv_heads,
            ("qwen2" | "deci" | "olmo", 80) | ("jais2", 68) => true,
            _ => false,
        }
    }
}

impl Seen {
    /// Counts the tensor of this name.
    pub fn count(&mut self, name: &str) {
        self.attention_values += usize::from(are_values(name));
        self.ffn_down += usize::from(Role::of(name) == Some(Role::Down));
    }
}

/// The type that a file of `file_type` gives to the tensor `name` with the dimensions `dims` (fastest first).
/// `None` keeps the tensor's type. `seen` are the earlier tensors that change their type.
pub fn tensor_type(
    file_type: FileType,
    model: &ModelTraits,
    name: &str,
    dims: &[u64],
    seen: Seen,
) -> Option<Choice> {
    if !is_quantizable(model, name, dims) {
        return None;
    }
    let base = file_type.base();
    let wanted = match base.block_format() {
        Some(_) => mixed_type(file_type, model, name, dims, seen),
        None => base,
    };
    Some(Choice {
        ty: fitting_type(wanted, dims[0]),
        wanted,
    })
}

/// Returns whether these are attention values, on their own or fused with queries and keys.
fn are_values(name: &str) -> bool {
    matches!(Role::of(name), Some(Role::Values | Role::QueriesKeysValues))
}

/// Whether the tensor is an embedding or output matrix.
pub(super) fn is_embedding(name: &str) -> bool {
    matches!(Role::of(name), Some(Role::Head | Role::TokenEmbedding))
}

/// Parts of names of matrices that keep their type, being small or sensitive.
const KEPT: [&str; 34] = [
    "_norm.weight",
    "ffn_gate_tid2eid.weight",
    // Small projections of single architectures.
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    // RWKV's small matrices.
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    // Positions.
    "attn_rel_b.weight",
    ".position_embd",
    // Vision and audio.
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// The same for the architecture `glm5-next`.
const KEPT_GLM5_NEXT: [&str; 14] = [
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
];

/// Parts of names that `glm5-next` never quantises below `Q8_0`.
const PRECISE_GLM5_NEXT: [&str; 3] = ["attn_q_a", "attn_q_b", "nextn.eh_proj"];

fn contains_any(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}

fn is_glm5_next(model: &ModelTraits) -> bool {
    model.architecture == "glm5-next"
}

/// Whether the tensor is a weight matrix, or a stack of them, that may change its type.
fn is_quantizable(model: &ModelTraits, name: &str, dims: &[u64]) -> bool {
    let is_matrix = dims.iter().skip(1).any(|&dim| dim > 1);
    is_matrix
        && name.ends_with("weight")
        && !matches!(
            Role::of(name),
            Some(Role::PositionEmbedding | Role::TypeEmbedding | Role::Router)
        )
        && !contains_any(name, &KEPT)
        && !(is_glm5_next(model) && contains_any(name, &KEPT_GLM5_NEXT))
}

/// Whether the tensor is a stack of experts' matrices. One architecture has other matrices in stacks too.
fn are_experts(model: &ModelTraits, name: &str, dims: &[u64]) -> bool {
    let is_stack = dims.get(2).is_some_and(|&count| count > 1);
    is_stack && (model.architecture != "bailingmoe3" || name.contains("ffn_"))
}

/// The first and last eighth of the layers, and every third one between.
fn deserves_more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= layers - layers.div_ceil(8) || (layer - eighth) % 3 == 2
}

fn mixed_type(
    file_type: FileType,
    model: &ModelTraits,
    name: &str,
    dims: &[u64],
    seen: Seen,
) -> GgmlType {
    use FileType::{Mxfp4Moe, Q2K, Q2KS, Q3KL, Q3KM, Q3KS, Q4KM, Q4KS, Q5KM};

    let base = file_type.base();
    let is_falcon = model.architecture == "falcon";
    // Mixtral's size, which spends a little more on the few tensors that its experts share.
    let eight_experts = model.experts == 8;
    if is_glm5_next(model) && contains_any(name, &PRECISE_GLM5_NEXT) {
        return GgmlType::Q8_0;
    }
    if file_type == Mxfp4Moe && !are_experts(model, name, dims) {
        return GgmlType::Q8_0;
    }
    let role = match Role::of(name) {
        Some(Role::TokenEmbedding) if model.tied_output => Some(Role::Head),
        role => role,
    };
    let Some(role) = role else {
        return base;
    };
    match role {
        Role::Head if is_falcon || !dims[0].is_multiple_of(base.block_len() as u64) => {
            GgmlType::Q8_0
        }
        Role::Head if base != GgmlType::Q8_0 => GgmlType::Q6K,
        Role::Values | Role::QueriesKeysValues => {
            let i = seen.attention_values;
            let shared = model.query_heads_per_kv_head() >= 4;
            let ty = match file_type {
                Q2K if !shared => GgmlType::Q3K,
                Q2K | Q2KS if shared => GgmlType::Q4K,
                Q3KM if i >= 2 => GgmlType::Q4K,
                Q3KM | Q3KL => GgmlType::Q5K,
                Q4KS if i < 4 => GgmlType::Q5K,
                Q4KM | Q5KM if deserves_more_bits(i, model.attention_values) => GgmlType::Q6K,
                _ => base,
            };
            if eight_experts {
                GgmlType::Q8_0
            } else if model.is_70b() && matches!(ty, GgmlType::Q3K | GgmlType::Q4K) {
                // Eight query heads share these few values.
                GgmlType::Q5K
            } else {
                ty
            }
        }
        Role::Keys if eight_experts => GgmlType::Q8_0,
        Role::AttentionOutput => match file_type {
            Q3KL if is_falcon => GgmlType::Q4K,
            _ if is_falcon => base,
            Q2K | Q3KS | Q3KM | Q4KS | Q4KM if eight_experts => GgmlType::Q5K,
            _ if eight_experts => base,
            Q2K => GgmlType::Q3K,
            Q3KM => GgmlType::Q4K,
            Q3KL => GgmlType::Q5K,
            _ => base,
        },
        Role::Down => {
            let n = model.layers;
            // Experts are not stored in the order of their layers; their names tell.
            let by_name = if model.experts > 1 {
                layer_of(name)
            } else {
                None
            };
            let i = by_name.unwrap_or(seen.ffn_down);
            let more = deserves_more_bits(i, n);
            match file_type {
                Q2K => GgmlType::Q3K,
                Q2KS if i < n / 8 => GgmlType::Q4K,
                Q3KM if i < n / 16 => GgmlType::Q5K,
                Q3KM if !is_falcon || more => GgmlType::Q4K,
                Q3KL if is_falcon => GgmlType::Q4K,
                Q3KL => GgmlType::Q5K,
                Q4KS if !is_falcon && i < n / 8 => GgmlType::Q5K,
                Q4KM if is_falcon && i < n / 16 => GgmlType::Q6K,
                Q4KM if is_falcon && more => GgmlType::Q5K,
                Q4KM | Q5KM if more => GgmlType::Q6K,
                _ => base,
            }
        }
        _ => base,
    }
}

/// `wanted`, or a type of about as many bits whose blocks rows of `row` elements fill.
fn fitting_type(wanted: GgmlType, row: u64) -> GgmlType {
    let fits = |ty: GgmlType| row.is_multiple_of(ty.block_len() as u64);
    if fits(wanted) {
        return wanted;
    }
    let smaller = match wanted {
        GgmlType::Q2K | GgmlType::Q3K => GgmlType::Q4_0,
        GgmlType::Q4K => GgmlType::Q5_0,
        GgmlType::Q5K => GgmlType::Q5_1,
        GgmlType::Q6K => GgmlType::Q8_0,
        other => other,
    };
    if fits(smaller) {
        smaller
    } else {
        GgmlType::F16
    }
}
