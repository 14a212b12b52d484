//! A model: hyper-parameters, weights, tokenizer.

use rustorch_gguf::Gguf;
use rustorch_tokenizer::Tokenizer;

use crate::LlmError;
use crate::arch::{self, Architecture};
use crate::config::Config;
use crate::weights::Weights;

/// A language model, ready to be run by a [`Session`](crate::Session).
pub struct Model {
    architecture: Box<dyn Architecture>,
    tokenizer: Option<Tokenizer>,
    gguf: Gguf,
}

impl Model {
    /// The model in a file. Weights stay where they are; nothing is read but the header.
    ///
    /// # Errors
    /// The architecture is not supported; a key or weight is missing, of the wrong size or
    /// of a type that is not supported; the vocabulary is damaged, or smaller or larger
    /// than the embedding table.
    pub fn load(gguf: Gguf) -> Result<Self, LlmError> {
        let architecture = arch::load(&Weights::new(gguf.clone()))?;
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
