//! BERT's normalisation of text.

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::unicode::{base, lower};

/// Whether text loses its capitals and accents.
pub(crate) struct Normalizer {
    pub(crate) lowercase: bool,
    pub(crate) strip_accents: bool,
}

impl Normalizer {
    /// Reads the keys; `lowercase` is what a file means that does not say.
    pub(crate) fn from_gguf(metadata: &Metadata, lowercase: bool) -> Result<Self, TokenizerError> {
        let flag = |key, default| metadata.opt_bool(key).map(|flag| flag.unwrap_or(default));
        let lowercase = flag("tokenizer.ggml.normalizer.lowercase", lowercase)?;
        Ok(Normalizer {
            lowercase,
            strip_accents: flag("tokenizer.ggml.normalizer.strip_accents", lowercase)?,
        })
    }

    /// Characters without the accents in them, in lower case, each as far as it is wanted.
    pub(crate) fn apply(&self, text: &str) -> String {
        let plain = |char| match self.strip_accents {
            true => base(char),
            false => char,
        };
        let small = |char| match self.lowercase {
            true => lower(char),
            false => char,
        };
        text.chars().map(plain).map(small).collect()
    }
}
