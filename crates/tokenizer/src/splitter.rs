//! Splits text into words by a chain of rules, as pre-tokenizers describe them.

use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta::Regex;

/// One step of a pre-tokenizer. It is applied to every piece that the step before it left, as if
/// the piece were the whole text; its own pieces, too, are all of the text.
pub(crate) enum Rule {
    /// Every match is a piece, and so is all that lies between two matches.
    Matches(&'static str),
    /// The same for alternatives, of which the first that matches counts, and after the last one
    /// `\s+(?!\S)|\s+`: white space, which leaves its last character to a word that follows.
    Words(&'static [&'static str]),
    /// Like `Words`, but white space is cut into the largest powers of two up to 512 characters.
    WordsAndPowersOfTwo(&'static [&'static str]),
    /// Digits are grouped by three from the right; a piece ends after each group.
    AfterThousands,
    /// ASCII digits are grouped by three from the right; a piece begins before each group of three.
    BeforeThousands,
}

/// A chain of rules, ready for use.
///
/// The expressions have no look-around, so that splitting takes linear time on any text: the one
/// that pre-tokenizers use, `(?!\S)` after white space, is left to [`CompiledRule::Words`].
pub(crate) struct Splitter(Vec<CompiledRule>);

enum CompiledRule {
    Matches(Regex),
    Words {
        /// Two patterns, the alternatives and `SPACES`.
        regex: Regex,
        /// How many of the given number of white space characters the next piece takes.
        take: fn(usize) -> usize,
    },
    AfterThousands,
    BeforeThousands,
}

/// The pattern of [`CompiledRule::Words`] for white space.
const SPACES: usize = 1;

impl Splitter {
    /// Compiles `rules`.
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let words = |alternatives: &[&str], take| CompiledRule::Words {
            regex: compile(&[&alternatives.join("|"), r"\s+"]),
            take,
        };
        let step = |rule: &Rule| match rule {
            Rule::Matches(pattern) => CompiledRule::Matches(compile(&[pattern])),
            Rule::Words(alternatives) => words(alternatives, |spaces| spaces),
            Rule::WordsAndPowersOfTwo(alternatives) => {
                words(alternatives, |spaces| 1 << spaces.ilog2().min(9))
            }
            Rule::AfterThousands => CompiledRule::AfterThousands,
            Rule::BeforeThousands => CompiledRule::BeforeThousands,
        };
        Splitter(rules.iter().map(step).collect())
    }

    /// Hands the words of `text` to `emit`, one after the other.
    pub(crate) fn split(&self, text: &str, mut emit: impl FnMut(&str)) {
        apply(&self.0, text, &mut emit);
    }
}

/// The automaton of patterns that are this crate's own.
pub(crate) fn compile(patterns: &[&str]) -> Regex {
    Regex::new_many(patterns).expect("patterns are this crate's own, and a test compiles them all")
}

fn apply(steps: &[CompiledRule], text: &str, emit: &mut dyn FnMut(&str)) {
    let Some((step, rest)) = steps.split_first() else {
        return emit(text);
    };
    let mut from = 0;
    let mut cut = |to: usize| {
        if from < to {
            apply(rest, &text[from..to], emit);
            from = to;
        }
    };
    step.cuts(text, &mut cut);
    cut(text.len());
}

impl CompiledRule {
    /// Calls `cut` with the places, in order, at which a piece of `text` ends and another begins.
    /// Places may come twice.
    fn cuts(&self, text: &str, cut: &mut impl FnMut(usize)) {
        match self {
            CompiledRule::Matches(regex) => {
                for found in regex.find_iter(text) {
                    cut(found.start());
                    cut(found.end());
                }
            }
            CompiledRule::Words { regex, take } => {
                let mut at = 0;
                while let Some(found) = regex.search(&Input::new(text).range(at..)) {
                    cut(found.start());
                    at = match found.pattern().as_usize() {
                        SPACES => cut_spaces(text, found.range(), *take, cut),
                        _ => found.end(),
                    };
                    cut(at);
                }
            }
            CompiledRule::AfterThousands => {
                for_each_thousand(text, char::is_numeric, |boundary| {
                    if !boundary.starts_run {
                        cut(boundary.at);
                    }
                });
            }
            CompiledRule::BeforeThousands => {
                for_each_thousand(
                    text,
                    |char| char.is_ascii_digit(),
                    |boundary| {
                        if !boundary.ends_run {
                            cut(boundary.at);
                        }
                    },
                );
            }
        }
    }
}

/// Cuts the white space in `spaces` into pieces as `take` says, and returns where they end: before
/// its last character if that is not the only one and a word follows.
fn cut_spaces(
    text: &str,
    spaces: Range<usize>,
    take: fn(usize) -> usize,
    cut: &mut impl FnMut(usize),
) -> usize {
    let mut at = spaces.start;
    let mut characters = text[spaces.clone()].chars();
    let count = characters.clone().count();
    let mut left = if count > 1 && spaces.end < text.len() {
        count - 1
    } else {
        count
    };
    while left > 0 {
        let taken = take(left);
        at += characters
            .by_ref()
            .take(taken)
            .map(char::len_utf8)
            .sum::<usize>();
        cut(at);
        left -= taken;
    }
    at
}

/// A place in a run of digits with a multiple of three digits to its right.
struct Boundary {
    at: usize,
    starts_run: bool,
    ends_run: bool,
}

fn for_each_thousand(text: &str, is_digit: impl Fn(char) -> bool, mut each: impl FnMut(Boundary)) {
    let mut run = Vec::new(); // where its digits begin, and where it ends
    for (at, char) in text.char_indices().chain([(text.len(), '\0')]) {
        if is_digit(char) {
            run.push(at);
        } else if !run.is_empty() {
            let digits = run.len();
            run.push(at);
            for (index, &at) in run.iter().enumerate().skip(digits % 3).step_by(3) {
                each(Boundary {
                    at,
                    starts_run: index == 0,
                    ends_run: index == digits,
                });
            }
            run.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(rules: &[Rule], text: &str) -> Vec<String> {
        let mut words = Vec::new();
        Splitter::new(rules).split(text, |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn rules_follow_one_another_within_pieces() {
        let rules = [Rule::Matches("[0-9]+"), Rule::Matches("a$")];
        assert_eq!(
            split(&rules, "ba1aa22ab"),
            ["b", "a", "1", "a", "a", "22", "ab"]
        );
        assert_eq!(split(&rules, ""), [""; 0]);
        assert_eq!(split(&[], "all"), ["all"]);
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_word_that_follows() {
        let rules = [Rule::Words(&[" ?[a-z]+"])];
        assert_eq!(
            split(&rules, "a   b\n\nc \t"),
            ["a", "  ", " b", "\n", "\n", "c", " \t"]
        );
        assert_eq!(
            split(&rules, "\u{3000}\u{3000}a?? b"),
            ["\u{3000}", "\u{3000}", "a", "??", " b"]
        );
    }

    #[test]
    fn white_space_in_powers_of_two() {
        let rules = [Rule::WordsAndPowersOfTwo(&[" ?[a-z]+"])];
        let lengths = |text: &str| {
            split(&rules, text)
                .iter()
                .map(String::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(lengths(&format!("{}a", " ".repeat(8))), [4, 2, 1, 2]);
        assert_eq!(lengths(&" ".repeat(1537)), [512, 512, 512, 1]);
    }

    #[test]
    fn digits_in_groups_of_three_from_the_right() {
        let after = [Rule::AfterThousands];
        assert_eq!(split(&after, "a1234567 x"), ["a1", "234", "567", " x"]);
        assert_eq!(split(&after, "a123"), ["a123"]);
        assert_eq!(split(&after, "१२३४"), ["१", "२३४"]);
        let before = [Rule::BeforeThousands];
        assert_eq!(split(&before, "a1234567 x"), ["a1", "234", "567 x"]);
        assert_eq!(split(&before, "a123"), ["a", "123"]);
        assert_eq!(split(&before, "१२३४"), ["१२३४"]);
    }
}
