//! DRY, "don't repeat yourself" (<https://github.com/oobabooga/text-generation-webui/pull/5677>).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rustorch_tokenizer::{EncodeOptions, Tokenizer};

use super::candidates::Candidates;
use super::definition::Definition;
use super::{Sampler, sampler};

/// Sequence breakers of llama.cpp.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

sampler! {
    /// DRY: penalties on tokens that would continue a repetition.
    Dry: "dry", Some('d');
    /// DRY: penalty multiplier for tokens that extend a repetition; 0 disables it
    dry_multiplier: f32 = 0.0, FINITE, "--dry-multiplier X";
    /// DRY: base; the penalty grows by this factor for each repeated token
    dry_base: f32 = 1.75, AT_LEAST_ONE, "--dry-base X";
    /// DRY: repetitions up to this length are not penalised
    dry_allowed_length: i64 = 2, COUNT, "--dry-allowed-length N";
    /// DRY: number of last tokens to search for repetitions; 0 disables it
    dry_penalty_last_n: i64 = 64, COUNT, "--dry-penalty-last-n N";
    /// DRY: sequence breaker, with escapes such as \n; repeatable; `none` clears the list
    dry_sequence_breakers: Vec<String> = BREAKERS.map(str::to_owned).to_vec(), TEXTS, "--dry-sequence-breaker TEXT";
    bound {
        /// The sequence breakers' tokens.
        breakers: Arc<Breakers>,
    }
}

impl Definition for Dry {
    fn is_on(&self) -> bool {
        self.dry_multiplier != 0.0 && self.dry_penalty_last_n > 0
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(DrySampler::new(self))
    }

    fn bind(&mut self, tokenizer: &Tokenizer) {
        self.breakers = Arc::new(Breakers::new(&self.dry_sequence_breakers, tokenizer));
    }
}

/// Sequence breakers as the tokens that may contain them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakers {
    /// For the token that a text begins in, the tokens that follow it.
    tails: HashMap<u32, Vec<Vec<u32>>>,
}

/// Bytes of a text, and tokens behind its first, that are looked at; llama.cpp's.
const MAX_BYTES: usize = 40;
const MAX_TAIL: usize = 20;

impl Breakers {
    /// The tokens of `tokenizer` that contain these texts. A text may begin and end within tokens.
    pub fn new(texts: &[String], tokenizer: &Tokenizer) -> Self {
        let mut breakers = Self::default();
        for id in 0..tokenizer.vocab_size() as u32 {
            let bytes = match tokenizer.is_control(id) {
                true => tokenizer.token_text(id).map(|text| text.as_bytes().into()),
                false => tokenizer.token_bytes(id),
            };
            let bytes = bytes.unwrap_or_default();
            for text in texts.iter().filter(|text| !text.is_empty()) {
                let text = &text.as_bytes()[..text.len().min(MAX_BYTES)];
                for rest in rests(&bytes, text) {
                    let rest = String::from_utf8_lossy(rest);
                    let mut tail = tokenizer.encode(&rest, EncodeOptions::default());
                    tail.truncate(MAX_TAIL);
                    breakers.add(id, tail);
                }
            }
        }
        breakers
    }

    /// Sequence breakers of these tokens.
    pub fn of_tokens(sequences: &[&[u32]]) -> Self {
        let mut breakers = Self::default();
        for sequence in sequences {
            if let [head, tail @ ..] = sequence {
                breakers.add(*head, tail.to_vec());
            }
        }
        breakers
    }

    fn add(&mut self, head: u32, tail: Vec<u32>) {
        let tails = self.tails.entry(head).or_default();
        if !tails.contains(&tail) {
            tails.push(tail);
        }
    }

    /// Tokens behind the last breaker of a text that is given from its end.
    fn behind(&self, latest: &VecDeque<u32>) -> usize {
        let begins = |i: usize| {
            let follows = |tail: &&Vec<u32>| {
                tail.len() <= i && (0..tail.len()).all(|at| tail[at] == latest[i - at - 1])
            };
            let tails = self.tails.get(&latest[i])?.iter().filter(follows);
            let longest = tails.map(Vec::len).max()?;
            Some(i - longest)
        };
        (0..latest.len()).find_map(begins).unwrap_or(latest.len())
    }

    /// Returns whether this token is a breaker by itself.
    fn has(&self, token: u32) -> bool {
        let tails = self.tails.get(&token);
        tails.is_some_and(|tails| tails.iter().any(Vec::is_empty))
    }
}

/// The rest of `text` after a token in which it begins: nothing, where the token has all of it.
fn rests<'t>(token: &[u8], text: &'t [u8]) -> Vec<&'t [u8]> {
    if token.windows(text.len()).any(|part| part == text) {
        return vec![&[]];
    }
    let begins = |at: usize| text.strip_prefix(&token[at..]);
    (0..token.len()).filter_map(begins).collect()
}

/// Lowers the logits of tokens that would make a repetition longer, the more the longer it is.
struct DrySampler {
    multiplier: f32,
    base: f32,
    allowed_length: usize,
    last_n: usize,
    breakers: Arc<Breakers>,
    /// The last tokens, the latest first.
    latest: VecDeque<u32>,
}

impl DrySampler {
    fn new(options: &Dry) -> Self {
        Self {
            multiplier: options.dry_multiplier,
            base: options.dry_base,
            allowed_length: options.dry_allowed_length as usize,
            last_n: options.dry_penalty_last_n as usize,
            breakers: options.breakers.clone(),
            latest: VecDeque::new(),
        }
    }

    /// Tokens that would continue a repetition, with the length of the longest so far.
    fn continuations(&self) -> HashMap<u32, usize> {
        let mut longest: HashMap<u32, usize> = HashMap::new();
        let limit = self.breakers.behind(&self.latest);
        if self.latest.len() <= self.allowed_length || limit < self.allowed_length {
            return longest;
        }
        let repeats = repeats(&self.latest);
        for (i, repeat) in repeats.into_iter().enumerate().skip(1) {
            let repeat = repeat.min(limit);
            if repeat >= self.allowed_length {
                let length = longest.entry(self.latest[i - 1]).or_default();
                *length = repeat.max(*length);
            }
        }
        longest
    }
}

/// The Z function, in linear time. For each token it is the length of the common beginning of two
/// texts: the one from there on, and the whole. Source: Gusfield 1997,
/// <https://doi.org/10.1017/CBO9780511574931>.
fn repeats(tokens: &VecDeque<u32>) -> Vec<usize> {
    let n = tokens.len();
    let mut same = vec![0; n];
    // The stretch that is known to be the same and reaches farthest.
    let (mut start, mut end) = (0, 0);
    for i in 1..n {
        let known = match i < end {
            true => same[i - start].min(end - i),
            false => 0,
        };
        same[i] = known
            + (known..n - i)
                .take_while(|&k| tokens[k] == tokens[i + k])
                .count();
        if i + same[i] > end {
            (start, end) = (i, i + same[i]);
        }
    }
    same
}

impl Sampler for DrySampler {
    fn apply(&mut self, candidates: &mut Candidates) {
        /// The logarithm of the largest number of 32 bits.
        const MAX_LOG: f32 = 88.722_84;
        let most = match self.base > 1.000_001 {
            true => (MAX_LOG / self.base.ln()) as usize,
            false => usize::MAX,
        };
        for (token, length) in self.continuations() {
            if self.breakers.has(token) {
                continue;
            }
            let exponent = (length - self.allowed_length).min(most) as f64;
            let penalty = f64::from(self.multiplier) * f64::from(self.base).powf(exponent);
            if let Some(candidate) = candidates.of_token(token) {
                candidate.logit -= penalty as f32;
            }
        }
        candidates.sorted = false;
    }

    fn accept(&mut self, token: u32) {
        self.latest.push_front(token);
        self.latest.truncate(self.last_n);
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    fn dry(multiplier: f32, allowed_length: i64, text: &[u32], breakers: &[&[u32]]) -> DrySampler {
        let mut dry = DrySampler::new(&Dry {
            dry_multiplier: multiplier,
            dry_base: 1.1,
            dry_allowed_length: allowed_length,
            dry_penalty_last_n: text.len() as i64,
            breakers: Arc::new(Breakers::of_tokens(breakers)),
            ..Dry::default()
        });
        text.iter().for_each(|&token| dry.accept(token));
        dry
    }

    #[test]
    fn probabilities_are_those_of_llama_cpp() {
        let (even4, even5) = ([0.25; 4], [0.2; 5]);
        check(&mut dry(1.0, 2, &[0, 1], &[]), &even4, &even4);
        check(
            &mut dry(1.0, 2, &[0, 1, 2, 0, 1], &[]),
            &even4,
            &[0.296_923, 0.296_923, 0.109_232, 0.296_923],
        );
        check(
            &mut dry(1.0, 2, &[0, 1, 3, 4, 0, 1], &[&[3]]),
            &even5,
            &even5,
        );
        check(
            &mut dry(2.0, 2, &[0, 1, 2, 0, 1], &[]),
            &even5,
            &[0.241_818, 0.241_818, 0.032_727, 0.241_818, 0.241_818],
        );
        check(
            &mut dry(1.0, 4, &[0, 1, 2, 3, 4, 0, 1], &[]),
            &even5,
            &even5,
        );
    }

    #[test]
    fn repetitions_are_found_as_by_comparing() {
        let mut state = 1_u32;
        for len in 0..60 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 30
            };
            let text: VecDeque<u32> = (0..len).map(|_| next()).collect();
            let found = repeats(&text);
            for i in 1..len {
                let same = (0..len - i).take_while(|&k| text[k] == text[i + k]).count();
                assert_eq!(found[i], same, "{text:?} at {i}");
            }
        }
    }

    #[test]
    fn texts_begin_and_end_within_tokens() {
        let rests = |token: &str, text| {
            let found: Vec<_> = rests(token.as_bytes(), text);
            found
                .iter()
                .map(|rest| String::from_utf8_lossy(rest).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(rests("a:b", b":"), [""]);
        assert_eq!(rests("xx", b"xxy"), ["y", "xy"]);
        assert_eq!(rests("abc", b"d"), [""; 0]);
        assert_eq!(rests("", b"d"), [""; 0]);
    }
}
