//! Reasons why metadata describes no usable tokenizer, or a text cannot be read.

use rustorch_errors::ErrorKind;
use rustorch_gguf::GgufError;
use thiserror::Error;

/// A failure to build a tokenizer, or to read a text. Its text is one line with the problem, the place, and advice.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] GgufError),

    /// A kind of tokenizer that is not implemented.
    #[error(
        "tokenizer.ggml.model is {}, which is not supported; supported are {}; use a model with one of these",
        quoted(model), supported.join(", ")
    )]
    Model {
        /// The kind found.
        model: String,
        /// Every kind that is understood.
        supported: Vec<&'static str>,
    },

    /// A pre-tokenizer that is not implemented.
    #[error(
        "tokenizer.ggml.pre is {}, which is not supported; supported are {}; \
         convert the model again with its right name, or use another model", quoted(name), supported.join(", ")
    )]
    PreTokenizer {
        /// The name found.
        name: String,
        /// Every name that is understood.
        supported: Vec<&'static str>,
    },

    /// There are no tokens.
    #[error("tokenizer.ggml.tokens is empty; use a model file that holds its vocabulary")]
    NoTokens,

    /// Two tokens have the same text, so that text would have two encodings.
    #[error(
        "tokenizer.ggml.tokens has {} twice, as {first} and as {second}; convert the model again",
        quoted(text)
    )]
    DuplicateToken {
        /// The text.
        text: String,
        /// The first id with it.
        first: usize,
        /// The second id with it.
        second: usize,
    },

    /// An array that describes the tokens is shorter than their list.
    #[error(
        "{key} has {found} elements for {tokens} tokens; the file is damaged, convert the model again"
    )]
    TooFew {
        /// The array's key.
        key: &'static str,
        /// Its length.
        found: usize,
        /// The number of tokens.
        tokens: usize,
    },

    /// The map of characters is invalid.
    #[error("tokenizer.ggml.precompiled_charsmap is damaged ({problem}); convert the model again")]
    Charsmap {
        /// The damage.
        problem: &'static str,
    },

    /// A byte has no token.
    #[error(
        "tokenizer.ggml.tokens has no byte token <0x{byte:02X}>, but this kind of tokenizer needs one for each byte; \
         convert the model again"
    )]
    NoByteToken {
        /// The byte.
        byte: u8,
    },

    /// A vocabulary to be trained has no room for the tokens that every text needs.
    #[error(
        "a vocabulary of {size} tokens is too small: every byte, and the tokens that begin and end a text, make \
         {least}; ask for at least that many"
    )]
    VocabTooSmall {
        /// The size asked for.
        size: usize,
        /// The least size.
        least: usize,
    },

    /// There are too many added tokens to search for.
    #[error(
        "the added tokens cannot be searched for ({0}); the file is damaged, convert the model again"
    )]
    AddedTokens(#[from] aho_corasick::BuildError),

    /// A text cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),

    /// A text is not UTF-8.
    #[error("byte {at} is not UTF-8 text; convert the text to UTF-8, with iconv for example")]
    NotUtf8 {
        /// The offset, from 0.
        at: u64,
    },
}

impl TokenizerError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Metadata(error) => error.kind(),
            Self::Model { .. } | Self::PreTokenizer { .. } => ErrorKind::Unsupported,
            Self::NoTokens => ErrorKind::Missing,
            Self::VocabTooSmall { .. } => ErrorKind::Argument,
            Self::Io(error) => error.into(),
            Self::DuplicateToken { .. }
            | Self::TooFew { .. }
            | Self::Charsmap { .. }
            | Self::NoByteToken { .. }
            | Self::AddedTokens(_)
            | Self::NotUtf8 { .. } => ErrorKind::Format,
        }
    }
}

/// A text from a file, fit for one line of a terminal: escaped, and shortened where long.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut rest = text.chars();
    let shown: String = rest.by_ref().take(LONGEST).collect();
    format!(
        "{shown:?}{}",
        if rest.as_str().is_empty() { "" } else { "…" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_files_are_escaped_and_shortened() {
        assert_eq!(quoted("a\n\u{1b}"), r#""a\n\u{1b}""#);
        assert_eq!(
            quoted(&"é".repeat(1000)),
            format!("\"{}\"…", "é".repeat(80))
        );
    }
}
