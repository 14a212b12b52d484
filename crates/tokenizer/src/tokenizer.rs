//! The tokenizer as others see it.

use std::borrow::Cow;
use std::ops::Range;

use rustorch_gguf::Metadata;
use tracing::warn;

use crate::TokenizerError;
use crate::added::{AddedTokens, Fragment};
use crate::algorithm::Algorithm;
use crate::kind::Kind;
use crate::special::{FillTokens, SpecialTokens};
use crate::vocab::{TokenType, Vocab};

/// Options of [`Tokenizer::encode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds BOS at the start and EOS at the end, if the model wants them.
    pub add_special: bool,
    /// Reads the texts of control tokens, such as `<|im_start|>`, as these tokens. Leave it off for
    /// untrusted text. User-defined tokens are found in any case.
    pub parse_special: bool,
}

/// Turns text into token ids and back, for one model.
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    added: AddedTokens,
    algorithm: Algorithm,
    /// The token before texts.
    front: Option<u32>,
    /// The token behind texts.
    back: Option<u32>,
    /// Is [`Self::back`] the separator?
    ends_with_sep: bool,
    separates: bool,
}

impl Tokenizer {
    /// Builds the tokenizer that `metadata` describes, of any kind that llama.cpp has.
    ///
    /// Incomplete or contradictory metadata is accepted as far as llama.cpp accepts it, with the
    /// same meaning. A missing name of the pre-tokenizer means `default`, with a warning. Without
    /// token types all are normal, and without scores all are equal. Merges that are not a pair have
    /// no effect. Ids of special tokens outside the vocabulary are ignored, with a warning.
    ///
    /// # Errors
    /// Fails if a required key is missing or of the wrong type. Fails if the kind of tokenizer or
    /// the pre-tokenizer is not supported. Fails if there are no tokens, or two with the same text.
    /// Also fails if an array is too short.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let kind = Kind::from_gguf(metadata)?;
        let mut vocab = Vocab::from_gguf(metadata)?;
        let unknown = kind.defaults.unknown(metadata, &vocab)?;
        // Before the types of special tokens are corrected, as in llama.cpp.
        let algorithm = Algorithm::new(kind.model, metadata, &mut vocab, unknown)?;
        let special = SpecialTokens::find(metadata, &mut vocab, kind.defaults, unknown)?;

        let adds_bos = kind.bos.resolve(metadata, "tokenizer.ggml.add_bos_token")?;
        let adds_eos = kind.eos.resolve(metadata, "tokenizer.ggml.add_eos_token")?;
        let separates = metadata.opt_bool("tokenizer.ggml.add_sep_token")?;
        let back = match kind.ends_with_sep {
            true => special.sep,
            false => special.eos.filter(|_| adds_eos),
        };
        Ok(Tokenizer {
            added: AddedTokens::new(metadata, &vocab)?,
            front: special.bos.filter(|_| adds_bos),
            back,
            ends_with_sep: kind.ends_with_sep,
            separates: separates.unwrap_or(kind.separates),
            vocab,
            special,
            algorithm,
        })
    }

    /// The ids of `text`.
    ///
    /// With SentencePiece, a space is put before the text and after each added token, if the model wants it.
    /// Text that the vocabulary cannot express is dropped.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut ids = Vec::new();
        if options.add_special {
            ids.extend(self.front);
        }
        self.append(text, |_| options.parse_special, &mut ids);
        if options.add_special {
            ids.extend(self.back);
            self.warn_of_doubles(&ids);
        }
        ids
    }

    /// The ids of two texts, such as a question and an answer. Also returns the index at which the second one begins.
    /// EOS follows each text, if the model wants that. SEP follows the first one, if the model wants that.
    pub fn encode_pair(&self, first: &str, second: &str, parse_special: bool) -> (Vec<u32>, usize) {
        let options = EncodeOptions {
            add_special: false,
            parse_special,
        };
        let mut ids = Vec::from_iter(self.front);
        ids.extend(self.encode(first, options));
        ids.extend(self.back);
        ids.extend(
            self.special
                .sep
                .filter(|_| self.separates && !self.ends_with_sep),
        );
        let place = ids.len();
        ids.extend(self.encode(second, options));
        ids.extend(self.back);
        (ids, place)
    }

    /// Warns where a text has the token itself that the model wants before or behind it, as llama.cpp does.
    fn warn_of_doubles(&self, ids: &[u32]) {
        let twice = |token: Option<u32>, pair: Option<&[u32]>| match (token, pair) {
            (Some(token), Some(pair)) => *pair == [token, token],
            _ => false,
        };
        if twice(self.front, ids.get(..2)) {
            warn!("the text begins with BOS and the model adds another; remove BOS from the text");
        }
        let last = ids.len().checked_sub(2).and_then(|start| ids.get(start..));
        if twice(self.back, last) {
            warn!("the text ends with EOS and the model adds another; remove EOS from the text");
        }
    }

    /// The ids of `text`, whose byte ranges `guarded`, in order, are untrusted: special tokens are
    /// found only outside them. Nothing is added before or after the text.
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

    /// The bytes of a generated token. They may be part of a character, and are empty for control,
    /// unknown and unused tokens. `None` for an unknown id.
    pub fn token_bytes(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        let text = self.vocab.text(id)?;
        Some(match self.vocab.token_type(id)? {
            TokenType::Control | TokenType::Unknown => Cow::default(),
            ty => self.algorithm.decode(id, text, ty),
        })
    }

    /// A token's text in the vocabulary, with its special signs for spaces and bytes. `None` for an
    /// unknown id.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// Returns whether the model expects texts to begin with [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.front.is_some()
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The token that the model wants after texts.
    pub fn end(&self) -> Option<u32> {
        self.back
    }

    /// The token that ends a turn in a conversation.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// The tokens by which the model fills a gap in a text, if it was trained for that.
    pub fn fill_tokens(&self) -> Option<FillTokens> {
        self.special.fill
    }

    /// The token between texts of a pair, such as a question and an answer.
    pub fn sep(&self) -> Option<u32> {
        self.special.sep
    }

    /// Returns whether the model expects [`sep`](Self::sep) between the texts of a pair.
    pub fn adds_sep(&self) -> bool {
        self.separates
    }

    /// The tokens that the model must not generate.
    pub fn suppressed(&self) -> &[u32] {
        &self.special.suppressed
    }

    /// The token for unknown text.
    pub fn unk(&self) -> Option<u32> {
        self.special.unknown
    }

    /// Returns whether this token ends a generation.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.special.ends.contains(&id)
    }

    /// Returns whether this is a control token, which is not shown.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.token_type(id) == Some(TokenType::Control)
    }
}
