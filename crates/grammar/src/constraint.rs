//! The state of a text in a grammar.

use std::sync::Arc;

use llguidance::toktrie::SimpleVob;
use llguidance::{Matcher, TokenParser};

use crate::GrammarError;
use crate::automaton::Text;

/// A set of tokens.
#[derive(Clone, Debug)]
pub struct TokenMask(SimpleVob);

impl TokenMask {
    /// Returns whether the mask allows this token.
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }

    /// Number of allowed tokens.
    pub fn count(&self) -> usize {
        self.0.num_set()
    }

    /// Excludes the other tokens: the logits `[vocab]` of tokens outside the set become −∞. A model
    /// may have more logits than its vocabulary has tokens.
    pub fn apply(&self, logits: &mut [f32]) {
        // 32 tokens at a time: mostly either none or all of them are in the set.
        let words = self.0.as_slice();
        for (at, chunk) in logits.chunks_mut(u32::BITS as usize).enumerate() {
            match words.get(at).copied().unwrap_or(0) {
                u32::MAX => {}
                0 => chunk.fill(f32::NEG_INFINITY),
                word => {
                    for (bit, logit) in chunk.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
    }
}

/// The constraint of a text: it computes the allowed tokens, and is advanced by the chosen ones.
///
/// After an error every other call fails, too: a broken constraint never allows tokens.
#[derive(Clone)]
pub struct Constraint {
    engine: Engine,
    /// Tokens that end a text, wherever a grammar has them.
    ends: Arc<[u32]>,
    /// The masks of the tokens so far, once asked for.
    mask: Option<TokenMask>,
    /// Whether the last token ended the text.
    ended: bool,
    /// Why it broke.
    broken: Option<GrammarError>,
}

/// The engine of the texts.
#[derive(Clone)]
enum Engine {
    /// llguidance, whose grammars are of lexemes.
    Lexemes(Box<Matcher>),
    /// This crate's, whose grammars are of bytes.
    Bytes(Box<Text>),
}

impl Constraint {
    pub(crate) fn of_lexemes(parser: TokenParser, ends: Arc<[u32]>) -> Self {
        Self::new(Engine::Lexemes(Box::new(Matcher::new(Ok(parser)))), ends)
    }

    pub(crate) fn of_bytes(text: Text, ends: Arc<[u32]>) -> Self {
        Self::new(Engine::Bytes(Box::new(text)), ends)
    }

    fn new(engine: Engine, ends: Arc<[u32]>) -> Self {
        Self {
            engine,
            ends,
            mask: None,
            ended: false,
            broken: None,
        }
    }

    /// The tokens that may come next, at least one. End tokens are among them only if the text may
    /// end.
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if the engine gives up, if no token continues the text, or if a
    /// token ended the text.
    pub fn mask(&mut self) -> Result<&TokenMask, GrammarError> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => self.compute_mask()?,
        };
        Ok(self.mask.insert(mask))
    }

    fn compute_mask(&mut self) -> Result<TokenMask, GrammarError> {
        self.check_open()?;
        let mask = self.engine.mask();
        let mut mask = self.unless_broken(mask)?;
        // A grammar may name such a token, or any token; the text would be over all the same.
        let accepting = self.is_accepting()?;
        for &end in self.ends.iter() {
            mask.set(end as usize, accepting);
        }
        match mask.is_zero() {
            true => Err(failed("no token continues the text")),
            false => Ok(TokenMask(mask)),
        }
    }

    /// Returns whether this token may come next. It equals a look-up in [`Self::mask`], mostly without computing
    /// the mask.
    ///
    /// # Errors
    /// The same errors as [`Self::mask`].
    pub fn allows(&mut self, token: u32) -> Result<bool, GrammarError> {
        if let Some(mask) = &self.mask {
            return Ok(mask.allows(token));
        }
        self.check_open()?;
        if self.ends.contains(&token) {
            return self.is_accepting();
        }
        let allows = self.engine.allows(token);
        self.unless_broken(allows)
    }

    /// Adds a token to the text.
    ///
    /// # Errors
    /// [`GrammarError::Token`] if the grammar does not allow the token, and the errors of
    /// [`Self::mask`].
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        if !self.allows(token)? {
            return Err(GrammarError::Token { token });
        }
        self.mask = None;
        self.ended = self.ends.contains(&token);
        if self.ended {
            return Ok(());
        }
        let accepted = self.engine.accept(token);
        self.unless_broken(accepted)
    }

    /// Removes the last `tokens` tokens.
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if there were fewer tokens.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        if tokens == 0 {
            return Ok(());
        }
        self.mask = None;
        let ends = usize::from(std::mem::take(&mut self.ended));
        let back = self.engine.rollback(tokens - ends);
        self.unless_broken(back)
    }

    /// Returns whether the text may end here.
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if the engine gave up.
    pub fn is_accepting(&mut self) -> Result<bool, GrammarError> {
        if self.is_complete() {
            return Ok(true);
        }
        let accepting = self.engine.is_accepting();
        self.unless_broken(accepting)
    }

    /// Returns whether the text is complete, so that nothing can follow.
    pub fn is_complete(&self) -> bool {
        self.ended || (self.broken.is_none() && self.engine.is_complete())
    }

    /// Whether anything may be asked of the engine.
    fn check_open(&self) -> Result<(), GrammarError> {
        match (&self.broken, self.ended) {
            (Some(error), _) => Err(error.clone()),
            (_, true) => Err(failed("it has ended")),
            _ => Ok(()),
        }
    }

    /// The engine's answer, unless it gave up now or before.
    fn unless_broken<T>(&mut self, result: Result<T, String>) -> Result<T, GrammarError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        result.map_err(|reason| self.broken.insert(failed(reason)).clone())
    }
}

impl Engine {
    /// The tokens that may follow; which of them end the text is for the caller to say.
    fn mask(&mut self) -> Result<SimpleVob, String> {
        match self {
            Self::Lexemes(matcher) => matcher.compute_mask_or_eos().map_err(text_of),
            Self::Bytes(text) => Ok(text.mask()?.as_ref().clone()),
        }
    }

    /// May a token follow that ends no text?
    fn allows(&mut self, token: u32) -> Result<bool, String> {
        match self {
            Self::Lexemes(matcher) => {
                let environment = matcher.tok_env().map_err(text_of)?;
                let known = (token as usize) < environment.tok_trie().vocab_size();
                Ok(known && matcher.validate_tokens(&[token]).map_err(text_of)? == 1)
            }
            Self::Bytes(text) => text.allows(token),
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        match self {
            Self::Lexemes(matcher) => matcher.consume_token(token).map_err(text_of),
            Self::Bytes(text) => text.accept(token),
        }
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        match self {
            Self::Lexemes(matcher) => matcher.rollback(tokens).map_err(text_of),
            Self::Bytes(text) => text.rollback(tokens),
        }
    }

    fn is_accepting(&mut self) -> Result<bool, String> {
        match self {
            Self::Lexemes(matcher) => matcher.is_accepting().map_err(text_of),
            Self::Bytes(text) => Ok(text.is_end()),
        }
    }

    fn is_complete(&self) -> bool {
        match self {
            Self::Lexemes(matcher) => matcher.is_stopped() && matcher.stop_reason().is_ok(),
            Self::Bytes(text) => text.is_end() && !text.goes_on(),
        }
    }
}

fn text_of(error: impl ToString) -> String {
    GrammarError::reason(&error)
}

fn failed(reason: impl Into<String>) -> GrammarError {
    GrammarError::Failed {
        reason: reason.into(),
    }
}
