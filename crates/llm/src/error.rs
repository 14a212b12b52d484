//! Errors of models.

use std::path::{Path, PathBuf};

use rustorch_errors::ErrorKind;
use rustorch_files::FileError;
use rustorch_gguf::{GgmlType, GgufError};
use rustorch_grammar::GrammarError;
use rustorch_tensor::RusTorchError;
use rustorch_tokenizer::TokenizerError;

use crate::spec::ModelSpec;

/// The reason why a model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LlmError {
    /// The file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// An option of a sampler is out of range.
    #[error("sampling: {option} = {value} is out of range; give {expected}")]
    Sampler {
        /// The option's name.
        option: &'static str,
        /// The rejected value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// No token can continue the text in its grammar.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// A computation failed.
    #[error(transparent)]
    Tensor(#[from] RusTorchError),
    /// The kind of model is not supported.
    #[error("{what} is not supported; {supported}")]
    Unsupported {
        /// The file's unsupported feature.
        what: String,
        /// The supported alternatives.
        supported: String,
    },
    /// A hyper-parameter is invalid.
    #[error("key {key}: {problem}")]
    Key {
        /// The metadata key.
        key: String,
        /// The problem.
        problem: String,
    },
    /// A weight is missing, or does not match the hyper-parameters.
    #[error("tensor {name}: {problem}")]
    Weight {
        /// The tensor's name in the file.
        name: String,
        /// The problem.
        problem: String,
    },
    /// Several keys make no sense, or several tensors are missing, of another shape or type, or not of this
    /// architecture.
    #[error("{} problems: {}", .0.len(), list(.0))]
    Several(Vec<LlmError>),
    /// A file is not an adapter or control vector, or is for another model.
    #[error("{name}: {problem}")]
    Adapter {
        /// The file.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The context has no room for more tokens.
    #[error(
        "the context is full: {have} tokens and {more} more exceed {size} (-c sets the size; the model was trained with {trained})"
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
    #[error("token id {id} is outside the vocabulary of {vocab} tokens")]
    Token {
        /// The id.
        id: u32,
        /// The vocabulary's size.
        vocab: usize,
    },
    /// The file has no vocabulary for text.
    #[error("this file has no vocabulary; use `logits` with token ids (--ids)")]
    NoVocabulary,
    /// A saved session cannot be continued.
    #[error("{}: {problem}", path.display())]
    Session {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A draft model does not match the main model.
    #[error("the draft model does not fit the model: {0}")]
    Draft(String),
    /// A file in a folder of `transformers` is missing, damaged or unsupported.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// The file, or the folder.
        path: PathBuf,
        /// The problem, and advice.
        problem: String,
    },
    /// A file of tensors cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A model is quantised already.
    #[error(
        "tensor `{}` is {ty} already and would lose more precision; start from a file in F16, BF16 or F32, or pass --allow-requantize",
        name.escape_debug()
    )]
    Requantize {
        /// The tensor.
        name: String,
        /// Its type.
        ty: GgmlType,
    },
    /// The caller stopped the work.
    #[error("{0} was stopped")]
    Stopped(&'static str),
    /// An engine's queue is full.
    #[error("the engine is busy: {waiting} requests wait already; try again later")]
    Busy {
        /// Requests that wait.
        waiting: usize,
    },
    /// A request was not done in time.
    #[error("the deadline of the request has passed")]
    Deadline,
    /// The request is not valid.
    #[error("{0}")]
    Input(String),
}

/// Problems that an error lists; a message has to end.
const LISTED: usize = 20;

fn list(problems: &[LlmError]) -> String {
    let listed = problems.iter().take(LISTED);
    let listed: Vec<String> = listed.map(ToString::to_string).collect();
    match problems.len() - listed.len() {
        0 => listed.join("; "),
        more => format!("{}; and {more} more", listed.join("; ")),
    }
}

impl LlmError {
    /// The kind, for programs that react to it; of several problems that of the first.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Gguf(error) => error.kind(),
            Self::Tokenizer(error) => error.kind(),
            Self::Grammar(error) => error.kind(),
            Self::Tensor(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Several(problems) => problems.first().map_or(ErrorKind::Format, Self::kind),
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::NoVocabulary => ErrorKind::Missing,
            // The caller set the limits.
            Self::Stopped(_) | Self::Busy { .. } | Self::Deadline => ErrorKind::Stopped,
            Self::Key { .. }
            | Self::Weight { .. }
            | Self::Adapter { .. }
            | Self::Session { .. }
            | Self::Folder { .. } => ErrorKind::Format,
            Self::Sampler { .. }
            | Self::ContextFull { .. }
            | Self::Token { .. }
            | Self::Draft(_)
            | Self::Requantize { .. }
            | Self::Input(_) => ErrorKind::Argument,
        }
    }

    pub(crate) fn weight(name: impl Into<String>, problem: impl ToString) -> Self {
        Self::Weight {
            name: name.into(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn folder(path: &Path, problem: impl ToString) -> Self {
        Self::Folder {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// The error of a model that does not make texts token by token: an encoder, or one for diffusion.
    pub(crate) fn not_causal(what: &str, spec: &ModelSpec) -> Self {
        let name = &spec.architecture;
        match spec.is_for_diffusion() {
            true => Self::Unsupported {
                what: format!("{what} the diffusion model {name:?}"),
                supported: "`rustorch_llm::Diffusion` makes texts with it".to_owned(),
            },
            false => Self::Unsupported {
                what: format!("{what} the encoder {name:?}"),
                supported: "`rustorch-cli embed` makes embeddings of texts with it".to_owned(),
            },
        }
    }

    /// # Errors
    /// There are problems.
    pub(crate) fn of(mut problems: Vec<Self>) -> Result<(), Self> {
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.swap_remove(0)),
            _ => Err(Self::Several(problems)),
        }
    }
}
