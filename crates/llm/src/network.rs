//! Decoders over given weights, without a file and without a cache, for training.

use std::collections::BTreeMap;

use rustorch_gguf::{GgufWriter, Metadata};
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::LlmError;
use crate::adapters::{Adapters, LowRank};
use crate::arch;
use crate::decoder::Decoder;
use crate::keys::Keys;
use crate::recorder::Recorder;
use crate::rotary::RopeOptions;
use crate::spec::{ModelSpec, TensorSpec};
use crate::weights::{Loader, Source};

impl ModelSpec {
    /// The description of a model with these keys, as a file has them.
    ///
    /// # Errors
    /// Fails if the architecture is not supported, or if keys are missing or invalid.
    pub fn of_keys(metadata: &Metadata) -> Result<Self, LlmError> {
        let gguf = GgufWriter::new(metadata.clone()).to_memory(|_, _, _| ())?;
        let keys = Keys::new(&gguf)?;
        let spec = arch::describe(&keys, RopeOptions::default())?;
        LlmError::of(keys.problems())?;
        Ok(spec)
    }

    /// The tensors of the model, by name: the required ones, and the optional ones whose names end with one of
    /// `optional`.
    ///
    /// # Errors
    /// Fails for a tensor too large for memory.
    pub fn tensors(&self, optional: &[&str]) -> Result<Vec<TensorSpec>, LlmError> {
        let (recorder, adapters) = (Recorder::new(optional), Adapters::default());
        let decoder = Decoder::load(Loader::new(&recorder, &adapters), self.clone())?;
        Ok(decoder.tensors().to_vec())
    }
}

/// Weights by name.
struct Given<'a>(&'a BTreeMap<String, Tensor>);

impl Source for Given<'_> {
    fn find(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        match self.0.get(name) {
            Some(tensor) if tensor.shape() != shape => {
                let found = tensor.shape();
                let problem = format!("expected shape {shape:?}, got {found:?}");
                Err(LlmError::weight(name, problem))
            }
            found => Ok(found.cloned()),
        }
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.0.get(name).map(|tensor| tensor.shape().to_vec())
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

/// A decoder whose weights are tensors of a program, such as parameters that are trained.
pub struct Network(Decoder);

impl Network {
    /// The decoder of this description with `weights`, of `f32`, and additions to their products, by the names of the
    /// weights.
    ///
    /// # Errors
    /// Fails if weights are missing, have another shape, or are not used by the model. Also fails if the model is an
    /// encoder.
    pub fn new(
        spec: ModelSpec,
        weights: &BTreeMap<String, Tensor>,
        additions: BTreeMap<String, LowRank>,
    ) -> Result<Self, LlmError> {
        if !spec.makes_texts() {
            return Err(LlmError::not_causal("training of", &spec));
        }
        let (source, adapters) = (Given(weights), Adapters::of(additions));
        Ok(Self(Decoder::load(Loader::new(&source, &adapters), spec)?))
    }

    /// The description.
    pub fn spec(&self) -> &ModelSpec {
        self.0.spec()
    }

    /// The tensors that it reads, by name.
    pub fn tensors(&self) -> &[TensorSpec] {
        self.0.tensors()
    }

    /// Logits `[b · t, vocab]` of tokens `[b, t]`, integers.
    ///
    /// # Errors
    /// Fails for tokens of another shape.
    pub fn forward(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        self.0.forward_sequences(tokens)
    }
}
