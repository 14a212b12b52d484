//! What can be wrong with a template or a conversation.

use thiserror::Error;

/// An error of this crate. Each names the model, as the template was named when it was read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is not a template.
    #[error("the chat template of {model} is wrong in line {line}: {reason}; name another one")]
    Syntax {
        /// The model that the template is of.
        model: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The template does something that fails.
    #[error("the chat template of {model} fails in line {line}: {reason}")]
    Render {
        /// The model that the template is of.
        model: String,
        /// The line, from 1.
        line: usize,
        /// What failed.
        reason: String,
    },
    /// The template refuses the conversation, by `raise_exception`.
    #[error("the chat template of {model} refuses the conversation in line {line}: {reason}")]
    Refused {
        /// The model that the template is of.
        model: String,
        /// The line, from 1.
        line: usize,
        /// The template's own words.
        reason: String,
    },
    /// The template did not end, or wrote or kept too much.
    #[error("the chat template of {model} was ended in line {line}: {reason}")]
    Limit {
        /// The model that the template is of.
        model: String,
        /// The line, from 1.
        line: usize,
        /// Which limit it reached.
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
        "{model} has no chat template{}; name one by --chat-template",
        named(name)
    )]
    Missing {
        /// The model.
        model: String,
        /// The template's name; empty for the one without a name.
        name: String,
    },
    /// A message is not one.
    #[error("message {index}: {reason}")]
    Message {
        /// Which message, from 0.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The conversation has characters of every block of the private use area that marks could be from.
    #[error("the conversation has private use characters of all blocks of plane 16; take them out")]
    Marks,
    /// The metadata has a key of another type.
    #[error(transparent)]
    Gguf(#[from] rustorch_gguf::GgufError),
}

fn named(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!(" named {name:?}"),
    }
}
