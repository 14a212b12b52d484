//! The tokenizer as others see it.

use std::borrow::Cow;
use std::ops::Range;

use rustorch_gguf::Metadata;
use tracing::warn;

use crate::TokenizerError;
use crate::added::{AddedTokens, Fragment};
use crate::byte_level::{self, ByteLevel};
use crate::pre_tokenizer::PreTokenizer;
use crate::sentence_piece::{self, SentencePiece};
use crate::special::{Defaults, SpecialTokens};
use crate::vocab::{TokenType, Vocab};

/// What [`Tokenizer::encode`] does beside encoding the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Put BOS in front and EOS behind, as far as the model wants them.
    pub add_special: bool,
    /// Take the texts of control tokens, such as `<|im_start|>`, for these tokens. Leave it off for
    /// text that is not to be trusted with them. User-defined tokens are found in any case.
    pub parse_special: bool,
}

/// Turns text into token ids and back, as one model does.
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    added: AddedTokens,
    algorithm: Algorithm,
    add_bos: bool,
    add_eos: bool,
}

enum Algorithm {
    SentencePiece(SentencePiece),
    ByteLevel(ByteLevel),
}

impl Algorithm {
    /// Appends the ids of `text`, which has no added tokens.
    fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        match self {
            Algorithm::SentencePiece(it) => it.encode(vocab, text, ids),
            Algorithm::ByteLevel(it) => it.encode(vocab, text, ids),
        }
    }

    /// The bytes that a normal token of this text stands for.
    fn decode(&self, text: &str) -> Vec<u8> {
        match self {
            Algorithm::SentencePiece(_) => sentence_piece::decode(text),
            Algorithm::ByteLevel(_) => byte_level::decode(text),
        }
    }
}

impl Tokenizer {
    /// Builds the tokenizer that `metadata` describes.
    ///
    /// Metadata may be incomplete or contradict itself as far as llama.cpp tolerates it, and means
    /// the same then: without a pre-tokenizer's name, `default` is used, with a warning; without
    /// token types all are normal; without scores all are equal; merges that are no pair have no
    /// effect; ids of special tokens outside the vocabulary are passed over, with a warning.
    ///
    /// # Errors
    /// If a key that is needed is missing or of the wrong type, the kind of tokenizer or the
    /// pre-tokenizer is not supported, there are no tokens or two with the same text, or an array
    /// is too short.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let model = metadata.str("tokenizer.ggml.model")?;
        let pre_tokenizer = match model {
            "llama" => None,
            "gpt2" => Some(pre_tokenizer(metadata)?),
            _ => {
                return Err(TokenizerError::Model {
                    model: model.to_owned(),
                });
            }
        };
        let defaults = match pre_tokenizer {
            None => Defaults {
                bos: Some(1),
                eos: Some(2),
                unknown: Some(0),
            },
            Some(it) => Defaults {
                bos: it.default_bos.then_some(11),
                eos: Some(11),
                unknown: None,
            },
        };

        let mut vocab = Vocab::from_gguf(metadata)?;
        let special = SpecialTokens::find(metadata, &mut vocab, defaults)?;
        let algorithm = match pre_tokenizer {
            None => {
                Algorithm::SentencePiece(SentencePiece::new(metadata, &vocab, special.unknown)?)
            }
            Some(it) => Algorithm::ByteLevel(ByteLevel::new(metadata, &vocab, it)?),
        };
        let adds = |key, default| metadata.opt_bool(key).map(|adds| adds.unwrap_or(default));
        Ok(Tokenizer {
            added: AddedTokens::new(metadata, &vocab)?,
            add_bos: adds(
                "tokenizer.ggml.add_bos_token",
                pre_tokenizer.is_none_or(|it| it.add_bos),
            )?,
            add_eos: adds("tokenizer.ggml.add_eos_token", false)?,
            vocab,
            special,
            algorithm,
        })
    }

    /// The ids of `text`.
    ///
    /// With SentencePiece, a space is put before the text and after each added token, if the model
    /// wants it. What the vocabulary cannot express is dropped.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut ids = Vec::new();
        if options.add_special && self.add_bos {
            ids.extend(self.special.bos);
        }
        self.append(text, |_| options.parse_special, &mut ids);
        if options.add_special && self.add_eos {
            ids.extend(self.special.eos);
        }
        if options.add_special {
            self.warn_of_doubles(&ids);
        }
        ids
    }

    /// Warns where a text has the token itself that the model wants before or behind it, as llama.cpp does.
    fn warn_of_doubles(&self, ids: &[u32]) {
        let twice = |token: Option<u32>, pair: Option<&[u32]>| match (token, pair) {
            (Some(token), Some(pair)) => *pair == [token, token],
            _ => false,
        };
        if self.add_bos && twice(self.special.bos, ids.get(..2)) {
            warn!(
                "the text begins with BOS, and the model adds one: it begins with two; leave it out \
                 of the text"
            );
        }
        let last = ids.len().checked_sub(2).and_then(|start| ids.get(start..));
        if self.add_eos && twice(self.special.eos, last) {
            warn!(
                "the text ends with EOS, and the model adds one: it ends with two; leave it out of \
                 the text"
            );
        }
    }

    /// The ids of `text`, some bytes of which are not to be trusted: special tokens are found where they
    /// cover none of `guarded`, which is in order. Nothing is put before or behind.
    pub fn encode_guarded(&self, text: &str, guarded: &[Range<usize>]) -> Vec<u32> {
        let mut ids = Vec::new();
        let trusted = |token: Range<usize>| {
            let next = guarded.partition_point(|guard| guard.end <= token.start);
            guarded
                .get(next)
                .is_none_or(|guard| guard.start >= token.end)
        };
        self.append(text, trusted, &mut ids);
        ids
    }

    /// Appends the ids of `text`, with special tokens where `special` says so.
    fn append(&self, text: &str, special: impl Fn(Range<usize>) -> bool, ids: &mut Vec<u32>) {
        for fragment in self.added.split(text, special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => self.algorithm.encode(&self.vocab, text, ids),
            }
        }
    }

    /// The bytes that a token stands for when generated: part of a character, perhaps, and nothing
    /// for control, unknown and unused tokens. `None` if the id is not in the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        let text = self.vocab.text(id)?;
        Some(match self.vocab.token_type(id)? {
            TokenType::Normal => self.algorithm.decode(text).into(),
            TokenType::UserDefined => text.as_bytes().into(),
            TokenType::Byte => Vec::from_iter(sentence_piece::decode_byte(text)).into(),
            TokenType::Control | TokenType::Unknown | TokenType::Unused | TokenType::Undefined => {
                Cow::default()
            }
        })
    }

    /// A token's text as the vocabulary has it, with its own signs for spaces and bytes. `None` if
    /// the id is not in the vocabulary.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The number of tokens; ids are smaller.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// Whether the model wants texts to begin with [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The token that ends a turn in a conversation.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// The token for what is in no token.
    pub fn unk(&self) -> Option<u32> {
        self.special.unknown
    }

    /// Whether generation is over when the model gives this token.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.special.ends.contains(&id)
    }

    /// Whether this is a control token, which is not shown.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.token_type(id) == Some(TokenType::Control)
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
