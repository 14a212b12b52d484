//! Grammars as llama.cpp writes them (its `grammars/README.md`), as networks.
//!
//! Rules may be left-recursive, which llama.cpp refuses. Rules that never end are refused here.

mod check;
mod facts;
mod parse;
mod write;

use crate::network::Network;
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
    /// These characters, at least one.
    Text(Vec<char>),
    /// A character of these ranges, or one of no range.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any character matches.
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

impl Rule {
    fn alternatives(&self) -> &Alternatives {
        const NONE: &Alternatives = &Vec::new();
        self.texts.as_ref().unwrap_or(NONE)
    }
}

/// The texts of the rule `root`.
///
/// # Errors
/// [`GrammarError::Gbnf`] for a grammar that is invalid, too large, endless, or without any text.
pub(crate) fn to_network(text: &str, vocabulary: &Vocabulary) -> Result<Network, GrammarError> {
    let token = |name: &str| vocabulary.token(name);
    let rules = parse::parse(text, vocabulary.len(), &token)?;
    check::check(text, &rules)?;
    let Some(root) = rules.iter().position(|rule| rule.name == "root") else {
        return Err(error_at(text, 0, "there is no rule root"));
    };
    write::write(&rules, root).ok_or_else(|| error_at(text, rules[root].at, "root matches no text"))
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
