//! Models of well-known shapes with random weights, for measuring speed without a download.
//!
//! They have every tensor and type of the real file, so that the same work is done, and no
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

use crate::quantize::{FileType, ModelTraits, Seen, convert, tensor_type};

/// The shape of a model of the `llama` architecture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// The name it is asked for by.
    pub name: &'static str,
    layers: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    ff_width: usize,
    vocab: usize,
    context: usize,
    rope_base: f32,
    tied_output: bool,
}

/// No preset has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown preset {name:?}: expected {}", Preset::ALL.map(|p| p.name).join(", "))]
pub struct UnknownPreset {
    name: String,
}

impl Preset {
    /// Every preset. Shapes are those of the models' published configurations.
    pub const ALL: [Self; 3] = [
        Self {
            name: "classics-13m",
            layers: 6,
            width: 512,
            heads: 8,
            kv_heads: 2,
            ff_width: 768,
            vocab: 4096,
            context: 1024,
            rope_base: 10_000.0,
            tied_output: true,
        },
        Self {
            name: "tinyllama-1.1b",
            layers: 22,
            width: 2048,
            heads: 32,
            kv_heads: 4,
            ff_width: 5632,
            vocab: 32_000,
            context: 2048,
            rope_base: 10_000.0,
            tied_output: false,
        },
        Self {
            name: "llama-3-8b",
            layers: 32,
            width: 4096,
            heads: 32,
            kv_heads: 8,
            ff_width: 14_336,
            vocab: 128_256,
            context: 8192,
            rope_base: 500_000.0,
            tied_output: false,
        },
    ];

    /// The model in memory, its tensors of the types that `file_type` mixes.
    ///
    /// # Errors
    /// There is not enough memory for it.
    pub fn build(&self, file_type: FileType) -> Result<Gguf, GgufError> {
        let writer = self.writer(file_type)?;
        let weights = RandomWeights::new(writer.tensors())?;
        writer.to_memory(|i, tensor, data| {
            let mut rest = data;
            for part in weights.parts(i, tensor) {
                let (start, end) = rest.split_at_mut(part.len());
                start.copy_from_slice(part);
                rest = end;
            }
        })
    }

    /// Writes the model to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, file_type: FileType, path: &Path) -> Result<(), GgufError> {
        let writer = self.writer(file_type)?;
        let weights = RandomWeights::new(writer.tensors())?;
        let mut tensors = 0..;
        writer.write(path, |tensor, out| {
            let mut parts = tensors
                .next()
                .into_iter()
                .flat_map(|i| weights.parts(i, tensor));
            parts.try_for_each(|part| out.write_all(part))
        })
    }

    fn writer(&self, file_type: FileType) -> Result<GgufWriter, GgufError> {
        let mut writer = GgufWriter::new(self.metadata(file_type));
        let tensors = self.tensors();
        let mut traits = ModelTraits {
            architecture: "llama".to_owned(),
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            ..ModelTraits::default()
        };
        traits.count_tensors(tensors.iter().map(|(name, _)| name.as_str()));
        let mut seen = Seen::default();
        for (name, dims) in tensors {
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

    /// Names and dimensions, fastest first, in the order of a quantised file: by layer and
    /// name.
    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let kv_width = self.width / self.heads * self.kv_heads;
        let outside = [
            ("output.weight", vec![self.width, self.vocab]),
            ("output_norm.weight", vec![self.width]),
            ("token_embd.weight", vec![self.width, self.vocab]),
        ];
        let in_layer = [
            ("attn_k", vec![self.width, kv_width]),
            ("attn_norm", vec![self.width]),
            ("attn_output", vec![self.width, self.width]),
            ("attn_q", vec![self.width, self.width]),
            ("attn_v", vec![self.width, kv_width]),
            ("ffn_down", vec![self.ff_width, self.width]),
            ("ffn_gate", vec![self.width, self.ff_width]),
            ("ffn_norm", vec![self.width]),
            ("ffn_up", vec![self.width, self.ff_width]),
        ];
        let outside = (outside.into_iter())
            .filter(|(name, _)| !(self.tied_output && *name == "output.weight"))
            .map(|(name, dims)| (name.to_owned(), dims));
        let layers = (0..self.layers).flat_map(|layer| {
            let name = move |part| format!("blk.{layer}.{part}.weight");
            in_layer.clone().map(|(part, dims)| (name(part), dims))
        });
        let as_u64 = |dims: Vec<usize>| dims.into_iter().map(|dim| dim as u64).collect();
        outside
            .chain(layers)
            .map(|(name, dims)| (name, as_u64(dims)))
            .collect()
    }

    fn metadata(&self, file_type: FileType) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", "llama");
        metadata.insert("general.name", format!("{} with random weights", self.name));
        for (key, value) in [
            ("block_count", self.layers),
            ("context_length", self.context),
            ("embedding_length", self.width),
            ("feed_forward_length", self.ff_width),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("rope.dimension_count", self.width / self.heads),
            ("vocab_size", self.vocab),
        ] {
            metadata.insert(format!("llama.{key}"), value as u32);
        }
        metadata.insert("llama.rope.freq_base", self.rope_base);
        metadata.insert("llama.attention.layer_norm_rms_epsilon", 1e-5_f32);
        metadata.insert("tokenizer.ggml.model", "no_vocab");
        metadata.insert("general.file_type", file_type.id());
        metadata
    }
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

/// Random weights: normal numbers small enough that no activation grows out of range. What one
/// type needs is drawn once.
struct RandomWeights {
    /// Blocks of each type.
    tiles: HashMap<GgmlType, Vec<u8>>,
    /// Norms are the only vectors; a factor of 1 leaves the values as they are.
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
        ] {
            let dims = preset(name).tensors();
            let sum: u64 = dims
                .iter()
                .map(|(_, dims)| dims.iter().product::<u64>())
                .sum();
            assert_eq!(sum, weights, "{name}");
        }
        assert!("gpt-5".parse::<Preset>().is_err());
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
