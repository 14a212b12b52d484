//! Reasons why a constraint cannot be enforced.

use rustorch_errors::ErrorKind;
use thiserror::Error;

/// A failure to make or continue a constraint. Its text is one line with the problem, the place,
/// and advice.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrammarError {
    /// The schema is not JSON.
    #[error("the JSON schema is not JSON: {reason}")]
    NotJson {
        /// The JSON parser's message, with line and column.
        reason: String,
    },

    /// A part of a JSON schema that is invalid or cannot be enforced.
    #[error("JSON schema, {path}: {reason}")]
    Schema {
        /// The place, as a JSON pointer from the root `#`.
        path: String,
        /// The problem, and advice.
        reason: String,
    },

    /// An invalid GBNF grammar.
    #[error("grammar, line {line}, column {column}: {reason}")]
    Gbnf {
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// The problem, and advice.
        reason: String,
    },

    /// An invalid regular expression or Lark grammar.
    #[error("{what}: {reason}")]
    Refused {
        /// The given constraint.
        what: &'static str,
        /// The problem.
        reason: String,
    },

    /// A vocabulary that does not support masks.
    #[error("this vocabulary cannot be constrained: {reason}")]
    Vocabulary {
        /// The problem.
        reason: String,
    },

    /// A token that the mask excludes was accepted.
    #[error("token {token} breaks the grammar; choose a token that the mask allows")]
    Token {
        /// Its id.
        token: u32,
    },

    /// The engine gave up. The text so far is valid, but incomplete.
    #[error("the grammar cannot be followed any longer: {reason}; simplify the grammar")]
    Failed {
        /// The engine's message.
        reason: String,
    },
}

impl GrammarError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotJson { .. }
            | Self::Schema { .. }
            | Self::Gbnf { .. }
            | Self::Refused { .. } => ErrorKind::Format,
            Self::Vocabulary { .. } | Self::Failed { .. } => ErrorKind::Unsupported,
            Self::Token { .. } => ErrorKind::Argument,
        }
    }

    /// The engine's message: its first line, for others are a listing of its state.
    pub(crate) fn reason(error: &impl ToString) -> String {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim().to_owned()
    }
}
