//! Byte-pair encoding: the characters of each word merged by rank.

use std::borrow::Cow;
use std::collections::HashMap;

use indexmap::IndexSet;
use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::byte_level::{self, CHARS};
use crate::cuts::{Cuts, SPACE};
use crate::merge::{Join, Merger};
use crate::pre_tokenizer::{PreTokenizer, Spelling, WholeWords};
use crate::sentence_piece;
use crate::splitter::Splitter;
use crate::vocab::Vocab;

const MERGES: &str = "tokenizer.ggml.merges";

/// Byte-pair encoding with one vocabulary's merges.
///
/// A symbol is a text that merging can come upon: the tokens by their ids, then those that the
/// merges name although they are not tokens. Such files exist, and llama.cpp merges through them.
pub(crate) struct Bpe {
    splitter: Splitter,
    whole_words: WholeWords,
    letters: Letters,
    merges: HashMap<(u32, u32), Merge>,
    /// The handling of symbols that are left and are not tokens; see [`Bpe::new`].
    leftovers: Vec<Box<[u32]>>,
}

/// The symbols that words consist of before they are merged.
enum Letters {
    /// Bytes, each as a character: the symbol of each.
    Bytes(Box<[u32; 256]>),
    /// Characters.
    Characters {
        /// The symbols of those that are in some token or merge. Others have the numbers after all symbols.
        symbols: HashMap<char, u32>,
        /// The token for each byte of the others.
        bytes: Box<[Option<u32>]>,
        /// Places at which words are cut, to be merged in less time.
        cuts: Cuts,
        /// Whether a space is written as [`SPACE`].
        escapes_spaces: bool,
    },
}

#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    symbol: u32,
}

impl Bpe {
    /// Reads the merges of `vocab`.
    ///
    /// Merges that are not two texts with a space between are ignored, as is a pair's second
    /// occurrence. Symbols that are not tokens become the tokens of their bytes, and what
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

        let letters = match pre_tokenizer.spelling {
            Spelling::Bytes => Letters::Bytes(Box::new(
                CHARS.map(|char| symbols.intern(char.encode_utf8(&mut [0; 4]))),
            )),
            Spelling::Characters { escapes_spaces } => Letters::Characters {
                symbols: symbols.of_characters(),
                bytes: (0..=255)
                    .map(|byte| sentence_piece::byte_token(vocab, byte))
                    .collect(),
                cuts: Cuts::new(symbols.texts()),
                escapes_spaces,
            },
        };
        let leftovers = symbols
            .others
            .iter()
            .map(|text| letters.leftover(vocab, text));
        Ok(Bpe {
            splitter: pre_tokenizer.splitter(),
            whole_words: pre_tokenizer.whole_words,
            leftovers: leftovers.collect(),
            letters,
            merges,
        })
    }

    /// The text as [`encode`](Self::encode) takes it.
    pub(crate) fn escape<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.letters {
            Letters::Characters {
                escapes_spaces: true,
                ..
            } => text.replace(' ', SPACE).into(),
            _ => text.into(),
        }
    }

    /// Appends the ids of `text`, which is escaped.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let mut merger = Merger::default();
        let mut characters = String::new();
        self.splitter.split(text, |word| {
            if let Some(id) = self.whole_word(vocab, word, &mut characters) {
                ids.push(id);
                return;
            }
            match &self.letters {
                Letters::Bytes(bytes) => {
                    let symbols = word.bytes().map(|byte| bytes[usize::from(byte)]);
                    self.merge(vocab, symbols, &mut merger, ids);
                }
                Letters::Characters { symbols, cuts, .. } => {
                    let others = (vocab.len() + self.leftovers.len()) as u32;
                    let symbol = |char| {
                        let known = symbols.get(&char).copied();
                        known.unwrap_or_else(|| others.saturating_add(char.into()))
                    };
                    for part in cuts.parts(word) {
                        self.merge(vocab, part.chars().map(symbol), &mut merger, ids);
                    }
                }
            }
        });
    }

    /// The token that a word is, if it is taken whole.
    fn whole_word(&self, vocab: &Vocab, word: &str, characters: &mut String) -> Option<u32> {
        let takes = match self.whole_words {
            WholeWords::Never => false,
            WholeWords::LineEnds => word.starts_with('\n'),
            WholeWords::Always => true,
        };
        if !takes {
            return None;
        }
        match self.letters {
            Letters::Characters { .. } => vocab.id(word),
            Letters::Bytes(_) => {
                characters.clear();
                characters.extend(word.bytes().map(|byte| CHARS[usize::from(byte)]));
                vocab.id(characters)
            }
        }
    }

    fn merge(
        &self,
        vocab: &Vocab,
        symbols: impl Iterator<Item = u32>,
        merger: &mut Merger<u32>,
        ids: &mut Vec<u32>,
    ) {
        let join = |left, right| {
            let &Merge { rank, symbol } = self.merges.get(&(left, right))?;
            Some(Join { rank, symbol })
        };
        for symbol in merger.run(symbols, join) {
            match (symbol as usize).checked_sub(vocab.len()) {
                None => ids.push(symbol),
                Some(other) => match self.leftovers.get(other) {
                    Some(leftover) => ids.extend_from_slice(leftover),
                    None => self.spell(other - self.leftovers.len(), ids),
                },
            }
        }
    }

    /// Appends the byte tokens of a character that is in no token and no merge.
    fn spell(&self, char: usize, ids: &mut Vec<u32>) {
        let char = u32::try_from(char).ok().and_then(char::from_u32);
        if let (Letters::Characters { bytes, .. }, Some(char)) = (&self.letters, char) {
            let mut utf8 = [0; 4];
            let utf8 = char.encode_utf8(&mut utf8).bytes();
            ids.extend(utf8.filter_map(|byte| bytes[usize::from(byte)]));
        }
    }

    /// The bytes that a normal token of this text stands for.
    pub(crate) fn decode<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
        match self.letters {
            Letters::Bytes(_) => byte_level::decode(text).into(),
            Letters::Characters {
                escapes_spaces: true,
                ..
            } => sentence_piece::decode(text).into(),
            Letters::Characters { .. } => text.as_bytes().into(),
        }
    }
}

impl Letters {
    /// The tokens of a symbol that is not a token: those of its bytes, as far as there are any.
    fn leftover(&self, vocab: &Vocab, text: &str) -> Box<[u32]> {
        match self {
            Letters::Bytes(_) => {
                let ascii = text.char_indices().filter(|(_, char)| char.is_ascii());
                ascii
                    .filter_map(|(at, _)| vocab.id(&text[at..=at]))
                    .collect()
            }
            Letters::Characters { bytes, .. } => text
                .bytes()
                .filter_map(|byte| bytes[usize::from(byte)])
                .collect(),
        }
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

    /// The texts, in order of their numbers.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let others = self.others.iter().map(|text| &**text);
        self.vocab.keys().chain(others)
    }

    /// The numbers of single characters.
    fn of_characters(&self) -> HashMap<char, u32> {
        let single = |(number, text): (u32, &str)| {
            let mut chars = text.chars();
            let char = chars.next()?;
            chars.next().is_none().then_some((char, number))
        };
        (0..).zip(self.texts()).filter_map(single).collect()
    }
}
