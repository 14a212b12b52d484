//! Damages inputs again and again.

use std::collections::HashSet;

use rustorch_testing::damage::{cross, damage};
use rustorch_testing::random::Random;

use crate::Target;

/// Largest number of inputs that are kept to be damaged further, and their largest size in bytes.
const MOST_INPUTS: usize = 4096;
const LARGEST_INPUT: usize = 1 << 20;
/// Inputs up to this size are looked through for each word of an error.
const SHORT: usize = 1024;

/// Damages inputs of a target. An input with a new kind of answer is damaged further, since
/// coverage is unknown.
pub struct Fuzzer {
    target: &'static Target,
    random: Random,
    seeds: Vec<Vec<u8>>,
    /// Inputs that got new answers.
    inputs: Vec<Vec<u8>>,
    answers: HashSet<String>,
}

impl Fuzzer {
    /// Begins with the target's own inputs; `seed` decides the others.
    pub fn new(target: &'static Target, seed: u64) -> Self {
        Self {
            target,
            random: Random::new(seed),
            seeds: (target.seeds)(),
            inputs: Vec::new(),
            answers: HashSet::new(),
        }
    }

    /// The target.
    pub fn target(&self) -> &'static Target {
        self.target
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        // Much of what was damaged already is refused at once.
        let list = match random.below(2) {
            0 if !self.inputs.is_empty() => &self.inputs,
            _ => &self.seeds,
        };
        let mut input = list[random.below(list.len())].clone();
        if random.below(16) == 0 {
            let other = &list[random.below(list.len())];
            cross(&mut input, other, random);
        }
        for _ in 0..=random.below(4) {
            damage(&mut input, random);
        }
        input
    }

    /// An input of another run, to go on from.
    pub fn go_on_from(&mut self, input: Vec<u8>) {
        if input.len() <= LARGEST_INPUT && self.inputs.len() < MOST_INPUTS {
            self.inputs.push(input);
        }
    }

    /// Records the target's answer to an input. Returns the input, if it is one to continue from.
    pub fn answered(&mut self, input: Vec<u8>, answer: &Result<(), String>) -> Option<&[u8]> {
        let answer = match answer {
            Ok(()) => String::new(),
            Err(line) => kind(line, &input),
        };
        if !self.answers.insert(answer) {
            return None;
        }
        let before = self.inputs.len();
        self.go_on_from(input);
        self.inputs.get(before).map(Vec::as_slice)
    }

    /// Number of kinds of answers.
    pub fn answers(&self) -> usize {
        self.answers.len()
    }
}

/// An error without quotes of the input: its plain words outside of quotes and lists, unless they are the input's.
fn kind(line: &str, input: &[u8]) -> String {
    let mut unquoted = String::new();
    let mut quote = None;
    let mut before = ' ';
    for char in line.chars() {
        match quote {
            Some(end) => {
                // A mark behind `\` does not end a quotation.
                if char == end && before != '\\' {
                    quote = None;
                }
                let is_pair = (before, char) == ('\\', '\\');
                before = if is_pair { ' ' } else { char };
            }
            None => {
                // An apostrophe within a word is not a quotation mark.
                quote = match char {
                    '"' | '`' | '\'' if !before.is_alphanumeric() => Some(char),
                    '[' => Some(']'),
                    _ => None,
                };
                // Quoted text is not a part of a word.
                unquoted.push(if quote.is_some() { '.' } else { char });
                before = char;
            }
        }
    }
    let is_quoted = |word: &str| {
        let mut places = input.windows(word.len().max(1));
        input.len() <= SHORT && places.any(|place| place == word.as_bytes())
    };
    let mut kind = String::new();
    for word in unquoted.split_whitespace() {
        let word = word.trim_end_matches([',', ':', ';', '.', ')']);
        if word.bytes().all(|byte| byte.is_ascii_lowercase()) && !is_quoted(word) {
            kind.push_str(word);
        }
    }
    kind.truncate(200);
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_alike_whatever_they_quote() {
        let expected = "nokeyatbyte";
        for line in [
            "no key \"a\" at byte 7",
            "no key \"other\" at byte 12",
            "no key `\\\'ab\"c` at byte 12",
            "no key \"a\\\"b c\\\\\" at byte 12",
            "no key blk.0.attn at byte 1",
            "no key [ed, ad, 00] at byte 1",
            "no key term at byte 1",
        ] {
            assert_eq!(kind(line, b"(terms)"), expected, "{line}");
        }
        assert_eq!(kind("what isn't here, 'a", b""), "whathere");
        assert_ne!(kind("no value at byte 7", b""), expected);
    }
}
