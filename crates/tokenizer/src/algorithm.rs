//! The algorithms, each with one vocabulary's tables.

use std::borrow::Cow;

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::bpe::Bpe;
use crate::chunks;
use crate::hybrid_dna::HybridDna;
use crate::kind::Model;
use crate::plamo::{self, Plamo};
use crate::rwkv::{self, Rwkv};
use crate::sentence_piece::{self, SentencePiece};
use crate::unigram::Unigram;
use crate::vocab::{TokenType, Vocab};
use crate::whitespace::Whitespace;
use crate::word_piece::WordPiece;

pub(crate) enum Algorithm {
    SentencePiece(SentencePiece),
    Bpe(Bpe),
    HybridDna(HybridDna),
    Whitespace(Whitespace),
    WordPiece(WordPiece),
    Unigram(Unigram),
    Rwkv(Rwkv),
    Plamo(Plamo),
    Chunks,
}

impl Algorithm {
    /// The algorithm of a model; `unknown` is its token for what is in no token.
    pub(crate) fn new(
        model: Model,
        metadata: &Metadata,
        vocab: &mut Vocab,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        Ok(match model {
            Model::SentencePiece => {
                Self::SentencePiece(SentencePiece::new(metadata, vocab, unknown)?)
            }
            Model::Bpe(it) => Self::Bpe(Bpe::new(metadata, vocab, it)?),
            Model::HybridDna(it) => Self::HybridDna(HybridDna::new(metadata, vocab, it)?),
            Model::Whitespace(it) => Self::Whitespace(Whitespace::new(metadata, vocab, it)?),
            Model::WordPiece => Self::WordPiece(WordPiece::new(metadata, vocab, unknown)?),
            Model::Unigram => Self::Unigram(Unigram::new(metadata, vocab, unknown)?),
            Model::Rwkv => Self::Rwkv(Rwkv::new(vocab, unknown)),
            Model::Plamo => Self::Plamo(Plamo::new(metadata, vocab)?),
            Model::Chunks => Self::Chunks,
        })
    }

    /// Appends the ids of `text`, which has no added tokens.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        match self {
            Self::SentencePiece(it) => it.encode(vocab, text, ids),
            Self::Bpe(it) => it.encode(vocab, &it.escape(text), ids),
            Self::HybridDna(it) => it.encode(vocab, text, ids),
            Self::Whitespace(it) => it.encode(vocab, text, ids),
            Self::WordPiece(it) => it.encode(text, ids),
            Self::Unigram(it) => it.encode(text, ids),
            Self::Rwkv(it) => it.encode(text, ids),
            Self::Plamo(it) => it.encode(text, ids),
            Self::Chunks => chunks::encode(vocab, text, ids),
        }
    }

    /// The bytes that a token, which is shown, stands for.
    pub(crate) fn decode<'t>(&self, id: u32, text: &'t str, ty: TokenType) -> Cow<'t, [u8]> {
        match self {
            Self::Rwkv(_) => return rwkv::decode(text).into(),
            Self::Plamo(_) => return plamo::decode(text, ty),
            Self::Chunks => return chunks::decode(id).into(),
            _ => {}
        }
        match ty {
            TokenType::Normal => self.decode_normal(text),
            TokenType::UserDefined => text.as_bytes().into(),
            TokenType::Byte => Vec::from_iter(sentence_piece::decode_byte(text)).into(),
            _ => Cow::default(),
        }
    }

    fn decode_normal<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
        match self {
            Self::Bpe(bpe)
            | Self::HybridDna(HybridDna { bpe, .. })
            | Self::Whitespace(Whitespace { bpe, .. }) => bpe.decode(text),
            _ => sentence_piece::decode(text).into(),
        }
    }
}
