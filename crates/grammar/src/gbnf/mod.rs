//! Grammars as llama.cpp writes them (its `grammars/README.md`), as Lark.
//!
//! llama.cpp matches character by character. Lark has a lexer, which takes the longest lexeme
//! that it can: `"a" "b" | "abc"` would not be the same. So each character becomes a lexeme of its
//! own: no lexeme is then the beginning of another, and the texts are the same.
//!
//! Rules may be left-recursive, which llama.cpp refuses. Rules that never end are refused here.

mod lark;
mod parse;

use crate::{GrammarError, Vocabulary};

/// Texts between which there is a choice.
type Alternatives = Vec<Vec<Item>>;

/// Something that comes a number of times.
#[derive(Clone, Debug, PartialEq)]
struct Item {
    what: Element,
    min: u32,
    /// `None` for any number.
    max: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
enum Element {
    /// These characters, of which there is at least one.
    Text(Vec<char>),
    /// A character of these ranges, or one of no range.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any character.
    Any,
    /// A token, or any other.
    Token {
        id: u32,
        negated: bool,
    },
    /// A text of the rule of this index.
    Rule(usize),
    Group(Alternatives),
}

/// A rule with its name and where it is first named.
#[derive(Clone, Debug)]
struct Rule {
    name: String,
    at: usize,
    /// `None` before it is defined.
    texts: Option<Alternatives>,
}

/// The same grammar in Lark.
///
/// # Errors
/// [`GrammarError::Gbnf`] for what is no grammar, is too large, or never ends.
pub(crate) fn to_lark(text: &str, vocabulary: &Vocabulary) -> Result<String, GrammarError> {
    let token = |name: &str| vocabulary.token(name);
    let rules = parse::parse(text, vocabulary.len(), &token)?;
    lark::write(text, &rules)
}

/// An error at this byte of the grammar.
fn error_at(text: &str, at: usize, reason: impl Into<String>) -> GrammarError {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    GrammarError::Gbnf {
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
        reason: reason.into(),
    }
}
