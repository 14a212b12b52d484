//! SentencePiece's unigram model: of all ways to cut a text into tokens, the one with the best sum of scores.

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::charsmap::Charsmap;
use crate::cuts::SPACE;
use crate::trie::Trie;
use crate::vocab::{TokenType, Vocab};

/// The score of an unknown character is so much below that of every token.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The unigram model with one vocabulary's scores.
pub(crate) struct Unigram {
    charsmap: Charsmap,
    tokens: Trie,
    /// The tokens that are found in text before this, whose beginnings are not mapped.
    user_defined: Trie,
    /// Scores by token.
    scores: Vec<f32>,
    unknown: Option<u32>,
    unknown_score: f32,
    /// Whether text gets a space in front.
    space_prefix: bool,
    /// Whether spaces become one between words, and none at the end.
    merges_spaces: bool,
}

/// The best way to cut a text up to some place.
#[derive(Clone, Copy)]
struct Best {
    /// The last token.
    token: Option<u32>,
    /// The place at which that token begins.
    from: usize,
    score: f64,
}

impl Unigram {
    pub(crate) fn new(
        metadata: &Metadata,
        vocab: &Vocab,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let flag = |key| metadata.opt_bool(key).map(Option::unwrap_or_default);
        let of_types = |types: &'static [TokenType]| {
            let all = vocab.iter().filter(|(_, _, ty)| types.contains(ty));
            all.map(|(id, text, _)| (text, id))
        };
        let mut scores = vocab.scores(metadata)?;
        let normal = of_types(&[TokenType::Normal]).map(|(_, id)| scores[id as usize]);
        let least = normal.fold(f32::MAX, f32::min);
        for (_, id) in of_types(&[TokenType::UserDefined]) {
            scores[id as usize] = 0.0;
        }
        Ok(Unigram {
            charsmap: Charsmap::from_gguf(metadata)?,
            tokens: Trie::new(of_types(&[
                TokenType::Normal,
                TokenType::UserDefined,
                TokenType::Unused,
            ])),
            user_defined: Trie::new(of_types(&[TokenType::UserDefined])),
            scores,
            unknown,
            unknown_score: least - UNKNOWN_PENALTY,
            space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
            merges_spaces: flag("tokenizer.ggml.remove_extra_whitespaces")?,
        })
    }

    /// Appends the ids of `text`, which begins the input or follows an added token.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let text = self.normalize(text);
        let mut best = vec![
            Best {
                token: self.unknown,
                from: 0,
                score: f64::MIN,
            };
            text.len() + 1
        ];
        best[0].score = 0.0;
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let character = character_length(rest);
            let before = best[at].score;
            let mut offer = |length: usize, token, score| {
                let champion = &mut best[at + length];
                if before + f64::from(score) > champion.score {
                    *champion = Best {
                        token,
                        from: at,
                        score: before + f64::from(score),
                    };
                }
            };
            let mut is_known = false;
            for (length, id) in self.tokens.prefixes(rest) {
                is_known |= length == character;
                offer(length, Some(id), self.scores[id as usize]);
            }
            if !is_known {
                offer(character, self.unknown, self.unknown_score);
            }
            at += character;
        }

        // From the end; unknown characters beside one another are one token.
        let before = ids.len();
        let mut follows_unknown = false;
        while at > 0 {
            let Best { token, from, .. } = best[at];
            let is_unknown = token == self.unknown;
            if !(is_unknown && follows_unknown) {
                ids.extend(token);
            }
            (at, follows_unknown) = (from, is_unknown);
        }
        ids[before..].reverse();
    }

    /// The text with its characters mapped, and spaces as tokens have them. A beginning of a
    /// user-defined token is not mapped, as in llama.cpp. The rest of a character behind one becomes U+FFFD.
    fn normalize(&self, text: &str) -> Vec<u8> {
        let mut normalized = Vec::with_capacity(text.len() + SPACE.len());
        let (mut prefix, mut in_word) = (self.space_prefix, false);
        let mut at = 0;
        while at < text.len() {
            let rest = &text.as_bytes()[at..];
            let (length, mapped) = match self.user_defined.shared(rest) {
                0 => self.charsmap.longest(rest).unwrap_or_else(|| {
                    let character = text.get(at..).and_then(|rest| rest.chars().next());
                    match character.map(char::len_utf8) {
                        Some(length) => (length, &rest[..length]),
                        None => (1, "\u{fffd}".as_bytes()),
                    }
                }),
                length => (length, &rest[..length]),
            };
            for &byte in mapped {
                if byte == b' ' {
                    in_word = false;
                    if !self.merges_spaces {
                        normalized.extend_from_slice(SPACE.as_bytes());
                    }
                    continue;
                }
                if !in_word && (prefix || self.merges_spaces) {
                    normalized.extend_from_slice(SPACE.as_bytes());
                    prefix = false;
                }
                in_word = true;
                normalized.push(byte);
            }
            at += length;
        }
        normalized
    }
}

/// The bytes of the first character, as its first byte says, but not more than there are.
fn character_length(text: &[u8]) -> usize {
    let length = match text[0] {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    length.min(text.len())
}
