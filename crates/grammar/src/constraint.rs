//! A text on its way through a grammar.

use std::sync::Arc;

use llguidance::toktrie::SimpleVob;
use llguidance::{Matcher, TokenParser};

use crate::GrammarError;

/// A set of tokens.
#[derive(Clone, Debug)]
pub struct TokenMask(SimpleVob);

impl TokenMask {
    /// Is this token one of them?
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.0.num_set()
    }

    /// Makes the others impossible: of `logits` `[vocab]`, those of tokens that are not in the set
    /// become −∞. A model may have more logits than its vocabulary has tokens.
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

/// A text that is held to its form: says which tokens may come, and learns which did.
///
/// After an error every other call fails, too: a constraint that broke never lets tokens pass.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    /// Tokens that end a text, wherever a grammar has them.
    ends: Arc<[u32]>,
    /// Those of the tokens so far, once asked for.
    mask: Option<TokenMask>,
    /// Whether the last token ended the text.
    ended: bool,
}

impl Constraint {
    pub(crate) fn new(parser: TokenParser, ends: Arc<[u32]>) -> Self {
        Self {
            matcher: Matcher::new(Ok(parser)),
            ends,
            mask: None,
            ended: false,
        }
    }

    /// The tokens that may come next: there is at least one. Those that end the text are among
    /// them where it may end, and only there.
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if the engine gives up, no token of the vocabulary continues the
    /// text, or a token ended it.
    pub fn mask(&mut self) -> Result<&TokenMask, GrammarError> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => self.compute_mask()?,
        };
        Ok(self.mask.insert(mask))
    }

    fn compute_mask(&mut self) -> Result<TokenMask, GrammarError> {
        if self.ended {
            return Err(failed("it has ended"));
        }
        let mut mask = self.matcher.compute_mask_or_eos().map_err(failed)?;
        // A grammar may name such a token, or any token; the text would be over all the same.
        if !self.is_accepting()? {
            self.ends.iter().for_each(|&end| mask.disallow_token(end));
        }
        match mask.is_zero() {
            true => Err(failed("no token continues the text")),
            false => Ok(TokenMask(mask)),
        }
    }

    /// May this token come next? The same as asking [`Self::mask`], mostly without making one.
    ///
    /// # Errors
    /// As [`Self::mask`].
    pub fn allows(&mut self, token: u32) -> Result<bool, GrammarError> {
        if let Some(mask) = &self.mask {
            return Ok(mask.allows(token));
        }
        if self.ended {
            return Err(failed("it has ended"));
        }
        if self.ends.contains(&token) {
            return self.is_accepting();
        }
        let environment = self.matcher.tok_env().map_err(failed)?;
        let known = (token as usize) < environment.tok_trie().vocab_size();
        Ok(known && self.matcher.validate_tokens(&[token]).map_err(failed)? == 1)
    }

    /// Adds a token to the text.
    ///
    /// # Errors
    /// [`GrammarError::Token`] if it may not come next, and those of [`Self::mask`].
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        if !self.allows(token)? {
            return Err(GrammarError::Token { token });
        }
        self.mask = None;
        self.ended = self.ends.contains(&token);
        match self.ended {
            true => Ok(()),
            false => self.matcher.consume_token(token).map_err(failed),
        }
    }

    /// Takes the last `tokens` tokens back.
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if there were fewer.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        if tokens == 0 {
            return Ok(());
        }
        self.mask = None;
        let ends = usize::from(std::mem::take(&mut self.ended));
        self.matcher.rollback(tokens - ends).map_err(failed)
    }

    /// May the text end here?
    ///
    /// # Errors
    /// [`GrammarError::Failed`] if the engine gave up.
    pub fn is_accepting(&mut self) -> Result<bool, GrammarError> {
        Ok(self.is_complete() || self.matcher.is_accepting().map_err(failed)?)
    }

    /// Is the text at its end, with nothing that could follow?
    pub fn is_complete(&self) -> bool {
        self.ended || (self.matcher.is_stopped() && self.matcher.stop_reason().is_ok())
    }
}

fn failed(error: impl ToString) -> GrammarError {
    GrammarError::Failed {
        reason: GrammarError::reason(&error),
    }
}
