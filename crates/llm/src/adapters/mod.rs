//! Changes to a model that keep its weights: LoRA adapters and control vectors, from GGUF files in
//! llama.cpp's format.

mod control_vector;
mod lora;

use std::collections::BTreeMap;
use std::path::Path;

use rustorch_gguf::{Gguf, GgufError, TensorInfo};
use rustorch_tensor::Tensor;
use sha2::{Digest, Sha256};

use crate::LlmError;
use crate::keys::Keys;
pub use control_vector::ControlLayers;
use control_vector::Directions;
use lora::Lora;
pub use lora::LowRank;

/// A file with an adapter or a control vector, and its scale.
#[derive(Clone, Debug)]
pub struct AdapterFile {
    /// Its name in errors.
    pub name: String,
    /// Its contents.
    pub gguf: Gguf,
    /// Its scale: 1 as trained, 0 for no effect.
    pub scale: f32,
}

impl AdapterFile {
    /// # Errors
    /// Fails if the file is missing or is not a valid GGUF file.
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

/// The kind of a file that changes a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdapterKind {
    /// Low-rank additions to weights ([LoRA](https://arxiv.org/abs/2106.09685)).
    Lora,
    /// Additions after layers.
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

    /// Its readable name, with an article.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lora => "a LoRA adapter",
            Self::ControlVector => "a control vector",
        }
    }

    /// The program's option for it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Lora => "--lora",
            Self::ControlVector => "--control-vector",
        }
    }
}

/// All adapters and control vectors of a model.
#[derive(Clone, Default)]
pub(crate) struct Adapters {
    loras: Vec<Lora>,
    directions: Directions,
    /// Additions that are not files', such as those that are trained, by the names of weights.
    own: BTreeMap<String, LowRank>,
}

impl Adapters {
    /// The adapters `loras`, and the sum of `vectors` on some layers, for the model of these keys.
    ///
    /// # Errors
    /// Fails if a file is not an adapter or control vector, or is for another model.
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
            own: BTreeMap::new(),
        })
    }

    /// These additions, by the names of weights.
    pub(crate) fn of(own: BTreeMap<String, LowRank>) -> Self {
        Self {
            own,
            ..Self::default()
        }
    }

    /// The additions to products with the weight `name`.
    pub(crate) fn low_rank(&self, name: &str) -> Vec<LowRank> {
        let found = self.loras.iter().filter_map(|lora| lora.get(name));
        found.chain(self.own.get(name)).cloned().collect()
    }

    /// The vector added to the output of layer `index`: `f32` `[width]`.
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

    /// Adds the identity of these adapters to a hash.
    pub(crate) fn hash(&self, hash: &mut Sha256) {
        self.loras.iter().for_each(|lora| lora.hash(hash));
        self.directions.hash(hash);
    }
}

/// Adds a number to a hash.
fn hash_number(hash: &mut Sha256, number: f32) {
    hash.update(number.to_le_bytes());
}
