//! PLaMo 2's tokenizer: of all ways to cut a text into tokens and bytes, the one with the best sum of scores.
//!
//! The text is read from its end. Before each character, the longest beginning of the rest is known with which a
//! token ends. From it, the tokens are found that the rest begins with (Aho and Corasick's automaton).

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter::successors;

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::sentence_piece::decode_byte;
use crate::vocab::{TokenType, Vocab};

/// Scores are counted in parts of one.
const SCALE: f64 = 1e4;
/// The score of a character that is written as bytes.
const BYTES: i32 = -10_000_000;
/// Tokens with this score, or less, are not used.
const UNUSED: i32 = -20_000_000;

const ROOT: u32 = 0;

/// The tokens of one vocabulary.
pub(crate) struct Plamo {
    /// The ends of tokens; the first one is empty.
    ends: Vec<End>,
    /// The end that a character and an end make.
    longer: HashMap<(char, u32), u32>,
    /// The token for each byte.
    bytes: Box<[u32]>,
}

/// A text with which a token ends.
#[derive(Clone, Copy, Default)]
struct End {
    /// The number of its characters.
    length: usize,
    /// The token that it is.
    token: Option<Scored>,
    /// The end to try next: the longest one that this begins with.
    next: Option<u32>,
}

#[derive(Clone, Copy)]
struct Scored {
    id: u32,
    score: i32,
}

/// The best way to cut a text from some place on.
#[derive(Clone, Copy)]
struct Best {
    /// Its cost.
    cost: i64,
    /// The characters of its first token.
    length: usize,
    /// Its first token; none for a character that is written as bytes.
    token: Option<u32>,
}

impl Plamo {
    pub(crate) fn new(metadata: &Metadata, vocab: &Vocab) -> Result<Self, TokenizerError> {
        let scores = vocab.scores(metadata)?;
        let mut plamo = Plamo {
            ends: vec![End::default()],
            longer: HashMap::new(),
            bytes: byte_tokens(vocab)?,
        };
        for (id, text, _) in vocab.iter().filter(|(.., ty)| *ty != TokenType::Byte) {
            let end = text
                .chars()
                .rev()
                .fold(ROOT, |end, char| plamo.add(char, end));
            let score = scaled(scores[id as usize]);
            plamo.ends[end as usize].token = Some(Scored { id, score });
        }
        plamo.link();
        Ok(plamo)
    }

    /// The end that `char` and `rest` make; new if there is none.
    fn add(&mut self, char: char, rest: u32) -> u32 {
        *self.longer.entry((char, rest)).or_insert_with(|| {
            let length = self.ends[rest as usize].length + 1;
            self.ends.push(End {
                length,
                ..End::default()
            });
            self.ends.len() as u32 - 1
        })
    }

    /// Finds the next end of each end, of the shortest first.
    fn link(&mut self) {
        let longer = self.longer.iter();
        let mut ends: Vec<_> = longer
            .map(|(&(char, rest), &end)| (end, char, rest))
            .collect();
        ends.sort_unstable_by_key(|&(end, ..)| self.ends[end as usize].length);
        for &(end, char, rest) in &ends {
            let next = self.ends[rest as usize].next;
            self.ends[end as usize].next = Some(next.map_or(ROOT, |next| self.before(char, next)));
        }
        // llama.cpp takes a token of just this score for the last of its list.
        for end in &mut self.ends {
            end.next = end
                .next
                .filter(|_| end.token.is_none_or(|token| token.score != BYTES));
        }
    }

    /// The longest end that begins with `char` and goes on as `end` does.
    fn before(&self, char: char, mut end: u32) -> u32 {
        loop {
            if let Some(&longer) = self.longer.get(&(char, end)) {
                return longer;
            }
            match self.ends[end as usize].next {
                Some(next) => end = next,
                None => return ROOT,
            }
        }
    }

    /// Appends the ids of `text`. A byte order mark at its beginning is dropped.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut left = text.chars().count();
        let nothing = Best {
            cost: 0,
            length: 0,
            token: None,
        };
        let mut best = vec![nothing; left + 1];
        let mut end = ROOT;
        for char in text.chars().rev() {
            left -= 1;
            end = self.before(char, end);
            best[left] = self.best(end, &best[left + 1..]);
        }

        let mut characters = text.chars();
        let mut at = 0;
        while at < best.len() - 1 {
            let Best { length, token, .. } = best[at];
            at += length;
            let first = characters.next().unwrap_or_default();
            characters.by_ref().take(length - 1).for_each(drop);
            match token {
                Some(id) => ids.push(id),
                None => {
                    let mut utf8 = [0; 4];
                    let bytes = first.encode_utf8(&mut utf8).bytes();
                    ids.extend(bytes.map(|byte| self.bytes[usize::from(byte)]));
                }
            }
        }
    }

    /// The best way to cut what begins with `end`; the ways to cut what is behind its first character are `rest`.
    fn best(&self, end: u32, rest: &[Best]) -> Best {
        let way = |length: usize, token, score| Best {
            cost: rest[length - 1].cost - i64::from(score),
            length,
            token,
        };
        let ends = successors(Some(end), |&end| self.ends[end as usize].next);
        let ways = ends.filter_map(|end| {
            let End { length, token, .. } = self.ends[end as usize];
            match token {
                None if end == ROOT => Some(way(1, None, BYTES)),
                None => None,
                Some(Scored { score, .. }) if score <= UNUSED => None,
                Some(Scored { id, score }) => Some(way(length, Some(id), score)),
            }
        });
        // The first of equals.
        ways.reduce(|best, way| if way.cost < best.cost { way } else { best })
            .unwrap_or(way(1, None, BYTES))
    }
}

/// A score in whole parts. A score that cannot be counted is not used.
fn scaled(score: f32) -> i32 {
    let parts = (f64::from(score) * SCALE).round();
    let range = f64::from(i32::MIN)..=f64::from(i32::MAX);
    if range.contains(&parts) {
        parts as i32
    } else {
        UNUSED
    }
}

/// The token for each byte, all of which must be there.
fn byte_tokens(vocab: &Vocab) -> Result<Box<[u32]>, TokenizerError> {
    let mut tokens = [None; 256];
    for (id, text, _) in vocab.iter().filter(|(.., ty)| *ty == TokenType::Byte) {
        if let Some(byte) = decode_byte(text) {
            tokens[usize::from(byte)] = Some(id);
        }
    }
    let token =
        |(byte, token): (u8, Option<u32>)| token.ok_or(TokenizerError::NoByteToken { byte });
    (0..=255).zip(tokens).map(token).collect()
}

/// The bytes that a token stands for, of whatever type it is.
pub(crate) fn decode(text: &str, ty: TokenType) -> Cow<'_, [u8]> {
    match decode_byte(text).filter(|_| ty == TokenType::Byte) {
        Some(byte) => vec![byte].into(),
        None => text.as_bytes().into(),
    }
}
