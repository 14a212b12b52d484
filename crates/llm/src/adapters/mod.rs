//! What changes a model while its weights stay as they are: LoRA adapters and control vectors, from
//! GGUF files as llama.cpp's converters write them.

mod control_vector;
mod lora;

use std::path::Path;

use rustorch_gguf::{Gguf, GgufError, TensorInfo};
use rustorch_tensor::Tensor;
use sha2::{Digest, Sha256};

use crate::LlmError;
use crate::keys::Keys;
pub use control_vector::ControlLayers;
use control_vector::Directions;
use lora::Lora;
pub(crate) use lora::LowRank;

/// A file with an adapter or a control vector, and how much of it is wanted.
#[derive(Clone, Debug)]
pub struct AdapterFile {
    /// What it is called in errors.
    pub name: String,
    /// Its contents.
    pub gguf: Gguf,
    /// What it is multiplied by: 1 for what was trained, 0 for nothing.
    pub scale: f32,
}

impl AdapterFile {
    /// # Errors
    /// There is no such file, or it is not a sound GGUF file.
    pub fn open(path: impl AsRef<Path>, scale: f32) -> Result<Self, GgufError> {
        let path = path.as_ref();
        Ok(Self {
            name: path.display().to_string(),
            gguf: Gguf::open(path)?,
            scale,
        })
    }

    fn wrong(&self, problem: impl ToString) -> LlmError {
        LlmError::Adapter {
            name: self.name.clone(),
            problem: problem.to_string(),
        }
    }

    /// Fails unless its scale is a number.
    fn check_scale(&self) -> Result<(), LlmError> {
        match self.scale.is_finite() {
            true => Ok(()),
            false => Err(self.wrong(format!("a scale of {}: expected a number", self.scale))),
        }
    }
}

/// What a file is that changes a model, and is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdapterKind {
    /// Low-rank additions to weights ([LoRA](https://arxiv.org/abs/2106.09685)).
    Lora,
    /// Additions behind layers.
    ControlVector,
}

impl AdapterKind {
    /// The kind of a file; `None` if it may be a model.
    pub fn of(file: &Gguf) -> Option<Self> {
        let says = |key, what| file.metadata.opt_str(key).ok().flatten() == Some(what);
        if says("general.type", "adapter") {
            Some(Self::Lora)
        } else if says("general.architecture", "controlvector") {
            Some(Self::ControlVector)
        } else {
            None
        }
    }

    /// Its name for people, with an article.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lora => "a LoRA adapter",
            Self::ControlVector => "a control vector",
        }
    }

    /// The program's option that takes it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Lora => "--lora",
            Self::ControlVector => "--control-vector",
        }
    }
}

/// All that changes a model. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Adapters {
    loras: Vec<Lora>,
    directions: Directions,
}

impl Adapters {
    /// Those that are `loras`, and the sum of `vectors` on some layers, for the model of these keys.
    ///
    /// # Errors
    /// A file is no adapter or control vector, or one of another model.
    pub(crate) fn load(
        keys: &Keys,
        loras: &[AdapterFile],
        vectors: &[AdapterFile],
        layers: Option<ControlLayers>,
    ) -> Result<Self, LlmError> {
        let loras = loras.iter().map(|file| Lora::load(file, keys));
        let mut loras = loras.collect::<Result<Vec<_>, _>>()?;
        loras.retain(|lora| !lora.is_nothing());
        Ok(Self {
            loras,
            directions: Directions::load(keys, vectors, layers)?,
        })
    }

    /// What is added to the products with the weight `name`.
    pub(crate) fn low_rank(&self, name: &str) -> Vec<LowRank> {
        let found = self.loras.iter().filter_map(|lora| lora.get(name));
        found.cloned().collect()
    }

    /// What is added behind layer `index`: `f32` `[width]`.
    pub(crate) fn direction(&self, index: usize) -> Option<Tensor> {
        self.directions.get(index).cloned()
    }

    /// Fails if there is an addition to a weight that is not among `used`.
    pub(crate) fn check_all_used(&self, used: impl Fn(&str) -> bool) -> Result<(), LlmError> {
        self.loras
            .iter()
            .try_for_each(|lora| lora.check_all_used(&used))
    }

    /// The tensors of the adapters.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.loras.iter().flat_map(Lora::tensors)
    }

    /// Adds to a hash what tells these adapters from others.
    pub(crate) fn hash(&self, hash: &mut Sha256) {
        self.loras.iter().for_each(|lora| lora.hash(hash));
        self.directions.hash(hash);
    }
}

/// Adds a number to a hash.
fn hash_number(hash: &mut Sha256, number: f32) {
    hash.update(number.to_le_bytes());
}
