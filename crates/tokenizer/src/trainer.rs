//! Making a vocabulary: byte-level BPE trained on text.
//!
//! The algorithm, and its ties, are those of Hugging Face's `tokenizers` (`models/bpe/trainer.rs`). So the same text
//! gives the same merges and the same ids: the most frequent pair is merged first. Ties go to the pair with the
//! smallest ids.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::byte_level::CHARS;
use crate::pre_tokenizer::PreTokenizer;
use crate::splitter::Splitter;
use crate::vocab::TokenType;

/// The pre-tokenizer that cuts the text into words: GPT-2's.
const PRE_TOKENIZER: &str = "gpt-2";

const BEGIN_OF_TEXT: &str = "<|begin_of_text|>";
const END_OF_TEXT: &str = "<|end_of_text|>";
/// The tokens that stand for no text, which have the first ids.
const CONTROL: [&str; 2] = [BEGIN_OF_TEXT, END_OF_TEXT];

/// Trains a vocabulary of byte-level BPE: counts the words of all texts, then merges pairs.
///
/// ```
/// use rustorch_gguf::Metadata;
/// use rustorch_tokenizer::{BpeTrainer, EncodeOptions, Tokenizer};
///
/// let mut trainer = BpeTrainer::new(260)?;
/// trainer.feed("the cat, the hat\n");
/// let vocab = trainer.train();
/// assert_eq!(vocab.merges(), ["a t", "h e"].map(str::to_owned));
///
/// let mut metadata = Metadata::new();
/// vocab.describe(&mut metadata);
/// let tokenizer = Tokenizer::from_gguf(&metadata)?;
/// let ids = tokenizer.encode("the hat", EncodeOptions::default());
/// assert_eq!(tokenizer.decode(&ids), "the hat");
/// # Ok::<(), rustorch_tokenizer::TokenizerError>(())
/// ```
pub struct BpeTrainer {
    vocab_size: usize,
    splitter: Splitter,
    /// How often each word occurs.
    words: HashMap<Box<str>, u64>,
}

impl BpeTrainer {
    /// The smallest vocabulary: all bytes, and the tokens that begin and end a text.
    pub const MIN_VOCAB: usize = CONTROL.len() + CHARS.len();

    /// A trainer of a vocabulary with at most this many tokens.
    ///
    /// # Errors
    /// Fails for a size below [`Self::MIN_VOCAB`].
    pub fn new(vocab_size: usize) -> Result<Self, TokenizerError> {
        if vocab_size < Self::MIN_VOCAB {
            return Err(TokenizerError::VocabTooSmall {
                size: vocab_size,
                least: Self::MIN_VOCAB,
            });
        }
        Ok(Self {
            vocab_size,
            splitter: PreTokenizer::named(PRE_TOKENIZER)?.splitter(),
            words: HashMap::new(),
        })
    }

    /// Counts the words of a text, line by line. Split long texts at white space that follows no
    /// other white space, as [`TextPieces`](crate::TextPieces) does: then the words are the same.
    pub fn feed(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            self.splitter.split(line, |word| {
                // Most words are known, and need no memory.
                match self.words.get_mut(word) {
                    Some(count) => *count += 1,
                    None => {
                        self.words.insert(word.into(), 1);
                    }
                }
            });
        }
    }

    /// Merges the most frequent pairs until the vocabulary is full, or no pair is left.
    pub fn train(self) -> BpeVocab {
        let mut alphabet = CHARS;
        alphabet.sort_unstable();
        let mut vocab = BpeVocab {
            tokens: CONTROL.map(str::to_owned).to_vec(),
            merges: Vec::new(),
        };
        vocab.tokens.extend(alphabet.map(String::from));
        let first = CONTROL.len() as u32;
        let id_of_byte = |byte: u8| {
            let place = alphabet.binary_search(&CHARS[usize::from(byte)]);
            first + place.unwrap_or_default() as u32
        };
        let words = self.words.iter().map(|(text, &count)| Word {
            symbols: text.bytes().map(id_of_byte).collect(),
            count,
        });
        let mut pairs = Pairs::new(words.collect());
        let mut ids: HashMap<String, u32> = (0..)
            .zip(&vocab.tokens)
            .map(|(id, t)| (t.clone(), id))
            .collect();
        // A pair whose parts came to be in several ways is merged more than once; its last place counts.
        let mut ranks: HashMap<Pair, usize> = HashMap::new();
        let mut merges = Vec::new();
        while vocab.tokens.len() < self.vocab_size {
            let Some((pair, places)) = pairs.pop() else {
                break;
            };
            let [left, right] = [pair.0, pair.1].map(|id| &vocab.tokens[id as usize]);
            let (text, line) = (format!("{left}{right}"), format!("{left} {right}"));
            let id = match ids.entry(text) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let id = vocab.tokens.len() as u32;
                    vocab.tokens.push(new.key().clone());
                    *new.insert(id)
                }
            };
            ranks.insert(pair, merges.len());
            merges.push((pair, line));
            pairs.merge(pair, id, &places);
        }
        let lasting = merges.into_iter().enumerate();
        let lasting = lasting.filter(|(rank, (pair, _))| ranks[pair] == *rank);
        vocab.merges = lasting.map(|(_, (_, line))| line).collect();
        vocab
    }
}

/// A vocabulary that [`BpeTrainer`] made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpeVocab {
    tokens: Vec<String>,
    merges: Vec<String>,
}

impl BpeVocab {
    /// The tokens' texts by id: `<|begin_of_text|>`, `<|end_of_text|>`, GPT-2's characters for all
    /// bytes, then the results of merges.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// The merges, the first rank first: two texts with a space between.
    pub fn merges(&self) -> &[String] {
        &self.merges
    }

    /// Writes the keys that [`Tokenizer::from_gguf`](crate::Tokenizer::from_gguf) and llama.cpp read.
    pub fn describe(&self, metadata: &mut Metadata) {
        let ty = |id| match id < CONTROL.len() {
            true => TokenType::Control,
            false => TokenType::Normal,
        };
        let types: Vec<i32> = (0..self.tokens.len()).map(|id| ty(id) as i32).collect();
        metadata.insert("tokenizer.ggml.model", "gpt2");
        metadata.insert("tokenizer.ggml.pre", PRE_TOKENIZER);
        metadata.insert("tokenizer.ggml.tokens", self.tokens.clone());
        metadata.insert("tokenizer.ggml.token_type", types);
        metadata.insert("tokenizer.ggml.merges", self.merges.clone());
        metadata.insert("tokenizer.ggml.bos_token_id", 0u32);
        metadata.insert("tokenizer.ggml.eos_token_id", 1u32);
        metadata.insert("tokenizer.ggml.add_bos_token", true);
    }
}

/// Two neighbours.
type Pair = (u32, u32);

/// A word as symbols, and how often it occurs.
struct Word {
    symbols: Vec<u32>,
    count: u64,
}

impl Word {
    /// Puts `id` in the place of each `pair`. Calls `changed` with the pairs that come (1) and go
    /// (-1).
    fn merge(&mut self, pair: Pair, id: u32, mut changed: impl FnMut(Pair, i64)) {
        let mut kept = 0;
        let mut at = 0;
        let symbols = &mut self.symbols;
        while at < symbols.len() {
            let next = symbols.get(at + 1).copied();
            if (symbols[at], next) != (pair.0, Some(pair.1)) {
                symbols[kept] = symbols[at];
                (kept, at) = (kept + 1, at + 1);
                continue;
            }
            if let Some(before) = kept.checked_sub(1).map(|before| symbols[before]) {
                changed((before, pair.0), -1);
                changed((before, id), 1);
            }
            if let Some(&after) = symbols.get(at + 2) {
                changed((pair.1, after), -1);
                changed((id, after), 1);
            }
            symbols[kept] = id;
            (kept, at) = (kept + 1, at + 2);
        }
        symbols.truncate(kept);
    }
}

/// All words, with counts of their pairs.
struct Pairs {
    words: Vec<Word>,
    counts: HashMap<Pair, i64>,
    /// By counts, which may be outdated, then the smallest ids; with the words that had the pair.
    queue: BinaryHeap<(i64, Reverse<Pair>, Vec<u32>)>,
}

impl Pairs {
    fn new(words: Vec<Word>) -> Self {
        let mut pairs = Self {
            words: Vec::new(),
            counts: HashMap::new(),
            queue: BinaryHeap::new(),
        };
        let mut places = Places::default();
        for (number, word) in (0..).zip(&words) {
            for pair in word.symbols.windows(2) {
                let pair = (pair[0], pair[1]);
                *pairs.counts.entry(pair).or_default() += word.count as i64;
                places.add(pair, number);
            }
        }
        pairs.words = words;
        pairs.queue_up(places);
        pairs
    }

    fn queue_up(&mut self, places: Places) {
        for (pair, words) in places.0 {
            let count = self.counts[&pair];
            if count > 0 {
                self.queue.push((count, Reverse(pair), words));
            }
        }
    }

    /// The most frequent pair, with the words that may have it.
    fn pop(&mut self) -> Option<(Pair, Vec<u32>)> {
        while let Some((count, Reverse(pair), places)) = self.queue.pop() {
            match self.counts[&pair] {
                now if now == count => return Some((pair, places)),
                now if now > 0 => self.queue.push((now, Reverse(pair), places)),
                _ => {}
            }
        }
        None
    }

    /// Makes a pair in these words one symbol.
    fn merge(&mut self, pair: Pair, id: u32, places: &[u32]) {
        let mut come = Places::default();
        for &number in places {
            let word = &mut self.words[number as usize];
            let count = word.count as i64;
            word.merge(pair, id, |changed, sign| {
                *self.counts.entry(changed).or_default() += sign * count;
                if sign > 0 {
                    come.add(changed, number);
                }
            });
        }
        self.queue_up(come);
    }
}

/// Pairs with the numbers of words that have them.
#[derive(Default)]
struct Places(HashMap<Pair, Vec<u32>>);

impl Places {
    /// Words come in order, a pair of one word perhaps several times.
    fn add(&mut self, pair: Pair, word: u32) {
        let words = self.0.entry(pair).or_default();
        if words.last() != Some(&word) {
            words.push(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merges(text: &str, vocab_size: usize) -> Vec<String> {
        let mut trainer = BpeTrainer::new(vocab_size).unwrap();
        trainer.feed(text);
        trainer.train().merges
    }

    #[test]
    fn frequent_pairs_come_first_and_of_equals_those_with_the_smallest_ids() {
        assert_eq!(merges("ba ba ab", 300), ["b a", "a b", "Ġ ba", "Ġ ab"]);
    }

    #[test]
    fn pairs_that_overlap_are_merged_from_the_left() {
        assert_eq!(merges("aaaaa", 300), ["a a", "aa a", "aa aaa"]);
    }

    #[test]
    fn it_ends_where_the_vocabulary_is_full_or_nothing_is_left() {
        assert_eq!(merges("abcabc", BpeTrainer::MIN_VOCAB + 1), ["a b"]);
        assert_eq!(merges("", 1000), [""; 0]);
        assert!(BpeTrainer::new(BpeTrainer::MIN_VOCAB - 1).is_err());
    }
}
