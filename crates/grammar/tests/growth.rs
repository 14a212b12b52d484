//! Costs of grammars grow as they do: ten times as many rules take about ten times as many instructions.

use std::env;
use std::fmt::Write;
use std::hint::black_box;
use std::process::ExitCode;

use rustorch_grammar::{Grammar, Piece, Vocabulary};
use rustorch_testing::instructions::{self, rustorch_counted, tools};
use rustorch_testing::{Suite, tests};
use serde_json::{Map, Value, json};

/// Says what the program does instead of testing: makes a case of this name and size.
const VARIABLE: &str = "RUSTORCH_GROWTH";

/// A grammar of a size.
type Case = (&'static str, fn(usize) -> Grammar);

const CASES: [Case; 14] = [
    ("chain", |n| rules(n, |i| format!("\"a\" r{}", i + 1))),
    ("chain of names", |n| rules(n, |i| format!("r{}", i + 1))),
    ("chain of options", |n| {
        rules(n, |i| format!("\"{}\"? r{}", i % 7, i + 1))
    }),
    ("nested", |n| {
        rules(n, |i| format!("\"(\" r{} \")\"", i + 1))
    }),
    ("nested at the left", |n| {
        rules(n, |i| format!("r{} [a-z]", i + 1))
    }),
    ("used twice", |n| {
        rules(n, |i| {
            format!("\"x\" [^\"]* r{0} | \"y\" r{0} \".\"", i + 1)
        })
    }),
    ("backwards", |n| {
        let lines: Vec<String> = (0..n)
            .rev()
            .map(|i| format!("r{i} ::= \"a\" r{}\n", i + 1))
            .collect();
        Grammar::Gbnf(format!("{}r{n} ::= \"c\"\nroot ::= r0", lines.concat()))
    }),
    ("ring", |n| {
        rules(n, |i| {
            format!("\"b\" | \"a\" r{} \"z\" | r0 \"q\"", (i + 1) % n)
        })
    }),
    ("choice", |n| {
        let names: Vec<String> = (0..n).map(|i| format!("r{i}")).collect();
        let rules: String = (0..n)
            .map(|i| format!("r{i} ::= \"{i}\" \".\"\n"))
            .collect();
        Grammar::Gbnf(format!("root ::= {}\n{rules}", names.join(" | ")))
    }),
    ("names of tokens", |n| {
        let names: Vec<String> = (0..n)
            .map(|i| format!("<t{}>", 1 + i % (TOKENS - 1)))
            .collect();
        Grammar::Gbnf(format!("root ::= {}", names.join(" ")))
    }),
    ("expression", |n| Grammar::Regex("(ab|[0-9]+)x?".repeat(n))),
    ("alternatives", |n| {
        let words: Vec<String> = (0..n).map(|i| format!("w{i}")).collect();
        Grammar::Regex(words.join("|"))
    }),
    ("definitions", |n| schema(n, |i| i + 1)),
    ("definitions backwards", |n| {
        schema(n, |i| i.wrapping_sub(1))
    }),
];

/// Tokens of the vocabulary that stand for no text.
const TOKENS: usize = 5000;

/// Rules `r0` to `rn`, of which the last is a letter.
fn rules(n: usize, text: impl Fn(usize) -> String) -> Grammar {
    let mut all = "root ::= r0\n".to_owned();
    for i in 0..n {
        writeln!(all, "r{i} ::= {}", text(i)).unwrap();
    }
    Grammar::Gbnf(all + &format!("r{n} ::= \"c\""))
}

/// A schema of definitions, each of which refers to another, if there is one.
fn schema(n: usize, to: impl Fn(usize) -> usize) -> Grammar {
    let definition = |i: usize| match to(i) < n {
        true => {
            json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/d{}", to(i))}}, "required": ["a"],
            "additionalProperties": false})
        }
        false => json!({"type": "null"}),
    };
    let all: Map<String, Value> = (0..n).map(|i| (format!("d{i}"), definition(i))).collect();
    let first = if to(0) < n { 0 } else { n - 1 };
    Grammar::JsonSchema(json!({"$ref": format!("#/$defs/d{first}"), "$defs": all}).to_string())
}

fn run(case: &str, n: usize) {
    let (_, make) = CASES.iter().find(|(name, _)| *name == case).unwrap();
    let mut pieces: Vec<Piece> = (0..TOKENS)
        .map(|i| Piece::Control(format!("<t{i}>")))
        .collect();
    pieces.extend((0..=255).map(|byte| Piece::Bytes(vec![byte])));
    let vocabulary = Vocabulary::from_pieces(&pieces, &[0]).unwrap();
    let grammar = make(n);
    rustorch_counted(&mut || {
        let mut constraint = grammar.constrain(&vocabulary).unwrap();
        black_box(constraint.mask().unwrap());
    });
}

/// Instructions that a case of a size takes.
fn count((case, _): &Case, n: usize) -> u64 {
    instructions::count(VARIABLE, &format!("{n} {case}"))
}

/// Ten times as large, what grows with the square takes a hundred times as many.
fn grammars_take_what_their_size_takes(_: &Vec<String>) {
    for case in &CASES {
        let (small, large) = (count(case, 100), count(case, 1000));
        let growth = large as f64 / small as f64;
        assert!(
            growth < 12.0,
            "{}: {small} and {large} instructions",
            case.0
        );
    }
}

fn main() -> ExitCode {
    if let Ok(what) = env::var(VARIABLE) {
        let (n, case) = what.split_once(' ').unwrap();
        run(case, n.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    Suite::new()
        .on(
            tools(),
            "RUSTORCH_TEST_VALGRIND",
            tests![grammars_take_what_their_size_takes],
        )
        .run()
}
