//! Writing a grammar as Lark.

use std::fmt::Write;

use super::{Alternatives, Element, Item, Rule, error_at};
use crate::GrammarError;

/// Elements that a rule may have with everything repeated as often as it must or may at most.
const MAX_SIZE: u64 = 100_000;

/// The grammar as Lark, whose rules are `r` and a number.
///
/// # Errors
/// [`GrammarError::Gbnf`] for a rule that is too large or never ends.
pub(super) fn write(text: &str, rules: &[Rule]) -> Result<String, GrammarError> {
    if let Some(rule) = rules
        .iter()
        .find(|rule| size(rule.alternatives()) > MAX_SIZE)
    {
        let reason = format!(
            "the repetitions of {} make it larger than {MAX_SIZE} elements; repeat less",
            rule.name
        );
        return Err(error_at(text, rule.at, reason));
    }
    if let Some(rule) = endless(rules) {
        let reason = format!(
            "{} never ends: each of its texts has another one in it",
            rule.name
        );
        return Err(error_at(text, rule.at, reason));
    }
    let mut writer = Writer {
        lark: String::new(),
        groups: Vec::new(),
    };
    for (i, rule) in rules.iter().enumerate() {
        if rule.name == "root" {
            writer.rule("start", rule.alternatives());
        }
        writer.rule(&format!("r{i}"), rule.alternatives());
    }
    // Writing a group finds the groups in it.
    let mut at = 0;
    while let Some(texts) = writer.groups.get(at).copied() {
        writer.rule(&format!("g{at}"), texts);
        at += 1;
    }
    Ok(writer.lark)
}

impl Rule {
    fn alternatives(&self) -> &Alternatives {
        const NONE: &Alternatives = &Vec::new();
        self.texts.as_ref().unwrap_or(NONE)
    }
}

/// How many elements a text may have, a rule counting as one.
fn size(texts: &Alternatives) -> u64 {
    let item = |item: &Item| {
        let once = match &item.what {
            Element::Text(chars) => chars.len() as u64,
            Element::Group(texts) => size(texts),
            _ => 1,
        };
        once.saturating_mul(item.max.unwrap_or(item.min).max(1).into())
    };
    texts
        .iter()
        .flatten()
        .map(item)
        .fold(1, u64::saturating_add)
}

/// A rule of which there is no text that is finite.
fn endless(rules: &[Rule]) -> Option<&Rule> {
    let mut ends = vec![false; rules.len()];
    loop {
        let known = ends.clone();
        for (end, rule) in ends.iter_mut().zip(rules) {
            *end = *end || can_end(rule.alternatives(), &known);
        }
        if ends == known {
            break;
        }
    }
    let endless = ends.iter().position(|end| !end)?;
    rules.get(endless)
}

/// Is there a text with only rules that are known to end?
fn can_end(texts: &Alternatives, rules: &[bool]) -> bool {
    let ends = |item: &Item| match &item.what {
        _ if item.min == 0 => true,
        Element::Rule(rule) => rules[*rule],
        Element::Group(texts) => can_end(texts, rules),
        Element::Text(_) | Element::Class { .. } | Element::Any | Element::Token { .. } => true,
    };
    texts.iter().any(|text| text.iter().all(ends))
}

struct Writer<'a> {
    lark: String,
    /// What the rules `g` and a number stand for.
    groups: Vec<&'a Alternatives>,
}

impl<'a> Writer<'a> {
    fn rule(&mut self, name: &str, texts: &'a Alternatives) {
        let texts: Vec<String> = texts.iter().map(|text| self.sequence(text)).collect();
        self.line(name, &texts.join(" | "));
    }

    fn line(&mut self, name: &str, texts: &str) {
        self.lark.extend([name, ": ", texts, "\n"]);
    }

    fn sequence(&mut self, items: &'a [Item]) -> String {
        let items: Vec<String> = items.iter().map(|item| self.item(item)).collect();
        match items.is_empty() {
            true => EMPTY.to_owned(),
            false => items.join(" "),
        }
    }

    fn item(&mut self, item: &'a Item) -> String {
        let what = match &item.what {
            Element::Text(chars) => {
                let chars: Vec<String> = chars.iter().map(|&c| class(false, &[(c, c)])).collect();
                match (chars.len(), item.min, item.max) {
                    (1, ..) | (_, 1, Some(1)) => chars.join(" "),
                    _ => format!("({})", chars.join(" ")),
                }
            }
            Element::Class { negated, ranges } => class(*negated, ranges),
            Element::Any => "/(?s:.)/".to_owned(),
            Element::Token { id, negated } => {
                format!("<[{}{id}]>", if *negated { "^" } else { "" })
            }
            Element::Rule(rule) => format!("r{rule}"),
            Element::Group(texts) => {
                self.groups.push(texts);
                format!("g{}", self.groups.len() - 1)
            }
        };
        match (item.min, item.max) {
            (_, Some(0)) => EMPTY.to_owned(),
            (1, Some(1)) => what,
            (0, Some(1)) => what + "?",
            (0, None) => what + "*",
            (1, None) => what + "+",
            (min, None) => format!("{what}{{{min},}}"),
            (min, Some(max)) => format!("{what}{{{min},{max}}}"),
        }
    }
}

/// The empty text.
const EMPTY: &str = "\"\"";

/// A lexeme of one character.
fn class(negated: bool, ranges: &[(char, char)]) -> String {
    let mut class = String::from(if negated { "/[^" } else { "/[" });
    for &(first, last) in ranges {
        let (first, last) = (u32::from(first), u32::from(last));
        // Writing to a string does not fail.
        let _ = match first == last {
            true => write!(class, "\\x{{{first:X}}}"),
            false => write!(class, "\\x{{{first:X}}}-\\x{{{last:X}}}"),
        };
    }
    class + "]/"
}
