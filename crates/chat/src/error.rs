//! Errors of templates and conversations.

use rustorch_errors::ErrorKind;
use thiserror::Error;

/// An error of this crate. Each names the model as the template's reader was given it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is not a template.
    #[error(
        "the chat template of {model} has an error in line {line}: {reason}; choose another template"
    )]
    Syntax {
        /// The template's model.
        model: String,
        /// The line, from 1.
        line: usize,
        /// The problem.
        reason: String,
    },
    /// The template fails.
    #[error("the chat template of {model} fails in line {line}: {reason}")]
    Render {
        /// The template's model.
        model: String,
        /// The line, from 1.
        line: usize,
        /// The failure.
        reason: String,
    },
    /// The template rejects the conversation, by `raise_exception`.
    #[error("the chat template of {model} refuses the conversation in line {line}: {reason}")]
    Refused {
        /// The template's model.
        model: String,
        /// The line, from 1.
        line: usize,
        /// The template's own words.
        reason: String,
    },
    /// The template exceeded its limits of steps, text or memory.
    #[error("the chat template of {model} exceeded a limit in line {line}: {reason}")]
    Limit {
        /// The template's model.
        model: String,
        /// The line, from 1.
        line: usize,
        /// The limit that it reached.
        reason: String,
    },
    /// There is no family of this name.
    #[error("there is no chat template named {name:?}; there are {}", known.join(", "))]
    UnknownFamily {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Vec<&'static str>,
    },
    /// There is no reasoning format of this name.
    #[error("there is no reasoning format {name:?}; there are {}", known.join(", "))]
    UnknownFormat {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Vec<&'static str>,
    },
    /// The file has no template of this name, or none at all.
    #[error(
        "{model} has no chat template{}; give one with --chat-template",
        named(name)
    )]
    Missing {
        /// The model.
        model: String,
        /// The template's name; empty for the one without a name.
        name: String,
    },
    /// A message is invalid.
    #[error("message {index}: {reason}")]
    Message {
        /// The message's index, from 0.
        index: usize,
        /// The problem.
        reason: String,
    },
    /// The conversation uses all private-use characters, so that no stand-ins are left.
    #[error("the conversation uses all private-use characters of Unicode plane 16; remove them")]
    Marks,
    /// A key of the metadata has a wrong type.
    #[error(transparent)]
    Gguf(#[from] rustorch_gguf::GgufError),
}

impl ChatError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Syntax { .. } | Self::Render { .. } => ErrorKind::Format,
            Self::Limit { .. } => ErrorKind::Unsupported,
            Self::Missing { .. } => ErrorKind::Missing,
            Self::Refused { .. }
            | Self::UnknownFamily { .. }
            | Self::UnknownFormat { .. }
            | Self::Message { .. }
            | Self::Marks => ErrorKind::Argument,
            Self::Gguf(error) => error.kind(),
        }
    }
}

fn named(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!(" named {name:?}"),
    }
}
