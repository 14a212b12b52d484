//! What the tokens of a model stand for, as a trie.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use rustorch_tokenizer::Tokenizer;

use crate::GrammarError;
use crate::constraint::Constraint;

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of text: part of a character, perhaps.
    Bytes(Vec<u8>),
    /// No text: a control token of this name. It comes where a grammar names it, and nowhere else.
    Control(String),
}

/// The tokens of a model, and which of them end a text. Clones share it.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    ends: Arc<[u32]>,
}

/// Ids in the trie's nodes have 24 bits, all of which set mean none.
const MAX_TOKENS: usize = (1 << 24) - 1;
/// Longer tokens are left out of constrained texts; a node of the trie counts them in 10 bits.
const MAX_BYTES: usize = 512;

impl Vocabulary {
    /// The vocabulary of `tokenizer`.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] if no token ends a text, or there are more than 2²⁴.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, GrammarError> {
        let ids = 0..tokenizer.vocab_size() as u32;
        let ends: Vec<u32> = ids
            .clone()
            .filter(|&id| tokenizer.is_end_of_generation(id))
            .collect();
        let piece = |id| match tokenizer.token_bytes(id) {
            Some(bytes) if !bytes.is_empty() && !ends.contains(&id) => {
                Piece::Bytes(bytes.into_owned())
            }
            _ => Piece::Control(tokenizer.token_text(id).unwrap_or_default().to_owned()),
        };
        let pieces: Vec<Piece> = ids.map(piece).collect();
        Self::from_pieces(&pieces, &ends)
    }

    /// The vocabulary in which token `id` stands for `pieces[id]`, and the tokens of `ends` end a
    /// text.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] if `ends` is empty or has a token that is not there, or there
    /// are more than 2²⁴ tokens.
    pub fn from_pieces(pieces: &[Piece], ends: &[u32]) -> Result<Self, GrammarError> {
        let refuse = |reason: &str| GrammarError::Vocabulary {
            reason: reason.to_owned(),
        };
        if pieces.len() > MAX_TOKENS {
            return Err(refuse("it has more than 2²⁴ tokens"));
        }
        let &[first, ..] = ends else {
            return Err(refuse(
                "it has no token that ends a text, so that a finished one could not stop",
            ));
        };
        if ends.iter().any(|&id| id as usize >= pieces.len()) {
            return Err(refuse("a token that ends a text is outside of it"));
        }
        let words: Vec<Vec<u8>> = pieces.iter().map(word).collect();
        let info = TokRxInfo::new(words.len() as u32, first);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory =
            ParserFactory::new_simple(&environment).map_err(|error| GrammarError::Vocabulary {
                reason: GrammarError::reason(&error),
            });
        let mut factory = factory?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self {
            factory: Arc::new(factory),
            ends: ends.into(),
        })
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.trie().vocab_size()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token of this text or name.
    pub(crate) fn token(&self, text: &str) -> Option<u32> {
        let trie = self.trie();
        let control = trie.get_special_token(text);
        control.or_else(|| trie.token_id(text.as_bytes()))
    }

    /// Holds texts of these tokens to `grammar`, which errors call `what`.
    pub(crate) fn constrain(
        &self,
        grammar: TopLevelGrammar,
        what: &'static str,
    ) -> Result<Constraint, GrammarError> {
        let parser = self.factory.create_parser(grammar);
        let parser = parser.map_err(|error| GrammarError::Refused {
            what,
            reason: GrammarError::reason(&error),
        });
        Ok(Constraint::new(parser?, self.ends.clone()))
    }

    fn trie(&self) -> &TokTrie {
        self.factory.tok_env().tok_trie()
    }
}

/// A token as the trie has it. No text has what is empty there: bytes that no text of UTF-8 has,
/// and what is too long.
fn word(piece: &Piece) -> Vec<u8> {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    match piece {
        Piece::Bytes(bytes) if bytes.len() > MAX_BYTES || bytes.contains(&marker) => Vec::new(),
        Piece::Bytes(bytes) => bytes.clone(),
        Piece::Control(name) if name.len() >= MAX_BYTES => vec![marker],
        Piece::Control(name) => [&[marker], name.as_bytes()].concat(),
    }
}
