//! A model: hyper-parameters, weights, tokenizer.

use rustorch_gguf::Gguf;
use rustorch_tokenizer::Tokenizer;

use crate::LlmError;
use crate::adapters::{AdapterFile, AdapterKind, Adapters, ControlLayers};
use crate::arch::{self, Architecture};
use crate::config::Config;
use crate::keys::Keys;
use crate::rotary::RopeOptions;
use crate::weights::Weights;

/// How a model is to differ from what its file says; by default not at all.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Its rotary embedding.
    pub rope: RopeOptions,
    /// LoRA adapters, all of which are added.
    pub loras: Vec<AdapterFile>,
    /// Control vectors, all of which are added.
    pub control_vectors: Vec<AdapterFile>,
    /// The layers that control vectors are added behind; all of those that they are for, if not given.
    pub control_layers: Option<ControlLayers>,
}

/// A language model, ready to be run by a [`Session`](crate::Session).
pub struct Model {
    architecture: Box<dyn Architecture>,
    tokenizer: Option<Tokenizer>,
    gguf: Gguf,
    adapters: Adapters,
}

impl Model {
    /// The model in a file. Weights stay where they are; nothing is read but the header.
    ///
    /// # Errors
    /// The architecture is not supported; a key or weight is missing, of the wrong size or
    /// of a type that is not supported; the vocabulary is damaged, or smaller or larger
    /// than the embedding table.
    pub fn load(gguf: Gguf) -> Result<Self, LlmError> {
        Self::load_with(gguf, &ModelOptions::default())
    }

    /// As [`Self::load`], of a model that differs from what its file says.
    ///
    /// # Errors
    /// As [`Self::load`]; an option makes no sense, or an adapter is of another model.
    pub fn load_with(gguf: Gguf, options: &ModelOptions) -> Result<Self, LlmError> {
        if let Some(kind) = AdapterKind::of(&gguf) {
            let (kind, option) = (kind.name(), kind.option());
            return Err(LlmError::Input(format!(
                "this is {kind}, not a model: give the model it was made for with -m, and this file \
                 with {option}"
            )));
        }
        let keys = Keys {
            gguf: &gguf,
            prefix: gguf.metadata.str("general.architecture")?,
        };
        let (loras, vectors) = (&options.loras, &options.control_vectors);
        let adapters = Adapters::load(&keys, loras, vectors, options.control_layers)?;
        let weights = Weights::changed(gguf.clone(), options.rope, adapters.clone());
        let architecture = arch::load(&weights)?;
        weights.check_adapters()?;
        let tokenizer = load_tokenizer(&gguf)?;
        let vocab = architecture.config().vocab;
        match &tokenizer {
            Some(t) if t.vocab_size() != vocab => Err(LlmError::Weight {
                name: "token_embd.weight".to_owned(),
                problem: format!("{vocab} rows for a vocabulary of {} tokens", t.vocab_size()),
            }),
            _ => Ok(Self {
                architecture,
                tokenizer,
                gguf,
                adapters,
            }),
        }
    }

    /// Hyper-parameters.
    pub fn config(&self) -> &Config {
        self.architecture.config()
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// The file has no vocabulary.
    pub fn tokenizer(&self) -> Result<&Tokenizer, LlmError> {
        self.tokenizer.as_ref().ok_or(LlmError::NoVocabulary)
    }

    pub(crate) fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    pub(crate) fn architecture(&self) -> &dyn Architecture {
        &*self.architecture
    }
}

/// The tokenizer of a file; `None` if the file has no vocabulary.
///
/// # Errors
/// The vocabulary is damaged, or of a kind that is not supported.
pub fn load_tokenizer(gguf: &Gguf) -> Result<Option<Tokenizer>, LlmError> {
    match gguf.metadata.opt_str("tokenizer.ggml.model")? {
        None | Some("no_vocab") => Ok(None),
        Some(_) => Ok(Some(Tokenizer::from_gguf(&gguf.metadata)?)),
    }
}
