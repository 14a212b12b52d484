//! The tokens of a model, as tries of their texts.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use rustorch_tokenizer::Tokenizer;

use crate::GrammarError;
use crate::automaton::Text;
use crate::constraint::Constraint;
use crate::network::Network;
use crate::trie::Trie;

/// The text of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of text, which may be part of a character.
    Bytes(Vec<u8>),
    /// A control token of this name, without text. It occurs only where a grammar names it.
    Control(String),
}

/// The tokens of a model, and which of them end a text. Clones share derived data: one vocabulary
/// is enough for all texts of a model.
#[derive(Clone)]
pub struct Vocabulary {
    trie: Arc<Trie>,
    /// The names of tokens that stand for no text.
    controls: Arc<HashMap<u32, String>>,
    ends: Arc<[u32]>,
    /// Tokens by their names and texts, once a grammar has such a name.
    names: Arc<OnceLock<HashMap<Box<[u8]>, u32>>>,
    /// llguidance's, once a grammar needs it.
    factory: Arc<OnceLock<Result<ParserFactory, GrammarError>>>,
}

/// Ids in the nodes of llguidance's trie have 24 bits; all of them set mean none.
const MAX_TOKENS: usize = (1 << 24) - 1;
/// Longer tokens are left out where llguidance makes the mask, whose trie counts bytes in 10 bits.
const MAX_BYTES: usize = 512;

impl Vocabulary {
    /// The vocabulary of `tokenizer`.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] if no token ends a text, or if there are more than 2²⁴ tokens.
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
    /// [`GrammarError::Vocabulary`] if `ends` is empty or names a missing token, or if there are
    /// more than 2²⁴ tokens.
    pub fn from_pieces(pieces: &[Piece], ends: &[u32]) -> Result<Self, GrammarError> {
        let refuse = |reason: &str| GrammarError::Vocabulary {
            reason: reason.to_owned(),
        };
        if pieces.len() > MAX_TOKENS {
            return Err(refuse("it has more than 2²⁴ tokens"));
        }
        if ends.is_empty() {
            return Err(refuse("it has no token that ends a text"));
        }
        if ends.iter().any(|&id| id as usize >= pieces.len()) {
            return Err(refuse("a token that ends a text is outside of it"));
        }
        fn text(piece: &Piece) -> &[u8] {
            match piece {
                Piece::Bytes(bytes) => bytes,
                Piece::Control(_) => &[],
            }
        }
        let control = |(id, piece): (u32, &Piece)| match piece {
            Piece::Control(name) => Some((id, name.clone())),
            Piece::Bytes(_) => None,
        };
        let trie = Trie::new(pieces.iter().map(text), |id| !ends.contains(&id));
        Ok(Self {
            trie: Arc::new(trie),
            controls: Arc::new((0..).zip(pieces).filter_map(control).collect()),
            ends: ends.into(),
            names: Arc::default(),
            factory: Arc::default(),
        })
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.trie.len()
    }

    /// Returns whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token of this text or name: of several the first, control tokens before others.
    pub(crate) fn token(&self, text: &str) -> Option<u32> {
        self.names
            .get_or_init(|| self.by_name())
            .get(text.as_bytes())
            .copied()
    }

    /// The control token of this name.
    pub(crate) fn control(&self, name: &str) -> Option<u32> {
        self.token(name).filter(|id| self.controls.contains_key(id))
    }

    fn by_name(&self) -> HashMap<Box<[u8]>, u32> {
        let ids = 0..self.len() as u32;
        let controls = ids
            .clone()
            .filter_map(|id| Some((self.controls.get(&id)?.as_bytes(), id)));
        let texts = ids
            .map(|id| (self.trie.text(id), id))
            .filter(|(text, _)| !text.is_empty());
        let mut names = HashMap::new();
        for (name, id) in controls.chain(texts) {
            names.entry(name.into()).or_insert(id);
        }
        names
    }

    /// Holds texts of these tokens to llguidance's `grammar`, which errors call `what`.
    pub(crate) fn constrain(
        &self,
        grammar: TopLevelGrammar,
        what: &'static str,
    ) -> Result<Constraint, GrammarError> {
        let factory = self.factory.get_or_init(|| self.new_factory());
        let factory = factory.as_ref().map_err(Clone::clone)?;
        let parser = factory.create_parser(grammar);
        let parser = parser.map_err(|error| GrammarError::Refused {
            what,
            reason: GrammarError::reason(&error),
        });
        Ok(Constraint::of_lexemes(parser?, self.ends.clone()))
    }

    /// Holds texts of these tokens to `network`, which errors call `what`.
    pub(crate) fn constrain_bytes(
        &self,
        network: Network,
        what: &'static str,
    ) -> Result<Constraint, GrammarError> {
        let text = Text::new(network, self.trie.clone());
        let text = text.map_err(|reason| GrammarError::Refused { what, reason });
        Ok(Constraint::of_bytes(text?, self.ends.clone()))
    }

    fn new_factory(&self) -> Result<ParserFactory, GrammarError> {
        let words: Vec<Vec<u8>> = (0..self.len() as u32).map(|id| self.word(id)).collect();
        let first = self.ends.first().copied().unwrap_or_default();
        let info = TokRxInfo::new(words.len() as u32, first);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&self.ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory =
            ParserFactory::new_simple(&environment).map_err(|error| GrammarError::Vocabulary {
                reason: GrammarError::reason(&error),
            });
        let mut factory = factory?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(factory)
    }

    /// A token as llguidance's trie has it. Tokens with an empty text there are in no text: their
    /// bytes are not UTF-8, or they are too long.
    fn word(&self, id: u32) -> Vec<u8> {
        let marker = TokTrie::SPECIAL_TOKEN_MARKER;
        let text = self.trie.text(id);
        match self.controls.get(&id) {
            Some(name) if name.len() >= MAX_BYTES => vec![marker],
            Some(name) => [&[marker], name.as_bytes()].concat(),
            None if text.len() > MAX_BYTES || text.contains(&marker) => Vec::new(),
            None => text.to_vec(),
        }
    }
}
