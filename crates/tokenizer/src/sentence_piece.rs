//! SentencePiece's byte-pair encoding: characters merged by score, bytes for what is not a token.

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::cuts::{Cuts, SPACE};
use crate::merge::{Join, Merger};
use crate::vocab::Vocab;

/// The bytes that the text of a normal token stands for.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    text.replace(SPACE, " ").into_bytes()
}

/// The byte that a byte token such as `<0x0A>` stands for.
pub(crate) fn decode_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let well_formed = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if well_formed {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// The byte token of this byte.
pub(crate) fn byte_token(vocab: &Vocab, byte: u8) -> Option<u32> {
    vocab.id(&format!("<0x{byte:02X}>"))
}

/// SentencePiece BPE with one vocabulary's scores.
pub(crate) struct SentencePiece {
    /// Ranks by token: the highest score has the lowest.
    ranks: Vec<u32>,
    /// Bytes in the longest token.
    longest: usize,
    /// The token for each byte that is in no token.
    bytes: Box<[Option<u32>]>,
    /// Whether text gets a space in front.
    space_prefix: bool,
    /// Places at which text is cut, to be merged in less time.
    cuts: Cuts,
}

impl SentencePiece {
    /// Reads the scores of `vocab`; without them all are equal, as in llama.cpp.
    ///
    /// A byte without a byte token becomes the token of that ASCII character, else `unknown`, else
    /// it is dropped.
    pub(crate) fn new(
        metadata: &Metadata,
        vocab: &Vocab,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let token_of_byte = |byte: u8| {
            let ascii = || {
                byte.is_ascii()
                    .then(|| vocab.id(&char::from(byte).to_string()))
                    .flatten()
            };
            byte_token(vocab, byte).or_else(ascii).or(unknown)
        };
        Ok(SentencePiece {
            ranks: vocab.scores(metadata)?.into_iter().map(rank).collect(),
            longest: vocab
                .iter()
                .map(|(_, text, _)| text.len())
                .max()
                .unwrap_or(0),
            bytes: (0..=255).map(token_of_byte).collect(),
            cuts: Cuts::new(vocab.iter().map(|(_, text, _)| text)),
            space_prefix: metadata
                .opt_bool("tokenizer.ggml.add_space_prefix")?
                .unwrap_or(true),
        })
    }

    /// Appends the ids of `text`, which begins the input or follows an added token.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let prefix = if self.space_prefix { SPACE } else { "" };
        let text = format!("{prefix}{}", text.replace(' ', SPACE));

        let mut merger = Merger::default();
        for part in self.cuts.parts(&text) {
            self.encode_part(vocab, part, &mut merger, ids);
        }
    }

    fn encode_part(
        &self,
        vocab: &Vocab,
        text: &str,
        merger: &mut Merger<Span>,
        ids: &mut Vec<u32>,
    ) {
        let characters = text
            .char_indices()
            .map(|(at, char)| (at, at + char.len_utf8()));
        let join = |(from, _): Span, (_, to): Span| {
            if to - from > self.longest {
                return None;
            }
            let id = vocab.id(&text[from..to])?;
            Some(Join {
                rank: self.ranks[id as usize],
                symbol: (from, to),
            })
        };
        for (from, to) in merger.run(characters, join) {
            match vocab.id(&text[from..to]) {
                Some(id) => ids.push(id),
                None => ids.extend(
                    text[from..to]
                        .bytes()
                        .filter_map(|byte| self.bytes[usize::from(byte)]),
                ),
            }
        }
    }
}

/// The range of a symbol in its text.
type Span = (usize, usize);

/// Turns a score into a rank: numbers that are ordered the other way round.
fn rank(score: f32) -> u32 {
    // NaN comes last, and -0.0 is 0.0.
    let score = if score.is_nan() {
        f32::NEG_INFINITY
    } else {
        score + 0.0
    };
    let bits = score.to_bits();
    if score.is_sign_negative() {
        bits
    } else {
        !bits & (u32::MAX >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_scores_have_lower_ranks() {
        let scores = [
            f32::INFINITY,
            1e9,
            1.0,
            f32::MIN_POSITIVE,
            0.0,
            -1e-9,
            -1.0,
            -1e9,
            f32::NEG_INFINITY,
        ];
        assert!(scores.map(rank).is_sorted_by(|a, b| a < b));
        assert_eq!(rank(0.0), rank(-0.0));
        assert_eq!(rank(f32::NAN), rank(f32::NEG_INFINITY));
    }

    #[test]
    fn byte_tokens_stand_for_their_byte_only_if_well_formed() {
        assert_eq!(decode_byte("<0x0A>"), Some(10));
        assert_eq!(decode_byte("<0xff>"), Some(255));
        for text in ["", "<0x>", "<0x+1>", "<0x100>", "0x0A", "<0xGG>"] {
            assert_eq!(decode_byte(text), None, "{text}");
        }
    }
}
