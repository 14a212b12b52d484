//! What masks cost: `cargo bench -p rustorch-grammar`.
//!
//! The vocabulary has 128,000 tokens: all bytes, and pieces of words as subword vocabularies have
//! them. Each text is gone through token by token.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rustorch_grammar::{Constraint, Grammar, Piece, Vocabulary};

const TOKENS: usize = 128_000;
const ROUNDS: usize = 30;

/// Words made of syllables, with and without a space before them, and numbers.
fn pieces() -> Vec<Piece> {
    const SYLLABLES: [&str; 40] = [
        "a", "be", "co", "di", "en", "fo", "gra", "hi", "in", "jo", "ka", "lo", "mi", "no", "or",
        "pe", "qui", "ra", "st", "tion", "un", "ver", "wi", "xe", "yo", "za", "ing", "er", "ly",
        "ment", "pre", "con", "per", "sub", "trans", "able", "ness", "ful", "É", "中",
    ];
    let mut pieces = vec![Piece::Control("<|end|>".to_owned())];
    pieces.extend((0..=255).map(|byte| Piece::Bytes(vec![byte])));
    let signs = [
        "{\"", "\":", "\",", "\", \"", "\"}", "},", "[{", "}]", "  ", "\n", ": ", "true",
    ];
    pieces.extend(signs.map(|sign| Piece::Bytes(sign.into())));
    pieces.extend((0..1000).map(|n| Piece::Bytes(n.to_string().into())));
    for i in 0.. {
        if pieces.len() >= TOKENS {
            break;
        }
        let n = SYLLABLES.len();
        let syllables = [i / 2 % n, i / 2 / n % n, i / 2 / n / n % n].map(|at| SYLLABLES[at]);
        let space = if i % 2 == 0 { "" } else { " " };
        pieces.push(Piece::Bytes(
            format!("{space}{}", syllables.concat()).into(),
        ));
    }
    pieces
}

/// The longest tokens from the left.
fn tokens(pieces: &[Piece], text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let fits = |piece: &Piece| match piece {
            Piece::Bytes(bytes) if rest.starts_with(bytes) => bytes.len(),
            _ => 0,
        };
        let lengths = pieces.iter().map(fits).enumerate();
        let (id, len) = lengths.max_by_key(|&(_, len)| len).unwrap_or_default();
        ids.push(id as u32);
        rest = &rest[len.max(1)..];
    }
    ids
}

/// Shows what a mask costs on the way through `ids`, the first time and then.
fn measure(what: &str, constraint: &Constraint, ids: &[u32]) -> Result<(), Box<dyn Error>> {
    let mut costs = vec![Duration::MAX; ids.len()];
    let mut first = Duration::ZERO;
    for round in 0..ROUNDS {
        let mut constraint = constraint.clone();
        for (&id, cost) in ids.iter().zip(&mut costs) {
            let start = Instant::now();
            black_box(constraint.mask()?);
            let took = start.elapsed();
            constraint.accept(id)?;
            *cost = took.min(*cost);
            first += if round == 0 { took } else { Duration::ZERO };
        }
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let total: Duration = costs.iter().sum();
    let most = costs.iter().max().copied().unwrap_or_default();
    println!(
        "{what:<28} {:>4} tokens: {:>8.1} µs a mask, at most {:>8.1}, the first time {:>8.1}",
        ids.len(),
        us(total) / ids.len() as f64,
        us(most),
        us(first) / ids.len() as f64,
    );
    Ok(())
}

const SCHEMA: &str = r#"{"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "mail": {"type": "string", "format": "email"},
    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 10},
    "note": {"type": ["string", "null"], "maxLength": 200}},
    "required": ["name", "age"], "additionalProperties": false}"#;
const INSTANCE: &str = r#"{"name": "transverable quingrament", "age": 42, "mail": "conform@pre.co",
 "tags": ["red", "blue"], "note": "unableness of subtions and permenting transverly"}"#;
const JSON: &str = r#"
    root ::= value
    value ::= object | array | string | number | "true" | "false" | "null"
    object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"
    array ::= "[" ws (value ("," ws value)*)? "]"
    string ::= "\"" ([^"\\\x00-\x1F] | "\\" ["\\/bfnrt])* "\""
    number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
    ws ::= | " " | "\n" [ \t]{0,20}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let pieces = pieces();
    let start = Instant::now();
    let vocabulary = Vocabulary::from_pieces(&pieces, &[0])?;
    println!(
        "a vocabulary of {} tokens: {:?}",
        pieces.len(),
        start.elapsed()
    );
    let ids = tokens(&pieces, INSTANCE);
    let words = tokens(&pieces, "transverable quingrament unableness");
    for (what, grammar, ids) in [
        (
            "a JSON schema",
            Grammar::JsonSchema(SCHEMA.to_owned()),
            &ids,
        ),
        (
            "any JSON object",
            Grammar::JsonSchema(r#"{"type": "object"}"#.to_owned()),
            &ids,
        ),
        (
            "JSON's grammar in GBNF",
            Grammar::Gbnf(JSON.to_owned()),
            &ids,
        ),
        (
            "a regular expression",
            Grammar::Regex("[a-z ]+".to_owned()),
            &words,
        ),
    ] {
        let start = Instant::now();
        let constraint = grammar.constrain(&vocabulary)?;
        println!("{what}: made in {:?}", start.elapsed());
        measure(what, &constraint, ids)?;
    }
    Ok(())
}
