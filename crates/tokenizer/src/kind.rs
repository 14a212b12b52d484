//! The kinds of tokenizers, by the names that `tokenizer.ggml.model` gives them.
//!
//! Names, special tokens and additions to texts are those of llama.cpp's `llama_vocab::impl::load`
//! and `llama_vocab::impl::tokenize`.

use rustorch_gguf::Metadata;
use tracing::warn;

use crate::TokenizerError;
use crate::pre_tokenizer::PreTokenizer;
use crate::special::{Adds, Defaults};

/// A kind of tokenizer.
pub(crate) struct Kind {
    pub(crate) model: Model,
    /// The special tokens that the file does not name.
    pub(crate) defaults: Defaults,
    /// Whether BOS is put before texts.
    pub(crate) bos: Adds,
    /// Whether EOS is put behind texts.
    pub(crate) eos: Adds,
    /// Whether SEP is put behind texts, and not EOS.
    pub(crate) ends_with_sep: bool,
    /// Whether SEP stands between texts that are given together, if the file does not say.
    pub(crate) separates: bool,
}

/// The algorithm of a kind.
pub(crate) enum Model {
    SentencePiece,
    Bpe(&'static PreTokenizer),
    HybridDna(&'static PreTokenizer),
    Whitespace(&'static PreTokenizer),
    WordPiece,
    Unigram,
    Rwkv,
    Plamo,
    Chunks,
}

type Describe = fn(&Metadata) -> Result<Kind, TokenizerError>;

const KINDS: &[(&str, Describe)] = &[
    ("llama", |_| {
        Ok(Kind {
            defaults: Defaults::new(Some(1), Some(2), Some(0)),
            bos: Adds::ByKey(true),
            eos: Adds::ByKey(false),
            ..Kind::bare(Model::SentencePiece)
        })
    }),
    ("gpt2", |metadata| Kind::bpe(metadata, Model::Bpe)),
    ("hybriddna", |metadata| {
        Kind::bpe(metadata, Model::HybridDna)
    }),
    ("whitespace", |metadata| {
        Kind::bpe(metadata, Model::Whitespace)
    }),
    ("gemma4", |_| {
        Ok(Kind {
            defaults: Defaults::default(),
            ..Kind::with(PreTokenizer::named("gemma4")?, Model::Bpe)
        })
    }),
    ("bert", |_| {
        Ok(Kind {
            defaults: Defaults {
                sep: Some(102),
                ..Defaults::new(Some(101), None, Some(100))
            },
            bos: Adds::Always,
            ends_with_sep: true,
            separates: true,
            ..Kind::bare(Model::WordPiece)
        })
    }),
    ("t5", |_| {
        Ok(Kind {
            defaults: Defaults::new(None, Some(1), Some(2)),
            bos: Adds::ByKey(false),
            eos: Adds::ByKey(true),
            ..Kind::bare(Model::Unigram)
        })
    }),
    ("rwkv", |_| Ok(Kind::bare(Model::Rwkv))),
    ("plamo2", |_| {
        Ok(Kind {
            defaults: Defaults::new(Some(1), Some(2), Some(0)),
            ..Kind::bare(Model::Plamo)
        })
    }),
    ("test", |_| Ok(Kind::bare(Model::Chunks))),
];

impl Kind {
    /// The kind that `metadata` names.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let model = metadata.str("tokenizer.ggml.model")?;
        let known = KINDS.iter().find(|(name, _)| *name == model);
        let (_, describe) = known.ok_or_else(|| TokenizerError::Model {
            model: model.to_owned(),
            supported: KINDS.iter().map(|(name, _)| *name).collect(),
        })?;
        describe(metadata)
    }

    /// A kind without special tokens, which puts nothing around texts.
    fn bare(model: Model) -> Self {
        Kind {
            model,
            defaults: Defaults::default(),
            bos: Adds::Never,
            eos: Adds::Never,
            ends_with_sep: false,
            separates: false,
        }
    }

    /// A kind of byte-pair encoding, with the pre-tokenizer that `metadata` names.
    fn bpe(
        metadata: &Metadata,
        model: fn(&'static PreTokenizer) -> Model,
    ) -> Result<Self, TokenizerError> {
        Ok(Self::with(pre_tokenizer(metadata)?, model))
    }

    fn with(
        pre_tokenizer: &'static PreTokenizer,
        model: fn(&'static PreTokenizer) -> Model,
    ) -> Self {
        let bos = pre_tokenizer.default_bos.then_some(11);
        Kind {
            defaults: Defaults::new(bos, Some(11), None),
            bos: pre_tokenizer.bos,
            eos: Adds::ByKey(false),
            separates: pre_tokenizer.separates,
            ..Self::bare(model(pre_tokenizer))
        }
    }
}

/// The pre-tokenizer that `metadata` names.
fn pre_tokenizer(metadata: &Metadata) -> Result<&'static PreTokenizer, TokenizerError> {
    match metadata.opt_str("tokenizer.ggml.pre")? {
        None | Some("") => {
            warn!(
                "tokenizer.ggml.pre is missing; using \"default\", which may split words wrongly"
            );
            PreTokenizer::named("default")
        }
        Some(name) => PreTokenizer::named(name),
    }
}
