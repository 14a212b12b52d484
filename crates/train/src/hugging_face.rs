//! Models as Hugging Face's `transformers` saves them: a folder with `config.json`, `tokenizer.json` and safetensors files.
//!
//! What is read becomes a model file in memory, with llama.cpp's names and keys, so that everything else knows one kind
//! of model alone. Source: `convert_hf_to_gguf.py` of llama.cpp says what the names are there, and that rows of query and
//! key matrices of the architecture `llama` change places, as its rotation is of neighbours.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rustorch_files::{Tensors, safetensors};
use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::TrainError;

/// What of `config.json` is looked at.
#[derive(Deserialize)]
struct Config {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    /// Where newer versions have `rope_theta`.
    rope_parameters: Option<Rotation>,
    #[serde(default)]
    tie_word_embeddings: bool,
    bos_token_id: Option<u32>,
    eos_token_id: Option<Value>,
}

#[derive(Deserialize)]
struct Rotation {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
}

/// What of `tokenizer.json` is looked at.
#[derive(Deserialize)]
struct TokenizerFile {
    model: Vocabulary,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    pre_tokenizer: Option<Value>,
}

#[derive(Deserialize)]
struct Vocabulary {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: BTreeMap<String, u32>,
    merges: Vec<Merge>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair([String; 2]),
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    special: bool,
}

/// What of `tokenizer_config.json` is looked at.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    add_bos_token: Option<bool>,
    chat_template: Option<Value>,
}

/// llama.cpp's `llama_token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Names of layers' tensors, there and here.
const OF_LAYERS: [(&str, &str); 14] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
];

/// Names of the other tensors.
const OTHERS: [(&str, &str); 3] = [
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// The folder of a model that a path is, or is a safetensors file in.
pub fn folder(path: &Path) -> Option<PathBuf> {
    match path.is_dir() {
        true => Some(path.to_owned()),
        false
            if path
                .extension()
                .is_some_and(|ending| ending == "safetensors") =>
        {
            Some(path.parent()?.to_owned())
        }
        false => None,
    }
}

/// The files of a folder that its weights are in.
///
/// # Errors
/// There are none, or the list of them cannot be read.
pub fn weights(folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let whole = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    if whole.exists() || !index.exists() {
        return Ok(vec![whole]);
    }
    let Index { weight_map } = json(&index)?;
    let mut names: Vec<String> = weight_map.into_values().collect();
    names.sort();
    names.dedup();
    // Names, not ways to other folders.
    if let Some(name) = names
        .iter()
        .find(|name| Path::new(name).components().count() != 1)
    {
        return Err(damaged(
            &index,
            format!("{name:?} is no file of the folder"),
        ));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The model in a folder.
///
/// # Errors
/// A file is not there, or is damaged; the architecture, the vocabulary or the rotation is of another kind than those that
/// are read.
pub fn read(folder: &Path) -> Result<Gguf, TrainError> {
    let config: Config = json(&folder.join("config.json"))?;
    if !matches!(&*config.model_type, "llama" | "qwen2" | "qwen3") {
        let found = format!(
            "the architecture {:?} is none of llama, qwen2 and qwen3",
            config.model_type
        );
        return Err(damaged(&folder.join("config.json"), found));
    }
    let mut metadata = config.metadata(folder)?;
    vocabulary(folder, &config, &mut metadata)?;
    let mut tensors = Tensors::new();
    for path in weights(folder)? {
        for (name, tensor) in safetensors::load(&path)?.iter() {
            tensors.insert(name, tensor.clone());
        }
    }
    let named = config.named(&tensors, &folder.join("config.json"))?;
    let mut writer = GgufWriter::new(metadata);
    for (name, tensor) in &named {
        let dims: Vec<u64> = tensor.shape().iter().rev().map(|&dim| dim as u64).collect();
        writer.add_tensor(name.clone(), dims, ty(tensor))?;
    }
    let mut bytes = Vec::with_capacity(named.len());
    for (_, tensor) in &named {
        bytes.push(elements(tensor)?);
    }
    Ok(writer.to_memory(|index, _, data| data.copy_from_slice(&bytes[index]))?)
}

impl Config {
    fn metadata(&self, folder: &Path) -> Result<Metadata, TrainError> {
        let path = folder.join("config.json");
        let kind = |scaling: &Value| {
            let kind = scaling.get("rope_type").or(scaling.get("type"));
            kind.and_then(Value::as_str).map(str::to_owned)
        };
        let newer = self.rope_parameters.as_ref();
        let scaled = self
            .rope_scaling
            .as_ref()
            .filter(|scaling| !scaling.is_null());
        let kinds = [
            scaled.map(|scaling| kind(scaling).unwrap_or_else(|| "unnamed".to_owned())),
            newer.and_then(|rotation| rotation.rope_type.clone()),
        ];
        if let Some(kind) = kinds.into_iter().flatten().find(|kind| kind != "default") {
            let found = format!("rotary scaling of the kind {kind:?}; convert the model to GGUF");
            return Err(damaged(&path, found));
        }
        let heads = self.num_attention_heads;
        if heads == 0 || self.num_key_value_heads == Some(0) {
            return Err(damaged(&path, "a model of no heads".to_owned()));
        }
        let (mut metadata, architecture) = (Metadata::new(), &self.model_type);
        metadata.insert("general.architecture", &**architecture);
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        metadata.insert("general.name", &*name);
        let head = self.head();
        let sizes = [
            ("context_length", self.max_position_embeddings),
            ("embedding_length", self.hidden_size),
            ("block_count", self.num_hidden_layers),
            ("feed_forward_length", self.intermediate_size),
            ("attention.head_count", heads),
            ("attention.head_count_kv", self.kv_heads()),
            ("attention.key_length", head),
            ("attention.value_length", head),
            ("rope.dimension_count", head),
            ("vocab_size", self.vocab_size),
        ];
        for (key, size) in sizes {
            let size = u32::try_from(size).map_err(|_| damaged(&path, format!("{key} {size}")))?;
            metadata.insert(format!("{architecture}.{key}"), size);
        }
        let base = self
            .rope_theta
            .or(newer.and_then(|rotation| rotation.rope_theta));
        let numbers = [
            ("attention.layer_norm_rms_epsilon", self.rms_norm_eps),
            ("rope.freq_base", base.unwrap_or(10_000.0)),
        ];
        for (key, number) in numbers {
            metadata.insert(format!("{architecture}.{key}"), number as f32);
        }
        Ok(metadata)
    }

    fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// The width of a head.
    fn head(&self) -> usize {
        self.head_dim
            .unwrap_or(self.hidden_size / self.num_attention_heads)
    }

    /// Tensors by llama.cpp's names, in the order of layers.
    fn named(&self, tensors: &Tensors, path: &Path) -> Result<Vec<(String, Tensor)>, TrainError> {
        let mut named = Vec::new();
        let is_head = |name: &str| name == "lm_head.weight";
        for (there, here) in OTHERS {
            match tensors.get(there) {
                Ok(_) if is_head(there) && self.tie_word_embeddings => {}
                Ok(tensor) => named.push((here.to_owned(), tensor.clone())),
                Err(_) if is_head(there) && self.tie_word_embeddings => {}
                Err(error) => return Err(error.into()),
            }
        }
        for layer in 0..self.num_hidden_layers {
            for (there, here) in OF_LAYERS {
                let there = format!("model.layers.{layer}.{there}");
                // Biases, and norms of queries and keys, are not in all architectures.
                let is_optional = here.ends_with(".bias") || here.contains("_norm.weight");
                let tensor = match tensors.get(&there) {
                    Ok(tensor) => tensor.clone(),
                    Err(_) if is_optional => continue,
                    Err(error) => return Err(error.into()),
                };
                let heads = match here {
                    "attn_q.weight" | "attn_q.bias" => self.num_attention_heads,
                    "attn_k.weight" | "attn_k.bias" => self.kv_heads(),
                    _ => 0,
                };
                let tensor = match self.model_type == "llama" && heads > 0 {
                    true => neighbours(&tensor, heads, path)?,
                    false => tensor,
                };
                named.push((format!("blk.{layer}.{here}"), tensor));
            }
        }
        Ok(named)
    }
}

/// Rows of heads in the order of llama.cpp's rotation: those that are rotated together beside each other.
fn neighbours(tensor: &Tensor, heads: usize, path: &Path) -> Result<Tensor, TrainError> {
    let shape = tensor.shape();
    let rows = shape.first().copied().unwrap_or(0);
    if !rows.is_multiple_of(2 * heads) {
        return Err(damaged(
            path,
            format!("{rows} rows are not of {heads} heads"),
        ));
    }
    let rest: usize = shape[1..].iter().product();
    let split = tensor.reshape([heads, 2, rows / heads / 2, rest])?;
    Ok(split.permute([0, 2, 1, 3])?.reshape(shape)?)
}

/// The type of a tensor in a model's file: of a vector single precision.
fn ty(tensor: &Tensor) -> GgmlType {
    match tensor.dtype() {
        DType::F16 if tensor.rank() > 1 => GgmlType::F16,
        DType::BF16 if tensor.rank() > 1 => GgmlType::BF16,
        _ => GgmlType::F32,
    }
}

/// Its elements' bytes there.
fn elements(tensor: &Tensor) -> Result<Vec<u8>, TrainError> {
    let flat = tensor.flatten(0, -1)?;
    Ok(match ty(tensor) {
        GgmlType::F16 => bytes_of(flat.to_vec::<f16>()?, f16::to_le_bytes),
        GgmlType::BF16 => bytes_of(flat.to_vec::<bf16>()?, bf16::to_le_bytes),
        _ => bytes_of(
            flat.to_dtype(DType::F32)?.to_vec::<f32>()?,
            f32::to_le_bytes,
        ),
    })
}

fn bytes_of<T, const N: usize>(elements: Vec<T>, bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    elements.into_iter().flat_map(bytes).collect()
}

/// Adds the keys of a vocabulary.
fn vocabulary(folder: &Path, config: &Config, metadata: &mut Metadata) -> Result<(), TrainError> {
    let path = folder.join("tokenizer.json");
    let file: TokenizerFile = json(&path)?;
    let kind = file.model.kind.as_deref().unwrap_or("BPE");
    let pre = pre_tokenizer(file.pre_tokenizer.as_ref());
    let (true, Some(pre)) = (kind == "BPE", pre) else {
        let found = "a vocabulary of another kind than GPT-2's, Llama 3's and Qwen's; convert the model to GGUF";
        return Err(damaged(&path, found.to_owned()));
    };
    let mut tokens: Vec<String> = (0..config.vocab_size)
        .map(|id| format!("[PAD{id}]"))
        .collect();
    let mut types = vec![UNUSED; tokens.len()];
    let added = (file.added_tokens.into_iter()).map(|token| {
        let ty = if token.special { CONTROL } else { USER_DEFINED };
        (token.content, token.id, ty)
    });
    let normal = (file.model.vocab.into_iter()).map(|(token, id)| (token, id, NORMAL));
    for (token, id, ty) in normal.chain(added) {
        let place = (tokens.get_mut(id as usize)).zip(types.get_mut(id as usize));
        let Some((token_at, type_at)) = place else {
            let found = format!("token {id} of a vocabulary of {}", config.vocab_size);
            return Err(damaged(&path, found));
        };
        (*token_at, *type_at) = (token, ty);
    }
    let merges: Vec<String> = (file.model.merges.into_iter())
        .map(|merge| match merge {
            Merge::Text(text) => text,
            Merge::Pair([left, right]) => format!("{left} {right}"),
        })
        .collect();
    metadata.insert("tokenizer.ggml.model", "gpt2");
    metadata.insert("tokenizer.ggml.pre", pre);
    metadata.insert("tokenizer.ggml.tokens", tokens);
    metadata.insert("tokenizer.ggml.token_type", types);
    metadata.insert("tokenizer.ggml.merges", merges);
    if let Some(bos) = config.bos_token_id {
        metadata.insert("tokenizer.ggml.bos_token_id", bos);
    }
    let eos = config.eos_token_id.as_ref();
    let eos = eos.and_then(|eos| eos.as_u64().or_else(|| eos.get(0)?.as_u64()));
    if let Some(eos) = eos.and_then(|eos| u32::try_from(eos).ok()) {
        metadata.insert("tokenizer.ggml.eos_token_id", eos);
    }
    let settings = folder.join("tokenizer_config.json");
    let settings: TokenizerConfig = match settings.exists() {
        true => json(&settings)?,
        false => TokenizerConfig::default(),
    };
    if let Some(adds) = settings.add_bos_token {
        metadata.insert("tokenizer.ggml.add_bos_token", adds);
    }
    let template = folder.join("chat_template.jinja");
    let template = match settings.chat_template {
        Some(Value::String(template)) => Some(template),
        _ if template.exists() => Some(text(&template)?),
        _ => None,
    };
    if let Some(template) = template {
        metadata.insert("tokenizer.chat_template", &*template);
    }
    Ok(())
}

/// llama.cpp's name of what splits words, if it is one of those that are known here.
fn pre_tokenizer(found: Option<&Value>) -> Option<&'static str> {
    let found = found?;
    let parts = match found["type"].as_str()? {
        "Sequence" => found["pretokenizers"].as_array()?.clone(),
        _ => vec![found.clone()],
    };
    let kinds: Vec<&str> = parts
        .iter()
        .filter_map(|part| part["type"].as_str())
        .collect();
    match *kinds {
        ["ByteLevel"] if parts[0]["use_regex"].as_bool() != Some(false) => Some("gpt-2"),
        ["Split", "ByteLevel"] => {
            let words = parts[0]["pattern"]["Regex"].as_str()?;
            // They differ in how many digits belong together.
            match (words.contains(r"\p{N}{1,3}"), words.contains(r"|\p{N}|")) {
                (true, _) if words.starts_with("(?i:'s|'t") => Some("llama-bpe"),
                (_, true) if words.starts_with("(?i:'s|'t") => Some("qwen2"),
                _ => None,
            }
        }
        _ => None,
    }
}

fn text(path: &Path) -> Result<String, TrainError> {
    fs::read_to_string(path).map_err(TrainError::io(path, "read the file"))
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, TrainError> {
    let text = text(path)?;
    serde_json::from_str(&text).map_err(|error| damaged(path, error.to_string()))
}

fn damaged(path: &Path, problem: String) -> TrainError {
    TrainError::Setting(format!("{}: {problem}", path.display()))
}
