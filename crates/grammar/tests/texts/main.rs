//! Texts that constraints accept and reject: llama.cpp's tables, JSON-Schema-Test-Suite, and what
//! is particular to this crate.

mod constraint;
mod differential;
mod json_schema_suite;
mod llama_cpp;

use rustorch_grammar::{Constraint, Grammar, GrammarError, Piece, Vocabulary};
use serde_json::Value;

/// Ids below this are control tokens.
const CONTROLS: u32 = 1002;
/// Behind them, a token for each byte, in order.
const BYTES: u32 = CONTROLS;
/// Behind these, tokens of several bytes.
const WORDS: [&str; 12] = [
    "{\"", "\":", "\",", "\"}", "true", "tru", "ab", "abc", "é", "  ", "[]", "12",
];

/// The first token ends a text.
const END: u32 = 0;

fn vocabulary() -> Vocabulary {
    let control = |id| Piece::Control(format!("<|control-{id}|>"));
    let byte = |byte| Piece::Bytes(vec![byte]);
    let word = |word: &&str| Piece::Bytes(word.as_bytes().to_vec());
    let pieces: Vec<Piece> = (0..CONTROLS)
        .map(control)
        .chain((0..=255).map(byte))
        .chain(WORDS.iter().map(word))
        .collect();
    Vocabulary::from_pieces(&pieces, &[END]).unwrap()
}

/// The text by single bytes.
fn by_bytes(text: &str) -> Vec<u32> {
    text.bytes().map(|byte| BYTES + u32::from(byte)).collect()
}

/// The text by the longest tokens.
fn by_words(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut rest = text.as_bytes();
    while let Some(&first) = rest.first() {
        let fits = |word: &&str| rest.starts_with(word.as_bytes());
        let longest = WORDS
            .iter()
            .filter(|word| fits(word))
            .max_by_key(|word| word.len());
        let (id, len) = match longest.and_then(|word| WORDS.iter().position(|other| other == word))
        {
            Some(at) => (BYTES + 256 + at as u32, WORDS[at].len()),
            None => (BYTES + u32::from(first), 1),
        };
        ids.push(id);
        rest = &rest[len..];
    }
    ids
}

/// Whether these tokens are a whole text in its form. Masks and the answer for each token have to
/// be the same.
fn accepts(constraint: &Constraint, tokens: &[u32]) -> bool {
    let mut constraint = constraint.clone();
    for &token in tokens {
        let by_itself = constraint.clone().allows(token).unwrap();
        // A text that cannot go on has a mask of its end.
        let by_mask = constraint.mask().unwrap().allows(token);
        assert_eq!(by_itself, by_mask, "token {token}");
        match constraint.accept(token) {
            Ok(()) => assert!(by_mask),
            Err(error) => {
                assert!(!by_mask);
                assert_eq!(error, GrammarError::Token { token });
                return false;
            }
        }
    }
    let accepting = constraint.is_accepting().unwrap();
    let by_mask = constraint.mask().map(|mask| mask.allows(END));
    assert_eq!(by_mask.unwrap_or(false), accepting);
    accepting
}

fn accepts_text(constraint: &Constraint, text: &str) -> bool {
    let accepted = accepts(constraint, &by_bytes(text));
    assert_eq!(accepted, accepts(constraint, &by_words(text)), "{text}");
    accepted
}

fn of_schema(vocabulary: &Vocabulary, schema: &Value) -> Result<Constraint, GrammarError> {
    Grammar::JsonSchema(schema.to_string()).constrain(vocabulary)
}
