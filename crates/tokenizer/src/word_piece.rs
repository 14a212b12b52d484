//! BERT's tokenizer: words without accents and capitals, then the longest piece of each word again and again.

use regex_automata::meta::Regex;
use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::cuts::SPACE;
use crate::normalizer::Normalizer;
use crate::splitter::compile;
use crate::trie::Trie;
use crate::vocab::Vocab;

// Literals, where constants will not do, for `concat!`.

macro_rules! dropped {
    () => {
        r"\x00\x{FFFD}[\p{Cc}\p{Cf}\p{Co}--\s]"
    };
}

/// Punctuation and Chinese. llama.cpp's range from U+2B920 is meant to be one from U+2B820.
macro_rules! alone {
    () => {
        concat!(
            r"\p{P}$+<=>^`|~\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0002A6DF",
            r"\U0002A700-\U0002B81F\U0002B920-\U0002CEAF\U0002F800-\U0002FA1F"
        )
    };
}

const DROPPED: &str = concat!("[", dropped!(), "]");
const DROPPED_WITH_ACCENTS: &str = concat!("[", dropped!(), r"\p{M}]");
const WORD: &str = concat!("[", alone!(), r"]|[^\s", alone!(), "]+");

/// WordPiece with one vocabulary's tokens.
pub(crate) struct WordPiece {
    normalizer: Normalizer,
    dropped: Regex,
    word: Regex,
    tokens: Trie,
    /// The token for a word that is not made of tokens.
    unknown: Option<u32>,
}

impl WordPiece {
    pub(crate) fn new(
        metadata: &Metadata,
        vocab: &Vocab,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let normalizer = Normalizer::from_gguf(metadata, true)?;
        let dropped = match normalizer.strip_accents {
            true => DROPPED_WITH_ACCENTS,
            false => DROPPED,
        };
        Ok(WordPiece {
            normalizer,
            dropped: compile(&[dropped]),
            word: compile(&[WORD]),
            tokens: Trie::new(vocab.iter().map(|(id, text, _)| (text, id))),
            unknown,
        })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let text = self.normalizer.apply(text);
        let mut kept = String::with_capacity(text.len());
        let mut from = 0;
        for dropped in self.dropped.find_iter(&text) {
            kept.push_str(&text[from..dropped.start()]);
            from = dropped.end();
        }
        kept.push_str(&text[from..]);

        let mut word = String::new();
        for found in self.word.find_iter(&kept) {
            word.clear();
            word.push_str(SPACE);
            word.push_str(&kept[found.range()]);
            self.encode_word(&word, ids);
        }
    }

    fn encode_word(&self, word: &str, ids: &mut Vec<u32>) {
        let before = ids.len();
        let mut rest = word.as_bytes();
        while !rest.is_empty() {
            let Some((length, id)) = self.tokens.longest(rest) else {
                ids.truncate(before);
                ids.extend(self.unknown);
                return;
            };
            ids.push(id);
            rest = &rest[length..];
        }
    }
}
