//! Byte-level BPE: each word's bytes, written as characters, merged by rank.

use std::collections::HashMap;

use indexmap::IndexSet;
use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::merge::{Join, Merger};
use crate::pre_tokenizer::PreTokenizer;
use crate::splitter::Splitter;
use crate::vocab::Vocab;

const MERGES: &str = "tokenizer.ggml.merges";

/// The character that stands for each byte in a token's text: itself if it is a visible Latin-1
/// character, else the next free one from U+0100 (GPT-2's `bytes_to_unicode`).
pub(crate) const CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let mut free = 0x100;
    let mut byte = 0;
    while byte < 256 {
        chars[byte] = match byte as u8 {
            visible @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => visible as char,
            _ => {
                free += 1;
                match char::from_u32(free - 1) {
                    Some(char) => char,
                    None => unreachable!(),
                }
            }
        };
        byte += 1;
    }
    chars
};

/// The byte that each character stands for: [`CHARS`] turned around.
const BYTES: [Option<u8>; 0x144] = {
    let mut bytes = [None; 0x144];
    let mut byte = 0;
    while byte < 256 {
        bytes[CHARS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    bytes
};

/// The bytes that a token's text stands for. Characters outside the alphabet stand for themselves.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for char in text.chars() {
        match BYTES.get(char as usize) {
            Some(&Some(byte)) => bytes.push(byte),
            _ => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// Byte-level BPE with one vocabulary's merges.
///
/// A symbol is a text that merging can come upon: the tokens by their ids, then those that the
/// merges name although they are no tokens. Such files exist, and llama.cpp merges through them.
pub(crate) struct ByteLevel {
    splitter: Splitter,
    /// Words that are tokens are taken whole.
    whole_words: bool,
    /// The symbol of each single byte.
    bytes: Box<[u32; 256]>,
    merges: HashMap<(u32, u32), Merge>,
    /// What becomes of symbols that are left and are no tokens; see [`ByteLevel::new`].
    leftovers: Vec<Box<[u32]>>,
}

#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    symbol: u32,
}

impl ByteLevel {
    /// Reads the merges of `vocab`.
    ///
    /// Merges that are not two texts with a space between are ignored, as is a pair's second
    /// occurrence. Symbols that are no tokens become the tokens of their ASCII characters, and what
    /// has none is dropped. All three as in llama.cpp.
    pub(crate) fn new(
        metadata: &Metadata,
        vocab: &Vocab,
        pre_tokenizer: &PreTokenizer,
    ) -> Result<Self, TokenizerError> {
        let lines = match metadata.opt_str_array(MERGES)? {
            Some(lines) => lines,
            None if pre_tokenizer.merges_optional => &[],
            None => metadata.str_array(MERGES)?,
        };
        let mut symbols = Symbols {
            vocab,
            others: IndexSet::new(),
        };
        let bytes = CHARS.map(|char| symbols.intern(char.encode_utf8(&mut [0; 4])));

        let mut merges = HashMap::with_capacity(lines.len());
        let mut joined = String::new();
        for (rank, line) in (0..).zip(lines) {
            // The first text may itself begin with a space.
            let mut spaces = line.match_indices(' ').map(|(at, _)| at);
            let Some(space) = spaces.find(|&at| at > 0) else {
                continue;
            };
            let (first, second) = (&line[..space], &line[space + 1..]);
            joined.clear();
            joined.push_str(first);
            joined.push_str(second);
            let pair = (symbols.intern(first), symbols.intern(second));
            let symbol = symbols.intern(&joined);
            merges.entry(pair).or_insert(Merge { rank, symbol });
        }

        let leftovers = symbols.others.iter().map(|text| {
            let ascii = text.char_indices().filter(|(_, char)| char.is_ascii());
            ascii
                .filter_map(|(at, _)| vocab.id(&text[at..=at]))
                .collect()
        });
        Ok(ByteLevel {
            splitter: pre_tokenizer.splitter(),
            whole_words: pre_tokenizer.whole_words,
            bytes: Box::new(bytes),
            merges,
            leftovers: leftovers.collect(),
        })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let mut merger = Merger::default();
        let mut characters = String::new();
        self.splitter.split(text, |word| {
            if self.whole_words {
                characters.clear();
                characters.extend(word.bytes().map(|byte| CHARS[usize::from(byte)]));
                if let Some(id) = vocab.id(&characters) {
                    ids.push(id);
                    return;
                }
            }
            let symbols = word.bytes().map(|byte| self.bytes[usize::from(byte)]);
            let join = |left, right| {
                let &Merge { rank, symbol } = self.merges.get(&(left, right))?;
                Some(Join { rank, symbol })
            };
            for symbol in merger.run(symbols, join) {
                match (symbol as usize).checked_sub(vocab.len()) {
                    None => ids.push(symbol),
                    Some(other) => ids.extend_from_slice(&self.leftovers[other]),
                }
            }
        });
    }
}

/// Numbers for texts: tokens have their ids, others the numbers after them.
struct Symbols<'v> {
    vocab: &'v Vocab,
    others: IndexSet<Box<str>>,
}

impl Symbols<'_> {
    fn intern(&mut self, text: &str) -> u32 {
        if let Some(id) = self.vocab.id(text) {
            return id;
        }
        let other = match self.others.get_index_of(text) {
            Some(other) => other,
            None => self.others.insert_full(text.into()).0,
        };
        (self.vocab.len() + other) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        assert_eq!(CHARS[usize::from(b' ')], 'Ġ');
        assert_eq!(CHARS[usize::from(b'\n')], 'Ċ');
        assert_eq!(CHARS[usize::from(b'A')], 'A');
        assert_eq!(CHARS[0xad], 'Ń');
        let all: String = CHARS.iter().collect();
        assert_eq!(decode(&all), (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn characters_outside_the_alphabet_stand_for_themselves() {
        assert_eq!(decode("Ġ｜end▁"), " ｜end▁".as_bytes());
    }
}
