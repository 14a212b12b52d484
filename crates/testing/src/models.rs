//! Small models of every architecture as headers: keys, names and shapes of tensors, llama.cpp's
//! logits. Weights are random numbers that follow from a tensor's name and shape.

use std::fs;
use std::path::{Path, PathBuf};

use rustorch_gguf::{GgmlType, Gguf, GgufError, GgufWriter, Metadata, TensorInfo, Value};
use serde_json::{Map, Value as Json};

use crate::random::Random;

/// The tokens of the headers' logits.
pub const TOKENS: [u32; 40] = tokens();

const fn tokens() -> [u32; 40] {
    let mut tokens = [0; 40];
    let mut i = 0;
    while i < tokens.len() {
        tokens[i] = (i * i * 7 + 3) as u32 % 61;
        i += 1;
    }
    tokens
}

/// Bytes that tensors of a file begin at multiples of.
const ALIGNMENT: usize = 32;

/// A model's header.
#[derive(Clone, Debug)]
pub struct Header {
    /// The architecture, and `dense` or `moe`.
    pub name: String,
    /// Keys that llama.cpp needs, or whose values change its logits.
    pub keys: Metadata,
    /// Names and dimensions, the fastest first.
    pub tensors: Vec<(String, Vec<u64>)>,
    /// Ends of names of tensors that do not change llama.cpp's logits.
    pub ignored: Vec<String>,
    /// llama.cpp's logits of the last of [`TOKENS`], row by row.
    pub logits: Vec<Vec<f32>>,
}

/// The folder of the headers.
pub fn headers_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/data/models")
}

/// The folder of the headers of encoders, which have embeddings or scores in the place of logits.
pub fn encoders_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/data/encoders")
}

/// The folder of the headers of models for diffusion.
pub fn diffusion_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/data/diffusion")
}

impl Header {
    /// All headers of a folder, sorted by name.
    ///
    /// # Panics
    /// Panics if a file is not a header.
    pub fn all(folder: &Path) -> Vec<Self> {
        let files = fs::read_dir(folder).expect("a folder of headers");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a header");
        let json: Json = serde_json::from_str(&text).expect("JSON");
        let object = |name: &str| json[name].as_object().cloned().unwrap_or_default();
        let list = |json: &Json| json.as_array().cloned().unwrap_or_default();
        // JSON has no infinity: null stands for −∞.
        let number = |json: &Json| json.as_f64().unwrap_or(f64::NEG_INFINITY);
        let dims = |json: &Json| list(json).iter().map(|dim| number(dim) as u64).collect();
        let row = |row: &Json| list(row).iter().map(|x| number(x) as f32).collect();
        let ignored = list(&json["ignored"]);
        Self {
            name: path.file_stem().expect("a name").to_string_lossy().into(),
            keys: metadata(object("keys")),
            tensors: (object("tensors").iter())
                .map(|(name, shape)| (name.clone(), dims(shape)))
                .collect(),
            ignored: (ignored.iter())
                .map(|end| end.as_str().expect("an end").to_owned())
                .collect(),
            logits: list(&json["logits"]).iter().map(row).collect(),
        }
    }

    /// Returns whether this is a tensor that does not change llama.cpp's logits.
    pub fn ignores(&self, tensor: &str) -> bool {
        self.ignored.iter().any(|end| tensor.ends_with(end))
    }

    fn writer(&self) -> Result<GgufWriter, GgufError> {
        let mut writer = GgufWriter::new(self.keys.clone());
        for (name, dims) in &self.tensors {
            writer.add_tensor(name, dims.clone(), GgmlType::F32)?;
        }
        Ok(writer)
    }

    /// The model in memory.
    ///
    /// # Errors
    /// Fails if the header describes no valid file.
    pub fn model(&self) -> Result<Gguf, GgufError> {
        self.model_with(weights)
    }

    /// The model in memory, with other weights.
    ///
    /// # Errors
    /// Fails if the header describes no valid file.
    pub fn model_with(
        &self,
        weights: impl Fn(&TensorInfo) -> Vec<f32> + Sync,
    ) -> Result<Gguf, GgufError> {
        self.writer()?.to_memory(|_, tensor, data| {
            let weights = weights(tensor);
            for (bytes, weight) in data.chunks_exact_mut(4).zip(weights) {
                bytes.copy_from_slice(&weight.to_le_bytes());
            }
        })
    }

    /// The bytes of its file before those of the weights.
    ///
    /// # Errors
    /// Fails if the header describes no valid file.
    pub fn head(&self) -> Result<Vec<u8>, GgufError> {
        let (mut file, mut weights) = (Vec::new(), 0);
        self.writer()?.write_to(&mut file, |tensor, out| {
            weights += tensor.bytes().next_multiple_of(ALIGNMENT);
            out.write_all(&vec![0; tensor.bytes()])
        })?;
        file.truncate(file.len() - weights);
        Ok(file)
    }

    /// Writes the model to a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), GgufError> {
        self.writer()?.write(path, |tensor, out| {
            let weights = weights(tensor).into_iter();
            out.write_all(&weights.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
        })
    }
}

/// Whole numbers are `u32`, others `f32`; lists alike.
fn metadata(keys: Map<String, Json>) -> Metadata {
    let mut metadata = Metadata::new();
    for (key, value) in keys {
        let value: Value = match value {
            Json::Bool(flag) => flag.into(),
            Json::String(text) => text.into(),
            Json::Number(n) if n.is_f64() => (n.as_f64().unwrap_or_default() as f32).into(),
            Json::Number(n) => (n.as_u64().unwrap_or_default() as u32).into(),
            Json::Array(list) if list.iter().all(Json::is_boolean) => {
                let flags = list.iter().map(|flag| flag == &Json::Bool(true));
                flags.collect::<Vec<bool>>().into()
            }
            Json::Array(list) if list.iter().any(Json::is_f64) => {
                let numbers = list.iter().map(|n| n.as_f64().unwrap_or_default() as f32);
                numbers.collect::<Vec<f32>>().into()
            }
            Json::Array(list) => {
                let numbers = list.iter().map(|n| n.as_i64().unwrap_or_default() as i32);
                numbers.collect::<Vec<i32>>().into()
            }
            Json::Null | Json::Object(_) => panic!("key {key}: {value}"),
        };
        metadata.insert(key, value);
    }
    metadata
}

/// The weights of a tensor. Norms and scales are near 1, divisors of frequencies are 1 or more, and exponents of
/// decays are below 0. Products keep the size of their input.
pub fn weights(tensor: &TensorInfo) -> Vec<f32> {
    let name = &tensor.name;
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut random = Random::new(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash));
    let mut normal = || {
        // The sum of four uniform numbers is nearly normal; it is exact on every machine.
        let bits = random.bits();
        let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3_f32.sqrt()
    };
    let is = |part: &str| name.contains(part);
    let inputs = tensor.dims.first().map_or(1.0, |&n| n as f32);
    let weight = || match () {
        () if is("norm") && name.ends_with(".weight") || is("scale") => 1.0 + 0.2 * normal(),
        () if is("rope_f") => 1.0 + normal().abs(),
        // Exponents of decays, so that states keep their size.
        () if name.ends_with("ssm_a") => -normal().abs(),
        // Shares of streams, so that these keep their size.
        () if is("_coef") => 0.3 / inputs.sqrt() * normal(),
        () if is(".bias") || is("probs_b") || is("sinks") => 0.5 * normal(),
        () if is("token_embd") || is("position_embd") => normal(),
        () => 1.5 / inputs.sqrt() * normal(),
    };
    std::iter::repeat_with(weight)
        .take(tensor.elements())
        .collect()
}
