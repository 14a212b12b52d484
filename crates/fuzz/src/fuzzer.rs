//! Damaging inputs again and again.

use std::collections::HashSet;

use rustorch_testing::damage::{cross, damage};
use rustorch_testing::random::Random;

use crate::Target;

/// Inputs that are gone on from, at most, and their size.
const MOST_INPUTS: usize = 4096;
const LARGEST_INPUT: usize = 1 << 20;

/// Damages inputs of a target. An input that got an answer of a new kind is damaged further, as coverage is not known.
pub struct Fuzzer {
    target: &'static Target,
    random: Random,
    seeds: Vec<Vec<u8>>,
    /// Those that got new answers.
    inputs: Vec<Vec<u8>>,
    answers: HashSet<String>,
}

impl Fuzzer {
    /// Begins with the target's own inputs; what follows is decided by `seed`.
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

    /// What the target answered to an input.
    pub fn answered(&mut self, input: Vec<u8>, answer: &Result<(), String>) {
        let answer = match answer {
            Ok(()) => String::new(),
            Err(line) => kind(line),
        };
        let is_small = input.len() <= LARGEST_INPUT && self.inputs.len() < MOST_INPUTS;
        if self.answers.insert(answer) && is_small {
            self.inputs.push(input);
        }
    }

    /// How many kinds of answers there were.
    pub fn answers(&self) -> usize {
        self.answers.len()
    }
}

/// An error without what it quotes of the input.
fn kind(line: &str) -> String {
    let mut kind = String::new();
    for (i, part) in line.split(['"', '`', '\'']).enumerate() {
        // What is between quotes.
        if i % 2 == 0 {
            kind.extend(part.chars().filter(char::is_ascii_alphabetic));
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
        for line in ["no key \"a\" at byte 7", "no key \"other\" at byte 12"] {
            assert_eq!(kind(line), expected);
        }
        assert_ne!(kind("no value at byte 7"), expected);
    }
}
