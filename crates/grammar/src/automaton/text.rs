//! A text that is read byte by byte.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llguidance::toktrie::SimpleVob;

use super::masks::Masks;
use super::states::{NOTHING, StateId, TooComplex};
use crate::network::Network;
use crate::trie::Trie;

/// States of this size are left behind, and those of the text made anew, unless it has many itself.
const MAX_SIZE: usize = 16 << 20;

/// A text that is held to a network, with the states that it went through.
#[derive(Clone)]
pub(crate) struct Text {
    network: Arc<Network>,
    trie: Arc<Trie>,
    /// Clones share them.
    masks: Arc<Mutex<Masks>>,
    tokens: Vec<u32>,
    /// States of the text, one more than tokens.
    path: Vec<StateId>,
    /// The size at which states are left behind.
    max_size: usize,
}

impl Text {
    /// The empty text.
    pub(crate) fn new(network: Network, trie: Arc<Trie>) -> Result<Self, String> {
        let network = Arc::new(network);
        let mut text = Self {
            masks: Arc::new(Mutex::new(Masks::new(network.clone(), trie.clone()))),
            network,
            trie,
            tokens: Vec::new(),
            path: Vec::new(),
            max_size: MAX_SIZE,
        };
        text.renew()?;
        Ok(text)
    }

    /// The tokens that may follow.
    pub(crate) fn mask(&mut self) -> Result<Arc<SimpleVob>, String> {
        if self.masks().states.size() > self.max_size {
            self.renew()?;
        }
        let state = self.state();
        self.masks().mask(state).map_err(reason)
    }

    /// Does a token continue the text?
    pub(crate) fn allows(&mut self, token: u32) -> Result<bool, String> {
        Ok(self.step(token)? != NOTHING)
    }

    /// Adds a token that continues the text.
    pub(crate) fn accept(&mut self, token: u32) -> Result<(), String> {
        let next = self.step(token)?;
        self.tokens.push(token);
        self.path.push(next);
        Ok(())
    }

    /// Takes the last `tokens` tokens back, which have to exist.
    pub(crate) fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        let left = self.tokens.len().checked_sub(tokens);
        let left = left.ok_or_else(|| format!("it has fewer than {tokens} tokens"))?;
        self.tokens.truncate(left);
        self.path.truncate(left + 1);
        Ok(())
    }

    /// May the text end here?
    pub(crate) fn is_end(&self) -> bool {
        self.masks().states.is_end(self.state())
    }

    /// Returns whether anything may follow.
    pub(crate) fn goes_on(&self) -> bool {
        self.masks().states.goes_on(self.state())
    }

    fn state(&self) -> StateId {
        self.path.last().copied().unwrap_or(NOTHING)
    }

    fn step(&mut self, token: u32) -> Result<StateId, String> {
        let text = self.trie.text(token);
        let mut masks = self.masks();
        masks
            .states
            .step_token(self.state(), token, text)
            .map_err(reason)
    }

    /// State that changes as a whole: a panic leaves it as it was.
    fn masks(&self) -> MutexGuard<'_, Masks> {
        self.masks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes through the text anew, with its own states.
    fn renew(&mut self) -> Result<(), String> {
        let mut masks = Masks::new(self.network.clone(), self.trie.clone());
        let start = masks.states.start().map_err(reason)?;
        self.path = vec![start];
        for &token in &self.tokens {
            let state = self.state();
            let text = self.trie.text(token);
            let next = masks
                .states
                .step_token(state, token, text)
                .map_err(reason)?;
            self.path.push(next);
        }
        self.max_size = MAX_SIZE.max(2 * masks.states.size());
        self.masks = Arc::new(Mutex::new(masks));
        Ok(())
    }
}

fn reason(_: TooComplex) -> String {
    "there are too many ways to read it".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gbnf::to_network;
    use crate::network::of_regex;
    use crate::{Piece, Vocabulary};

    #[test]
    fn states_made_anew_are_the_same_text() {
        let words: [&[u8]; 5] = [b"a", b"b", b"ab", b"aab", b"-"];
        let trie = Arc::new(Trie::new(words.into_iter(), |_| true));
        let network = of_regex("(ab|a-){1,5}b?").unwrap();
        let mut text = Text::new(network, trie).unwrap();
        let mut other = text.clone();
        for token in [2, 0, 4, 2, 1] {
            // With this limit, the next mask makes all states anew.
            text.max_size = 0;
            assert_eq!(text.mask(), other.mask());
            assert!(text.allows(token).unwrap());
            text.accept(token).unwrap();
            other.accept(token).unwrap();
        }
        assert!(text.is_end() && !text.goes_on());
        text.max_size = 0;
        assert!(text.mask().unwrap().is_zero());
        text.rollback(1).unwrap();
        other.rollback(1).unwrap();
        assert_eq!(text.mask(), other.mask());
        assert!(text.is_end() && text.goes_on());
        assert!(text.rollback(5).is_err());
    }

    #[test]
    fn long_texts_need_no_more_states() {
        let bytes: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let trie = Arc::new(Trie::new(bytes.iter().map(Vec::as_slice), |_| true));
        let pieces = [Piece::Control("<|end|>".to_owned())];
        let vocabulary = Vocabulary::from_pieces(&pieces, &[0]).unwrap();
        for (grammar, again) in [
            (
                r#"root ::= "[" value ("," value)* "]"
                value ::= root | [0-9]+"#,
                "[[1],[22,[3]]],",
            ),
            (
                r#"root ::= root "+" root | "(" root ")" | [a-z]"#,
                "(a+(b)+c)+",
            ),
            (
                r#"root ::= a "."
                a ::= [a-z] b
                b ::= (" " a | "(" a ")" a | "," a)?"#,
                "a(b c)d,",
            ),
        ] {
            let network = to_network(grammar, &vocabulary);
            let mut text = Text::new(network.unwrap(), trie.clone()).unwrap();
            let first = if again.starts_with("[[") { "[" } else { "" };
            for byte in first.bytes() {
                text.accept(byte.into()).unwrap();
            }
            let mut sizes = Vec::new();
            for _ in 0..200 {
                for byte in again.bytes() {
                    text.mask().unwrap();
                    assert!(text.allows(byte.into()).unwrap(), "{grammar}");
                    text.accept(byte.into()).unwrap();
                }
                sizes.push(text.masks().states.size());
            }
            assert_eq!(sizes[10], sizes[199], "{grammar}");
        }
    }
}
