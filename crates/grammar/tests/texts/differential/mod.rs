//! Random grammars: masks equal those of a recogniser without automata. They also equal
//! llguidance's, for the same grammar with a lexeme for each character.

mod form;
mod recogniser;

use rustorch_grammar::{Constraint, Grammar, Piece, Vocabulary};

use form::{Grammars, Rules};
use recogniser::Recogniser;

/// Texts get no longer than this many bytes.
const LONGEST: usize = 10;

/// How many grammars are tried.
fn count() -> u64 {
    let full = std::env::var_os("RUSTORCH_TEST_FULL").is_some();
    if full { 1000 } else { 24 }
}

/// The end, all bytes, and words of the characters that the grammars have.
fn words(random: &mut Random) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut longer = vec![String::new()];
    for _ in 0..4 {
        let letters = ["a", "b", "c"];
        let grown = longer.iter().flat_map(|w| letters.map(|c| w.clone() + c));
        longer = grown.collect();
        words.extend(longer.iter().map(|word| word.clone().into_bytes()));
    }
    words.extend((5..10).map(|n| b"a".repeat(n)));
    for n in 2..6 {
        for _ in 0..30 {
            let word: String = (0..n).map(|_| *random.of(&form::CHARACTERS)).collect();
            words.push(word.into_bytes());
        }
    }
    // Ends within characters, and begins there.
    words.extend(["aé", "中a", "é中"].map(|word| word.as_bytes()[..word.len() - 1].to_vec()));
    words.extend(["aé", "中a", "é中"].map(|word| word.as_bytes()[1..].to_vec()));
    words.sort();
    words.dedup();
    words
}

/// Numbers at random: SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

struct Tried {
    vocabulary: Vocabulary,
    words: Vec<Vec<u8>>,
    random: Random,
}

impl Tried {
    fn new() -> Self {
        let mut random = Random(1);
        let words = words(&mut random);
        let pieces = words.iter().map(|word| Piece::Bytes(word.clone()));
        let end = Piece::Control("<|end|>".to_owned());
        let pieces: Vec<Piece> = pieces.chain([end]).collect();
        let vocabulary = Vocabulary::from_pieces(&pieces, &[words.len() as u32]).unwrap();
        Self {
            vocabulary,
            words,
            random,
        }
    }

    /// The tokens that may follow a text, in which the end is the last.
    fn expected(&self, rules: &Rules, text: &[u8]) -> Vec<bool> {
        let mut expected = Vec::with_capacity(self.words.len() + 1);
        // The words are in order: what begins with this cannot follow either.
        let mut impossible: Option<&[u8]> = None;
        for word in &self.words {
            let known = impossible.is_some_and(|start| word.starts_with(start));
            let follows = !known && Recogniser::new(rules, &[text, word].concat()).may_go_on();
            if !follows && !known {
                impossible = Some(word);
            }
            expected.push(follows);
        }
        expected.push(Recogniser::new(rules, text).matches());
        expected
    }

    /// Goes through a text at random. How many tokens could be compared? All constraints but the
    /// first may give up.
    fn go(&mut self, rules: &Rules, what: &str, constraints: &[&Constraint]) -> usize {
        let mut constraints: Vec<Constraint> = constraints.iter().copied().cloned().collect();
        let mut text: Vec<u8> = Vec::new();
        let mut compared = 0;
        while text.len() < LONGEST {
            let expected = self.expected(rules, &text);
            assert!(
                constraints[0].mask().is_ok() || !expected.contains(&true),
                "{what}"
            );
            constraints.retain_mut(|constraint| constraint.mask().is_ok());
            for (which, constraint) in constraints.iter_mut().enumerate() {
                let mask = constraint.mask().unwrap();
                for (token, &expected) in expected.iter().enumerate() {
                    let word = self
                        .words
                        .get(token)
                        .map(|word| String::from_utf8_lossy(word));
                    assert_eq!(
                        mask.allows(token as u32),
                        expected,
                        "{what}\nconstraint {which}, behind {:?}: {word:?}",
                        String::from_utf8_lossy(&text),
                    );
                }
                assert_eq!(constraint.is_accepting(), Ok(expected[self.words.len()]));
            }
            let fits = |&token: &usize| expected[token];
            let tokens: Vec<usize> = (0..self.words.len()).filter(fits).collect();
            compared += tokens.len();
            if tokens.is_empty() {
                assert!(constraints[0].is_complete(), "{what}");
                break;
            }
            let token = *self.random.of(&tokens);
            text.extend(&self.words[token]);
            for constraint in &mut constraints {
                constraint.accept(token as u32).unwrap();
            }
        }
        compared
    }
}

#[test]
fn masks_of_grammars_are_right() {
    let mut tried = Tried::new();
    let (mut grammars, mut compared) = (0, 0);
    for seed in 0..count() {
        let rules = Grammars::new(seed).rules();
        let gbnf = form::gbnf(&rules);
        // Some never end.
        let Ok(constraint) = Grammar::Gbnf(gbnf.clone()).constrain(&tried.vocabulary) else {
            continue;
        };
        let lark = form::lark(&rules);
        let by_characters = Grammar::Lark(lark).constrain(&tried.vocabulary).unwrap();
        grammars += 1;
        // The second time, masks are known.
        for _ in 0..2 {
            compared += tried.go(&rules, &gbnf, &[&constraint, &by_characters]);
        }
    }
    assert!(grammars > count() / 3, "{grammars} grammars");
    assert!(compared > grammars as usize * 20, "{compared} tokens");
}

#[test]
fn masks_of_regular_expressions_are_right() {
    let mut tried = Tried::new();
    let mut compared = 0;
    for seed in 0..count() {
        let rules = Grammars::new(seed).regular();
        let pattern = form::regex(&rules);
        let constraint = Grammar::Regex(pattern.clone()).constrain(&tried.vocabulary);
        let constraint = constraint.unwrap_or_else(|error| panic!("{pattern}: {error}"));
        for _ in 0..2 {
            compared += tried.go(&rules, &pattern, &[&constraint]);
        }
    }
    assert!(compared > count() as usize * 20, "{compared} tokens");
}
