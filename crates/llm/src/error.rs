//! What can go wrong with a model.

use std::path::PathBuf;

use rustorch_gguf::GgufError;
use rustorch_grammar::GrammarError;
use rustorch_tensor::RusTorchError;
use rustorch_tokenizer::TokenizerError;

use crate::sampler::SamplerError;

/// Why a model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LlmError {
    /// The file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A sampler's parameters are impossible.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The text cannot go on in its form.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// A computation failed.
    #[error(transparent)]
    Tensor(#[from] RusTorchError),
    /// The model is of a kind that is not implemented.
    #[error("{what} is not supported; {supported}")]
    Unsupported {
        /// What the file asks for.
        what: String,
        /// What it could be instead.
        supported: String,
    },
    /// A hyper-parameter makes no sense.
    #[error("key {key}: {problem}")]
    Key {
        /// The metadata key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A weight is missing, or does not have the size that the hyper-parameters ask for.
    #[error("tensor {name}: {problem}")]
    Weight {
        /// The tensor's name in the file.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An adapter or a control vector is none, or of another model.
    #[error("{name}: {problem}")]
    Adapter {
        /// The file.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The context has no room for more tokens.
    #[error(
        "the context is full: {have} tokens and {more} more do not fit {size} (-c sets the size; \
         the model was trained with {trained})"
    )]
    ContextFull {
        /// Tokens that are in it.
        have: usize,
        /// Tokens that were to be added.
        more: usize,
        /// Its size.
        size: usize,
        /// The model's own context.
        trained: usize,
    },
    /// A token id is not in the vocabulary.
    #[error("token {id} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        id: u32,
        /// The vocabulary's size.
        vocab: usize,
    },
    /// The file has no vocabulary, so that text cannot be turned into tokens.
    #[error("this file has no vocabulary: only token ids (--ids) can be used with it")]
    NoVocabulary,
    /// A saved session cannot be gone on with.
    #[error("{}: {problem}", path.display())]
    Session {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A draft model does not fit the model whose tokens it is to guess.
    #[error("the draft model does not fit the model: {0}")]
    Draft(String),
    /// Nothing to do.
    #[error("{0}")]
    Input(String),
}
