//! A model: hyper-parameters, weights, tokenizer.

use rustorch_gguf::Gguf;
use rustorch_tokenizer::Tokenizer;

use crate::LlmError;
use crate::adapters::{AdapterFile, AdapterKind, Adapters, ControlLayers};
use crate::arch;
use crate::decoder::Decoder;
use crate::keys::Keys;
use crate::rotary::RopeOptions;
use crate::row_split::{Parts, RowSplit};
use crate::spec::{ModelSpec, TensorSpec};
use crate::weights::{Loader, Shapes, Weights};

/// Changes to a model by options; none by default.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Its rotary embedding.
    pub rope: RopeOptions,
    /// LoRA adapters; all are added.
    pub loras: Vec<AdapterFile>,
    /// Control vectors; all are added.
    pub control_vectors: Vec<AdapterFile>,
    /// The layers that control vectors are added after; by default all that they have directions
    /// for.
    pub control_layers: Option<ControlLayers>,
    /// The ranks that the weights are divided among.
    pub row_split: Option<RowSplit>,
}

/// A language model for a [`Session`](crate::Session).
pub struct Model {
    decoder: Decoder,
    tokenizer: Option<Tokenizer>,
    gguf: Gguf,
    adapters: Adapters,
}

impl Model {
    /// The model in a file. Only the header is read; weights stay in the file.
    ///
    /// # Errors
    /// Fails for an unsupported architecture. Also fails if a key or weight is missing, of the
    /// wrong size or of an unsupported type. Also fails if the vocabulary is damaged, or if its
    /// size differs from the embedding table's.
    pub fn load(gguf: Gguf) -> Result<Self, LlmError> {
        Self::load_with(gguf, &ModelOptions::default())
    }

    /// [`Self::load`] with changes to the model.
    ///
    /// # Errors
    /// The same errors as [`Self::load`]. Also fails if an option is invalid, or if an adapter is
    /// for another model.
    pub fn load_with(gguf: Gguf, options: &ModelOptions) -> Result<Self, LlmError> {
        if let Some(kind) = AdapterKind::of(&gguf) {
            let (kind, option) = (kind.name(), kind.option());
            return Err(LlmError::Input(format!(
                "this is {kind}, not a model: give the model it was made for with -m, and this file \
                 with {option}"
            )));
        }
        let keys = Keys::new(&gguf)?;
        let spec = arch::describe(&keys, options.rope)?;
        let (loras, vectors) = (&options.loras, &options.control_vectors);
        // An adapter of a model without sizes would be to blame for all.
        let adapters = match keys.has_problems() {
            true => Adapters::default(),
            false => Adapters::load(&keys, loras, vectors, options.control_layers)?,
        };
        let ranks = options.row_split.as_ref();
        let ranks = ranks.filter(|split| split.group().size() > 1 && !keys.has_problems());
        let decoder = match ranks {
            Some(_) if !loras.is_empty() || !vectors.is_empty() => {
                return Err(LlmError::Input(
                    "--split-mode row: adapters have no division; merge them into the model"
                        .to_owned(),
                ));
            }
            Some(split) => {
                let parts = Parts {
                    gguf: &gguf,
                    whole: &spec,
                    split,
                };
                let loader = Loader::new(&parts, &adapters).divided(split.group());
                Decoder::load(loader, split.part(&spec)?)?
            }
            None => {
                let weights = Weights::new(gguf.clone());
                Decoder::load(Loader::new(&weights, &adapters).after(&keys), spec)?
            }
        };
        let tokenizer = load_tokenizer(&gguf)?;
        let vocab = decoder.spec().vocab;
        match &tokenizer {
            Some(t) if t.vocab_size() != vocab => Err(LlmError::Weight {
                name: "token_embd.weight".to_owned(),
                problem: format!("{vocab} rows for a vocabulary of {} tokens", t.vocab_size()),
            }),
            _ => Ok(Self {
                decoder,
                tokenizer,
                gguf,
                adapters,
            }),
        }
    }

    /// Checks that a file has all tensors of its model, in their shapes. Their data is not read.
    ///
    /// # Errors
    /// The same errors as [`Self::load`].
    pub fn check(gguf: &Gguf) -> Result<(), LlmError> {
        let keys = Keys::new(gguf)?;
        let spec = arch::describe(&keys, RopeOptions::default())?;
        let (shapes, adapters) = (Shapes(gguf), Adapters::default());
        Decoder::load(Loader::new(&shapes, &adapters).after(&keys), spec)?;
        load_tokenizer(gguf)?;
        Ok(())
    }

    /// The model's description.
    pub fn spec(&self) -> &ModelSpec {
        self.decoder.spec()
    }

    /// The tensors that the model reads, by name.
    pub fn tensors(&self) -> &[TensorSpec] {
        self.decoder.tensors()
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// Fails if the file has no vocabulary.
    pub fn tokenizer(&self) -> Result<&Tokenizer, LlmError> {
        self.tokenizer.as_ref().ok_or(LlmError::NoVocabulary)
    }

    pub(crate) fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }
}

/// The tokenizer of a file; `None` if the file has no vocabulary.
///
/// # Errors
/// Fails if the vocabulary is damaged or unsupported.
pub fn load_tokenizer(gguf: &Gguf) -> Result<Option<Tokenizer>, LlmError> {
    match gguf.metadata.opt_str("tokenizer.ggml.model")? {
        None | Some("no_vocab" | "none") => Ok(None),
        Some(_) => Ok(Some(Tokenizer::from_gguf(&gguf.metadata)?)),
    }
}
