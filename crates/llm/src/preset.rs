//! Models of well-known shapes with random weights, for measuring speed without a download.
//!
//! They have every tensor and type of the real file, so the work is the same. They have no
//! vocabulary. The weights are drawn once for each type, quantised, and repeated.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::str::FromStr;

use rustorch_gguf::{GgmlType, Gguf, GgufError, GgufWriter, Metadata, TensorInfo};
use rustorch_ir::DType;
use rustorch_ir::ops::{Distribution, Random};

use crate::LlmError;
use crate::quantize::{FileType, Seen, convert, model_traits, tensor_type};
use crate::spec::{ModelSpec, TensorSpec};

/// Sizes of a well-known model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    architecture: &'static str,
    layers: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    ff_width: usize,
    vocab: usize,
    context: usize,
    rope_base: f32,
    eps: f32,
    /// Further keys, without the architecture's prefix.
    keys: &'static [(&'static str, Key)],
    /// Ends of the names of tensors that the model has and others of its architecture may lack.
    optional: &'static [&'static str],
}

/// Value of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Key {
    Count(u32),
    Number(f32),
    Text(&'static str),
}

/// No preset has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown preset {name:?}: expected {}", Preset::ALL.map(|p| p.name).join(", "))]
pub struct UnknownPreset {
    name: String,
}

impl Preset {
    /// Every preset. Sizes are those of the models' published configurations.
    pub const ALL: [Self; 7] = [
        Self {
            name: "classics-13m",
            architecture: "llama",
            layers: 6,
            width: 512,
            heads: 8,
            kv_heads: 2,
            ff_width: 768,
            vocab: 4096,
            context: 1024,
            rope_base: 10_000.0,
            eps: 1e-5,
            keys: &[("rope.dimension_count", Key::Count(64))],
            optional: &[],
        },
        Self {
            name: "tinyllama-1.1b",
            architecture: "llama",
            layers: 22,
            width: 2048,
            heads: 32,
            kv_heads: 4,
            ff_width: 5632,
            vocab: 32_000,
            context: 2048,
            rope_base: 10_000.0,
            eps: 1e-5,
            keys: &[("rope.dimension_count", Key::Count(64))],
            optional: &["token_embd.weight", "output.weight"],
        },
        Self {
            name: "llama-3-8b",
            architecture: "llama",
            layers: 32,
            width: 4096,
            heads: 32,
            kv_heads: 8,
            ff_width: 14_336,
            vocab: 128_256,
            context: 8192,
            rope_base: 500_000.0,
            eps: 1e-5,
            keys: &[("rope.dimension_count", Key::Count(128))],
            optional: &["token_embd.weight", "output.weight"],
        },
        Self {
            name: "qwen3-8b",
            architecture: "qwen3",
            layers: 36,
            width: 4096,
            heads: 32,
            kv_heads: 8,
            ff_width: 12_288,
            vocab: 151_936,
            context: 40_960,
            rope_base: 1_000_000.0,
            eps: 1e-6,
            keys: &[
                ("attention.key_length", Key::Count(128)),
                ("attention.value_length", Key::Count(128)),
            ],
            optional: &["token_embd.weight", "output.weight"],
        },
        Self {
            name: "qwen3-30b-a3b",
            architecture: "qwen3moe",
            layers: 48,
            width: 2048,
            heads: 32,
            kv_heads: 4,
            ff_width: 6144,
            vocab: 151_936,
            context: 40_960,
            rope_base: 1_000_000.0,
            eps: 1e-6,
            keys: &[
                ("attention.key_length", Key::Count(128)),
                ("attention.value_length", Key::Count(128)),
                ("expert_count", Key::Count(128)),
                ("expert_used_count", Key::Count(8)),
                ("expert_feed_forward_length", Key::Count(768)),
            ],
            optional: &["token_embd.weight", "output.weight"],
        },
        Self {
            name: "gemma-3-4b",
            architecture: "gemma3",
            layers: 34,
            width: 2560,
            heads: 8,
            kv_heads: 4,
            ff_width: 10_240,
            vocab: 262_208,
            context: 131_072,
            rope_base: 1_000_000.0,
            eps: 1e-6,
            keys: &[
                ("attention.key_length", Key::Count(256)),
                ("attention.value_length", Key::Count(256)),
                ("attention.sliding_window", Key::Count(1024)),
                ("rope.scaling.type", Key::Text("linear")),
                ("rope.scaling.factor", Key::Number(8.0)),
            ],
            optional: &[],
        },
        Self {
            name: "gpt-oss-20b",
            architecture: "gpt-oss",
            layers: 24,
            width: 2880,
            heads: 64,
            kv_heads: 8,
            ff_width: 2880,
            vocab: 201_088,
            context: 131_072,
            rope_base: 150_000.0,
            eps: 1e-5,
            keys: &[
                ("attention.key_length", Key::Count(64)),
                ("attention.value_length", Key::Count(64)),
                ("attention.sliding_window", Key::Count(128)),
                ("expert_count", Key::Count(32)),
                ("expert_used_count", Key::Count(4)),
                ("expert_feed_forward_length", Key::Count(2880)),
                ("rope.scaling.type", Key::Text("yarn")),
                ("rope.scaling.factor", Key::Number(32.0)),
                ("rope.scaling.original_context_length", Key::Count(4096)),
            ],
            optional: &[
                "token_embd.weight",
                "output.weight",
                "attn_q.bias",
                "attn_k.bias",
                "attn_v.bias",
                "attn_output.bias",
                "ffn_gate_inp.bias",
                "_exps.bias",
            ],
        },
    ];

    /// The model's description.
    ///
    /// # Errors
    /// Fails if keys of the preset are invalid.
    pub fn spec(&self) -> Result<ModelSpec, LlmError> {
        ModelSpec::of_keys(&self.metadata())
    }

    /// The model in memory, its tensors of the types that `file_type` mixes.
    ///
    /// # Errors
    /// Fails if memory is too small for the model.
    pub fn build(&self, file_type: FileType) -> Result<Gguf, LlmError> {
        let writer = self.writer(file_type)?;
        let weights = RandomWeights::new(writer.tensors())?;
        let gguf = writer.to_memory(|i, tensor, data| {
            let mut rest = data;
            for part in weights.parts(i, tensor) {
                let (start, end) = rest.split_at_mut(part.len());
                start.copy_from_slice(part);
                rest = end;
            }
        })?;
        Ok(gguf)
    }

    /// Writes the model to a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&self, file_type: FileType, path: &Path) -> Result<(), LlmError> {
        let writer = self.writer(file_type)?;
        let weights = RandomWeights::new(writer.tensors())?;
        let mut tensors = 0..;
        let written = writer.write(path, |tensor, out| {
            let mut parts = tensors
                .next()
                .into_iter()
                .flat_map(|i| weights.parts(i, tensor));
            parts.try_for_each(|part| out.write_all(part))
        });
        Ok(written?)
    }

    fn writer(&self, file_type: FileType) -> Result<GgufWriter, LlmError> {
        let mut metadata = self.metadata();
        metadata.insert("general.file_type", file_type.id());
        described(metadata, file_type, self.optional)
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", self.architecture);
        metadata.insert("general.name", format!("{} with random weights", self.name));
        let key = |name| format!("{}.{name}", self.architecture);
        for (name, value) in [
            ("block_count", self.layers),
            ("context_length", self.context),
            ("embedding_length", self.width),
            ("feed_forward_length", self.ff_width),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("vocab_size", self.vocab),
        ] {
            metadata.insert(key(name), value as u32);
        }
        metadata.insert(key("rope.freq_base"), self.rope_base);
        metadata.insert(key("attention.layer_norm_rms_epsilon"), self.eps);
        for (name, value) in self.keys {
            match *value {
                Key::Count(count) => metadata.insert(key(name), count),
                Key::Number(number) => metadata.insert(key(name), number),
                Key::Text(text) => metadata.insert(key(name), text),
            };
        }
        metadata.insert("tokenizer.ggml.model", "no_vocab");
        metadata
    }
}

/// The header of a model with these keys, and with optional tensors whose names have these ends: its tensors in the
/// order of a quantised file, of the types that `file_type` mixes.
///
/// # Errors
/// Fails if keys are missing or invalid.
pub fn described(
    metadata: Metadata,
    file_type: FileType,
    optional: &[&str],
) -> Result<GgufWriter, LlmError> {
    let mut tensors = ModelSpec::of_keys(&metadata)?.tensors(optional)?;
    // `None` is less than any layer.
    tensors.sort_by(|a, b| (a.layer(), &a.name).cmp(&(b.layer(), &b.name)));
    let mut traits = model_traits(&metadata)?;
    traits.count_tensors(tensors.iter().map(|tensor| tensor.name.as_str()));
    let (mut writer, mut seen) = (GgufWriter::new(metadata), Seen::default());
    for TensorSpec { name, shape } in tensors {
        let dims: Vec<u64> = shape.into_iter().rev().map(|dim| dim as u64).collect();
        let ty = match tensor_type(file_type, &traits, &name, &dims, seen) {
            Some(choice) => {
                seen.count(&name);
                choice.ty
            }
            None => GgmlType::F32,
        };
        writer.add_tensor(name, dims, ty)?;
    }
    Ok(writer)
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        let found = Self::ALL.into_iter().find(|preset| preset.name == name);
        found.ok_or_else(|| UnknownPreset {
            name: name.to_owned(),
        })
    }
}

/// Random weights: normal numbers small enough that no activation grows out of range. The weights of one type
/// are drawn once.
struct RandomWeights {
    /// Blocks of each type.
    tiles: HashMap<GgmlType, Vec<u8>>,
    /// Values of vectors, nearly all of which are factors of norms.
    ones: Vec<u8>,
}

impl RandomWeights {
    /// Elements of a tile: whole blocks of every format.
    const TILE: usize = 1 << 18;
    const DEVIATION: f64 = 0.02;

    fn new(tensors: &[TensorInfo]) -> Result<Self, GgufError> {
        let is_vector = |tensor: &&TensorInfo| tensor.dims.len() == 1;
        let longest = tensors
            .iter()
            .filter(is_vector)
            .map(TensorInfo::elements)
            .max();
        let mut tiles = HashMap::new();
        for tensor in tensors.iter().filter(|tensor| !is_vector(tensor)) {
            if let Entry::Vacant(place) = tiles.entry(tensor.ty) {
                let drawn = tile(tensor.ty).map_err(|error| GgufError::Io {
                    action: format!("draw weights of type {}", tensor.ty.name()),
                    error,
                })?;
                place.insert(drawn);
            }
        }
        Ok(Self {
            tiles,
            ones: 1_f32.to_le_bytes().repeat(longest.unwrap_or(0)),
        })
    }

    /// The bytes of the tensor at this place in the order.
    fn parts(&self, at: usize, tensor: &TensorInfo) -> impl Iterator<Item = &[u8]> {
        let block = tensor.ty.block_bytes();
        let tile = match tensor.dims.len() {
            1 => &self.ones,
            _ => &self.tiles[&tensor.ty],
        };
        let blocks = tile.len() / block;
        // Each repetition begins at another block, so that rows differ.
        let turns = (1..).map(move |n| (at * 101 + n * 1009) % blocks * block);
        let mut left = tensor.bytes();
        let parts = turns.flat_map(move |turn| {
            let (end, start) = tile.split_at(turn);
            [start, end]
        });
        let parts = parts.filter(|part| !part.is_empty()).map(move |part| {
            let part = &part[..part.len().min(left)];
            left -= part.len();
            part
        });
        parts.take_while(|part| !part.is_empty())
    }
}

fn tile(ty: GgmlType) -> io::Result<Vec<u8>> {
    let normal = Random {
        distribution: Distribution::Normal,
        shape: [RandomWeights::TILE].as_slice().into(),
        dtype: DType::F32,
    };
    let weight = |i| (RandomWeights::DEVIATION * normal.draw([0, 0], i as u64)) as f32;
    let weights: Vec<u8> = (0..RandomWeights::TILE)
        .flat_map(|i| weight(i).to_le_bytes())
        .collect();
    let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    convert(
        &weights,
        GgmlType::F32,
        ty,
        RandomWeights::TILE / 64,
        threads,
    )
    .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionOptions;
    use crate::memory::working;

    fn preset(name: &str) -> Preset {
        name.parse().unwrap()
    }

    /// Sizes of the published models.
    #[test]
    fn presets_have_the_known_number_of_weights() {
        for (name, weights) in [
            ("classics-13m", 13_113_856),
            ("tinyllama-1.1b", 1_100_048_384),
            ("llama-3-8b", 8_030_261_248),
            ("qwen3-8b", 8_190_735_360),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("gemma-3-4b", 3_880_263_168),
            ("gpt-oss-20b", 20_914_757_184),
        ] {
            let writer = preset(name).writer(FileType::F16).unwrap();
            let sum: usize = writer.tensors().iter().map(TensorInfo::elements).sum();
            assert_eq!(sum, weights, "{name}");
        }
        assert!("gpt-5".parse::<Preset>().is_err());
    }

    /// A row of the guide's table: a type, its weights, and the memory that contexts need.
    fn row_of_the_guide(preset: &Preset, file_type: FileType) -> String {
        let writer = preset.writer(file_type).unwrap();
        let weights: u64 = writer.tensors().iter().map(|t| t.bytes() as u64).sum();
        let spec = preset.spec().unwrap();
        let gib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 30));
        let mut cells = vec![
            preset.name.to_owned(),
            file_type.name().to_owned(),
            gib(weights),
        ];
        for context in [2048, 8192, 32_768] {
            let batch = SessionOptions::default().batch;
            let cache = spec.cache_bytes(context, batch, DType::F16).unwrap();
            let cache: u64 = cache.iter().sum();
            cells.push(gib(weights + cache + working(&spec, batch)));
        }
        format!("| {} |", cells.join(" | "))
    }

    #[test]
    fn the_guide_has_the_memory_of_models() {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let types = [FileType::Q4KM, FileType::Q6K, FileType::Q8_0, FileType::F16];
        let rows = ["tinyllama-1.1b", "llama-3-8b"]
            .iter()
            .flat_map(|name| types.map(|ty| row_of_the_guide(&preset(name), ty)));
        let rows: Vec<String> = rows.collect();
        assert!(guide.contains(&rows.join("\n")), "{}", rows.join("\n"));
    }

    #[test]
    fn the_mix_is_that_of_a_real_file() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/classics-13m-Q4_K_M.gguf");
        let real = Gguf::open(path).unwrap();
        let made = preset("classics-13m").build(FileType::Q4KM).unwrap();
        let list = |gguf: &Gguf| -> Vec<_> {
            let tensors = gguf.tensors().iter();
            tensors
                .map(|t| (t.name.clone(), t.dims.to_vec(), t.ty))
                .collect()
        };
        assert_eq!(list(&made), list(&real));
    }

    #[test]
    fn weights_are_small_and_rows_differ() {
        let model = preset("classics-13m").build(FileType::Q8_0).unwrap();
        let embedding = model.tensor("token_embd.weight").unwrap();
        let format = embedding.ty.block_format().unwrap();
        let mut values = vec![0.0; embedding.elements()];
        format
            .dequantize(model.data(embedding), &mut values)
            .unwrap();
        let mean_square = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!(
            (0.019..0.021).contains(&mean_square.sqrt()),
            "{mean_square}"
        );
        let mut rows: Vec<&[f32]> = values.chunks(512).collect();
        rows.sort_by(|a, b| a.partial_cmp(b).unwrap());
        rows.dedup();
        assert!(rows.len() > 2000, "{} different rows", rows.len());
    }
}
