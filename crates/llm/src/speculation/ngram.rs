//! Drafts from the text itself: the continuation after an earlier occurrence of the last tokens.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::Draft;
use crate::LlmError;

/// Looks up the last `n` tokens in the text so far. Drafts the tokens that followed their last
/// occurrence (Saxena 2023, "Prompt Lookup Decoding"; llama.cpp's `ngram-simple`).
pub struct NgramDraft {
    n: usize,
    /// The text that is looked up in, but for its end.
    text: Vec<u32>,
    hasher: RandomState,
    /// The end of the latest `n` tokens with this hash.
    ends: HashMap<u64, usize>,
}

impl NgramDraft {
    /// Looks up `n` tokens, at least one.
    pub fn new(n: usize) -> Self {
        Self {
            n: n.max(1),
            text: Vec::new(),
            hasher: RandomState::new(),
            ends: HashMap::new(),
        }
    }

    /// Makes the index one of all n-grams of `tokens` but the last.
    fn index(&mut self, tokens: &[u32]) {
        let before = tokens.len().saturating_sub(1);
        if !tokens[..before].starts_with(&self.text) {
            self.text.clear();
            self.ends.clear();
        }
        let known = self.text.len();
        self.text.extend_from_slice(&tokens[known..before]);
        for end in (known + 1).max(self.n)..=before {
            let hash = self.hasher.hash_one(&self.text[end - self.n..end]);
            self.ends.insert(hash, end);
        }
    }
}

impl Draft for NgramDraft {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>, LlmError> {
        self.index(tokens);
        let Some(first) = tokens.len().checked_sub(self.n) else {
            return Ok(Vec::new());
        };
        let last = &tokens[first..];
        let found = self.ends.get(&self.hasher.hash_one(last));
        // Others may have the same hash.
        let Some(&end) = found.filter(|&&end| tokens[end - self.n..end] == *last) else {
            return Ok(Vec::new());
        };
        // A text that repeats itself is guessed to go on so, also beyond its end.
        let period = tokens.len() - end;
        Ok((0..max).map(|i| tokens[end + i % period]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn propose(draft: &mut NgramDraft, tokens: &[u32], max: usize) -> Vec<u32> {
        draft.propose(tokens, max).unwrap()
    }

    #[test]
    fn what_followed_last_is_guessed() {
        let mut draft = NgramDraft::new(2);
        let text = [1, 2, 3, 4, 1, 2, 5, 6, 1, 2];
        assert_eq!(propose(&mut draft, &text, 3), [5, 6, 1]);
        assert_eq!(propose(&mut draft, &text[..6], 2), [3, 4]);
        assert!(propose(&mut draft, &text[..5], 2).is_empty());
    }

    #[test]
    fn what_repeats_itself_goes_on() {
        let mut draft = NgramDraft::new(3);
        assert_eq!(propose(&mut draft, &[9, 1, 2, 1, 2, 1], 5), [2, 1, 2, 1, 2]);
        assert_eq!(propose(&mut draft, &[7, 7, 7, 7], 3), [7, 7, 7]);
    }

    #[test]
    fn short_texts_say_nothing() {
        let mut draft = NgramDraft::new(3);
        for text in [&[] as &[u32], &[1], &[1, 1], &[1, 1, 1]] {
            assert!(propose(&mut draft, text, 4).is_empty(), "{text:?}");
        }
        assert!(propose(&mut draft, &[1; 4], 0).is_empty());
    }

    /// Token by token, and after parts were forgotten, as anew.
    #[test]
    fn the_index_follows_the_text() {
        let text: Vec<u32> = (0..400u32).map(|i| i * i % 7 + i % 2).collect();
        let mut growing = NgramDraft::new(3);
        for len in (1..=text.len()).chain([250, 251, 40, 400]) {
            let anew = propose(&mut NgramDraft::new(3), &text[..len], 4);
            assert_eq!(propose(&mut growing, &text[..len], 4), anew, "{len}");
        }
        // A full context shifts the text like this.
        let shifted = [&text[..4], &text[200..]].concat();
        let anew = propose(&mut NgramDraft::new(3), &shifted, 4);
        assert_eq!(propose(&mut growing, &shifted, 4), anew);
        assert!(!anew.is_empty());
    }
}
