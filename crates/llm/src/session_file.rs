//! Tokens with their keys and values in a file, so that a conversation continues without
//! recomputation.
//!
//! It is a GGUF file with a special architecture: the tokens, the lengths of their batches, and the model's identity.
//! Each layer has the tensors `blk.N.keys` and `blk.N.values` `[kv heads, tokens, width]` in the cache's type. A layer
//! with a window has those of the tokens in the window. Recurrent states are `blk.N.state.I`, `f32`.

use std::io;
use std::path::Path;

use rustorch_gguf::{Array, GgmlType, Gguf, GgufError, GgufWriter, Metadata, TensorInfo, Value};
use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{HostBuffer, RunError, Runtime, Storage};
use rustorch_tensor::{RusTorchError, Tensor};
use sha2::{Digest, Sha256};

use crate::kv_cache::LayerCache;
use crate::session::Session;
use crate::step::Wanted;
use crate::{LlmError, Model};

/// `general.architecture` of these files.
const ARCHITECTURE: &str = "rustorch-session";

/// Version of the file's contents.
const VERSION: u32 = 3;

const VERSION_KEY: &str = "session.version";
const MODEL_KEY: &str = "session.model";
const TOKENS_KEY: &str = "session.tokens";
const BATCHES_KEY: &str = "session.batches";

/// A tensor of a cache `[heads, rows, width]`, and its part that a file has.
struct Part<'c> {
    tensor: &'c Tensor,
    name: String,
    sizes: [usize; 3],
    /// Row of the first token, or of the recurrent state.
    first: usize,
    /// Number of rows.
    rows: usize,
}

/// Keys, values and recurrent states of all layers, in this order. `rows` gives the number of a layer's tokens and the
/// first row. The recurrent states are those of `slot`.
fn parts(
    layers: &[LayerCache],
    rows: impl Fn(&LayerCache) -> (usize, usize),
    slot: Option<usize>,
) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let (tokens, first) = rows(layer);
        if layer.has_state() {
            for (tensor, name) in [(&layer.keys, "keys"), (&layer.values, "values")] {
                let shape = tensor.shape();
                parts.push(Part {
                    tensor,
                    name: format!("blk.{index}.{name}"),
                    sizes: [shape[0], shape[1], shape[2]],
                    first,
                    rows: tokens,
                });
            }
        }
        for (number, tensor) in layer.recurrent.iter().enumerate() {
            parts.push(Part {
                tensor,
                name: format!("blk.{index}.state.{number}"),
                sizes: [1, 2, tensor.shape()[1..].iter().product()],
                first: slot.unwrap_or(0),
                rows: usize::from(slot.is_some()),
            });
        }
    }
    parts
}

impl Part<'_> {
    /// Bytes of a row of the last dimension.
    fn row(&self) -> usize {
        let width = &self.sizes[2..];
        self.tensor.dtype().bytes_of(width).unwrap_or(0)
    }

    /// Sizes of its data, the fastest dimension first.
    fn dims(&self) -> [u64; 3] {
        let [heads, _, width] = self.sizes.map(|size| size as u64);
        [width, self.rows as u64, heads]
    }

    /// Writes its rows of each head.
    fn write(&self, runtime: &Runtime, out: &mut dyn io::Write) -> Result<(), SaveError> {
        let storage = self.tensor.storage_in_memory().ok_or_else(absent)?;
        let [heads, all, _] = self.sizes;
        let mut rows = vec![0; self.rows * self.row()];
        for head in 0..heads {
            let from = (head * all + self.first) * self.row();
            runtime.read(&storage, from, &mut rows)?;
            out.write_all(&rows)?;
        }
        Ok(())
    }

    /// The whole tensor's bytes, with these rows of each head.
    fn filled(&self, rows: &[u8]) -> Vec<u8> {
        let [heads, all, _] = self.sizes;
        let mut bytes = vec![0; heads * all * self.row()];
        let len = self.rows * self.row();
        for head in 0..heads {
            let to = &mut bytes[(head * all + self.first) * self.row()..][..len];
            to.copy_from_slice(&rows[head * len..][..len]);
        }
        bytes
    }
}

/// A file could not be written, or its data could not be read.
#[derive(Debug, thiserror::Error)]
enum SaveError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn absent() -> io::Error {
    io::Error::other("keys and values are not in memory")
}

impl Session<'_> {
    /// Writes the tokens so far with their keys and values to `path`, for [`Self::restore`]. The
    /// file replaces an older one when it is complete.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if the keys and values were lost with their device.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<(), LlmError> {
        self.reach_back(&Wanted::logits(1))?;
        let (cache, count) = (self.cache(), self.tokens().len());
        let rows = |layer: &LayerCache| {
            let tokens = cache.needed(layer, count);
            (tokens, cache.row(layer, count - tokens))
        };
        let parts = parts(cache.layers(), rows, cache.slot(count));
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", ARCHITECTURE);
        metadata.insert(VERSION_KEY, VERSION);
        metadata.insert(MODEL_KEY, fingerprint(self.model()).as_str());
        metadata.insert(TOKENS_KEY, Value::Array(Array::U32(self.tokens().to_vec())));
        let batches = self.batches().iter().map(|&len| len as u32).collect();
        metadata.insert(BATCHES_KEY, Value::Array(Array::U32(batches)));
        let mut writer = GgufWriter::new(metadata);
        if count > 0 {
            for part in &parts {
                let ty = ggml_type(part.tensor.dtype())?;
                writer.add_tensor(&part.name, part.dims(), ty)?;
            }
        }
        let mut rest = parts.iter();
        let mut failed = None;
        let written = writer.write(path, |_, out| {
            let part = rest.next().ok_or_else(absent)?;
            part.write(self.runtime(), out).map_err(|e| match e {
                SaveError::Io(e) => e,
                SaveError::Run(e) => {
                    let told = io::Error::other(e.to_string());
                    failed = Some(e);
                    told
                }
            })
        });
        match failed {
            Some(e) => Err(RusTorchError::from(e).into()),
            None => Ok(written?),
        }
    }

    /// Continues from the session that [`Self::save`] wrote to `path`; this session's own tokens
    /// are dropped.
    ///
    /// # Errors
    /// Fails if the file is damaged, or is for another format, model or cache type. Also fails if
    /// it has more tokens than the context has room for. The session is then unchanged.
    pub fn restore(&mut self, path: impl AsRef<Path>) -> Result<usize, LlmError> {
        let path = path.as_ref();
        let in_file = |problem: String| LlmError::Session {
            path: path.to_owned(),
            problem,
        };
        let file = Gguf::open(path)?;
        let saved = Saved::read(&file, self).map_err(in_file)?;
        let layers = saved.layers(&file, self).map_err(in_file)?;
        let count = saved.tokens.len();
        self.replace(layers, saved.tokens, saved.batches)?;
        Ok(count)
    }
}

/// The contents of a file besides keys and values.
struct Saved {
    tokens: Vec<u32>,
    batches: Vec<usize>,
}

impl Saved {
    /// Reads it for a session that it fits. Errors do not have the file's name.
    fn read(file: &Gguf, session: &Session) -> Result<Self, String> {
        let metadata = &file.metadata;
        let told = |e: GgufError| e.to_string();
        if metadata.opt_str("general.architecture").map_err(told)? != Some(ARCHITECTURE) {
            return Err("not a saved session, but another GGUF file".to_owned());
        }
        match metadata.u32(VERSION_KEY).map_err(told)? {
            VERSION => {}
            other => {
                return Err(format!(
                    "version {other} is not supported, only {VERSION} is; delete the file: it is written again"
                ));
            }
        }
        if metadata.str(MODEL_KEY).map_err(told)? != fingerprint(session.model()) {
            return Err(
                "saved with another model, rotary embedding or adapter; use the same ones"
                    .to_owned(),
            );
        }
        let tokens = numbers(metadata, TOKENS_KEY)?;
        let batches = numbers(metadata, BATCHES_KEY)?;
        let batches: Vec<usize> = batches.iter().map(|&len| len as usize).collect();
        let (count, context) = (tokens.len(), session.context());
        if count > context {
            return Err(format!(
                "{count} tokens do not fit the context of {context} (-c sets its size)"
            ));
        }
        let sum = batches
            .iter()
            .try_fold(0usize, |n, &len| n.checked_add(len));
        if sum != Some(count) || batches.contains(&0) {
            return Err(format!(
                "damaged: {BATCHES_KEY} does not add up to the tokens"
            ));
        }
        let vocab = session.model().spec().vocab;
        match tokens.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => Err(format!(
                "damaged: token {id} is outside the vocabulary of {vocab}"
            )),
            None => Ok(Self { tokens, batches }),
        }
    }

    /// Layers with the file's keys and values.
    fn layers(&self, file: &Gguf, session: &Session) -> Result<Vec<LayerCache>, String> {
        let (cache, count) = (session.cache(), self.tokens.len());
        let rows = |layer: &LayerCache| (cache.needed(layer, count), cache.first_row(layer, count));
        let parts = parts(cache.layers(), rows, (count > 0).then_some(0));
        let tensor = |part: &Part| {
            let rows = match count {
                0 => &[][..],
                _ => {
                    let info = file.tensor(&part.name);
                    let info = info.ok_or_else(|| format!("damaged: no tensor {}", part.name))?;
                    check(part, info)?;
                    file.data(info)
                }
            };
            let bytes = part.filled(rows);
            let no_memory = || format!("no memory for a cache of {} bytes", bytes.len());
            let buffer = HostBuffer::copy_of(&bytes).ok_or_else(no_memory)?;
            let (shape, dtype) = (part.tensor.shape(), part.tensor.dtype());
            let tensor = Tensor::from_storage(Storage::from_host(buffer), shape, dtype);
            tensor.map_err(|e| e.to_string())
        };
        let mut parts = parts.iter();
        let mut next = |own: &Tensor| parts.next().map_or_else(|| Ok(own.clone()), &tensor);
        let layers = cache.layers().iter().map(|layer| {
            let (keys, values) = match layer.has_state() {
                true => (next(&layer.keys)?, next(&layer.values)?),
                false => (layer.keys.clone(), layer.values.clone()),
            };
            Ok(LayerCache {
                keys,
                values,
                window: layer.window,
                recurrent: (layer.recurrent.iter().map(&mut next)).collect::<Result<_, _>>()?,
            })
        });
        layers.collect()
    }
}

/// Fails unless a tensor of the file has the shape of the part.
fn check(part: &Part, info: &TensorInfo) -> Result<(), String> {
    let dtype = part.tensor.dtype();
    let expected = ggml_type(dtype).map_err(|e| e.to_string())?;
    let name = &part.name;
    if info.ty != expected {
        let (got, wanted) = (info.ty.name(), expected.name());
        return Err(format!(
            "its cache is of {got}, this one of {wanted} (-ctk, -ctv)"
        ));
    }
    let (dims, got) = (part.dims(), &info.dims);
    match got[..] == dims {
        true => Ok(()),
        false => Err(format!("damaged: {name} is {got:?}, expected {dims:?}")),
    }
}

/// The array of `u32` at a key.
fn numbers(metadata: &Metadata, key: &str) -> Result<Vec<u32>, String> {
    match metadata.get(key) {
        Some(Value::Array(Array::U32(numbers))) => Ok(numbers.clone()),
        _ => Err(format!("damaged: {key} is not an array of u32")),
    }
}

/// The file's type of a cache's elements.
fn ggml_type(dtype: DType) -> Result<GgmlType, LlmError> {
    match dtype {
        DType::F16 => Ok(GgmlType::F16),
        DType::BF16 => Ok(GgmlType::BF16),
        DType::F32 => Ok(GgmlType::F32),
        DType::Block(BlockFormat::Q8_0) => Ok(GgmlType::Q8_0),
        other => Err(LlmError::Input(format!(
            "a cache of {other} cannot be saved"
        ))),
    }
}

/// Tells a model from others: SHA-256 over its hyper-parameters, and its tensors' names, types and sizes. It
/// also covers all adapters and the elements of vectors, which training changes as it does all others.
fn fingerprint(model: &Model) -> String {
    let mut hash = Sha256::new();
    let file = model.gguf();
    hash.update(format!("{:?}\n", model.spec()));
    for tensor in file.tensors() {
        let TensorInfo { name, dims, ty, .. } = tensor;
        hash.update(format!("{name} {dims:?} {}\n", ty.name()));
        if dims.len() == 1 {
            hash.update(file.data(tensor));
        }
    }
    model.adapters().hash(&mut hash);
    format!("{:x}", hash.finalize())
}
