//! Why a text cannot be held to a form.

use thiserror::Error;

/// A failure to make a constraint, or to go on with one. Its text is one line that says what is
/// wrong, where, and what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrammarError {
    /// The schema is not JSON.
    #[error("the JSON schema is not JSON: {reason}")]
    NotJson {
        /// What the JSON parser says, with line and column.
        reason: String,
    },

    /// A part of a JSON schema that is wrong, or that texts cannot be held to.
    #[error("JSON schema, {path}: {reason}")]
    Schema {
        /// Where, as a JSON pointer from the root `#`.
        path: String,
        /// What is wrong, and what to do.
        reason: String,
    },

    /// A GBNF grammar that is wrong.
    #[error("grammar, line {line}, column {column}: {reason}")]
    Gbnf {
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// What is wrong, and what to do.
        reason: String,
    },

    /// A regular expression or a Lark grammar that llguidance refuses.
    #[error("{what}: {reason}")]
    Refused {
        /// What was given.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },

    /// A vocabulary for which there are no masks.
    #[error("this vocabulary cannot be constrained: {reason}")]
    Vocabulary {
        /// What is wrong.
        reason: String,
    },

    /// A token was accepted that the mask does not have.
    #[error("token {token} does not continue the text in its form; only tokens of the mask do")]
    Token {
        /// Its id.
        token: u32,
    },

    /// The engine gave up. The text so far is in its form, but not at its end.
    #[error("the text cannot be held to its form any longer: {reason}; simplify the grammar")]
    Failed {
        /// What the engine says.
        reason: String,
    },
}

impl GrammarError {
    /// What the engine says: its first line, for others are a listing of its state.
    pub(crate) fn reason(error: &impl ToString) -> String {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim().to_owned()
    }
}
