//! Byte-pair encoding of the words between white space, which is dropped.

use std::borrow::Cow;

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::bpe::Bpe;
use crate::normalizer::Normalizer;
use crate::pre_tokenizer::PreTokenizer;
use crate::unicode::lower;
use crate::vocab::Vocab;

pub(crate) struct Whitespace {
    pub(crate) bpe: Bpe,
    lowercase: bool,
}

impl Whitespace {
    pub(crate) fn new(
        metadata: &Metadata,
        vocab: &Vocab,
        pre_tokenizer: &PreTokenizer,
    ) -> Result<Self, TokenizerError> {
        let normalizer = Normalizer::from_gguf(metadata, pre_tokenizer.lowercase)?;
        Ok(Whitespace {
            bpe: Bpe::new(metadata, vocab, pre_tokenizer)?,
            lowercase: normalizer.lowercase,
        })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let mut text = self.bpe.escape(text);
        if self.lowercase {
            text = Cow::Owned(text.chars().map(lower).collect());
        }
        for word in text.split_whitespace() {
            self.bpe.encode(vocab, word, ids);
        }
    }
}
