//! Infill: for models that fill a gap in a text, with other samplers before it that leave few
//! candidates (llama.cpp's `llama_sampler_infill_apply`).

use std::borrow::Cow;
use std::sync::Arc;

use rustorch_tokenizer::Tokenizer;

use super::candidates::{Candidate, Candidates};
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Tokens that fill a gap in a text.
    Infill: "infill", Some('i');
    bound {
        /// The token texts.
        tokens: Option<Arc<InfillTokens>>,
    }
}

impl Definition for Infill {
    fn is_on(&self) -> bool {
        true
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(InfillSampler(self.tokens.clone().unwrap_or_default()))
    }

    fn bind(&mut self, tokenizer: &Tokenizer) {
        self.tokens = Some(Arc::new(InfillTokens::new(tokenizer)));
    }

    fn lacks_vocabulary(&self) -> bool {
        self.tokens.is_none()
    }
}

/// Token texts for [`Infill`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfillTokens {
    pieces: Vec<Vec<u8>>,
    ends: Vec<u32>,
    /// The token that ends a text if nothing else is likely enough.
    end: Option<u32>,
}

impl InfillTokens {
    /// The tokens of `tokenizer`.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let ids = 0..tokenizer.vocab_size() as u32;
        let piece = |id| tokenizer.token_bytes(id).map(Cow::into_owned);
        let ends: Vec<u32> = ids
            .clone()
            .filter(|&id| tokenizer.is_end_of_generation(id))
            .collect();
        Self {
            pieces: ids.map(|id| piece(id).unwrap_or_default()).collect(),
            end: tokenizer
                .eot()
                .or(tokenizer.eos())
                .or(ends.first().copied()),
            ends,
        }
    }

    fn is_end(&self, candidate: &Candidate) -> bool {
        self.ends.contains(&candidate.id)
    }

    fn piece(&self, candidate: &Candidate) -> &[u8] {
        self.pieces
            .get(candidate.id as usize)
            .map_or(&[], |piece| piece)
    }
}

/// Ends the text if that is likely. Otherwise merges candidates that share a prefix, and keeps the likely ones.
struct InfillSampler(Arc<InfillTokens>);

/// Less likely candidates are left out, unless they end the text.
const LIKELY: f32 = 0.2;

impl InfillSampler {
    /// Adds the probability of each candidate to another that begins with it or it with that: the
    /// likelier one of both stays.
    fn join(&self, entries: &mut [Candidate]) {
        for first in 0..entries.len() {
            for second in 0..entries.len() {
                if entries[first].logit == f32::NEG_INFINITY {
                    break;
                }
                let (a, b) = (&entries[first], &entries[second]);
                let (begin, whole) = (self.0.piece(a), self.0.piece(b));
                let possible = first != second && b.logit != f32::NEG_INFINITY;
                if !possible || begin.is_empty() || !whole.starts_with(begin) {
                    continue;
                }
                let (to, from) = match b.p > a.p {
                    true => (second, first),
                    false => (first, second),
                };
                entries[to].p += entries[from].p;
                entries[from].logit = f32::NEG_INFINITY;
                entries[from].p = 0.0;
            }
        }
    }

    fn keep_likely(&self, entries: &mut Vec<Candidate>, least: f32) {
        entries.retain(|entry| entry.p >= least || self.0.is_end(entry));
    }
}

impl Sampler for InfillSampler {
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.sort_head(candidates.entries.len());
        candidates.softmax();
        let entries = &mut candidates.entries;
        let (mut text, mut end) = (0.0_f32, 0.0_f32);
        for entry in entries.iter() {
            *(if self.0.is_end(entry) {
                &mut end
            } else {
                &mut text
            }) += entry.p;
        }
        if 3.0 * end * entries.len() as f32 > text {
            entries.retain(|entry| self.0.is_end(entry));
            return;
        }
        self.join(entries);
        let best = entries[0];
        self.keep_likely(entries, LIKELY);
        let others = entries.iter().filter(|entry| !self.0.is_end(entry)).count();
        if others == 0 {
            entries.clear();
            entries.push(Candidate {
                id: self.0.end.unwrap_or(best.id),
                ..best
            });
            return;
        }
        let sum = entries.iter().fold(0.0_f32, |sum, entry| sum + entry.p);
        entries.iter_mut().for_each(|entry| entry.p /= sum);
        self.keep_likely(entries, 1.0 / (others + 1) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::from_probabilities;
    use super::*;

    fn left(probabilities: &[f32]) -> Vec<u32> {
        let pieces = ["", "a", "ab", "b", "c"].map(|piece| piece.as_bytes().to_vec());
        let tokens = InfillTokens {
            pieces: pieces.to_vec(),
            ends: vec![0],
            end: Some(0),
        };
        let mut candidates = from_probabilities(probabilities);
        InfillSampler(Arc::new(tokens)).apply(&mut candidates);
        candidates.entries.iter().map(|entry| entry.id).collect()
    }

    #[test]
    fn a_likely_end_is_the_end() {
        assert_eq!(left(&[0.2, 0.2, 0.2, 0.2, 0.2]), [0]);
    }

    /// "a" and "ab" are one with 0.55, "b" is not as likely as it has to be.
    #[test]
    fn beginnings_are_joined() {
        assert_eq!(left(&[0.01, 0.25, 0.30, 0.24, 0.20]), [2, 0]);
    }

    #[test]
    fn where_nothing_is_likely_the_text_ends() {
        let even = [0.0, 0.19, 0.01, 0.19, 0.19];
        let pieces = (0..8_u8).map(|piece| vec![b'a' + piece]).collect();
        let tokens = InfillTokens {
            pieces,
            ends: vec![],
            end: Some(7),
        };
        let mut candidates = from_probabilities(&[&even[..], &[0.14; 3]].concat());
        InfillSampler(Arc::new(tokens)).apply(&mut candidates);
        assert_eq!(candidates.entries.len(), 1);
        assert_eq!(candidates.entries[0].id, 7);
    }
}
