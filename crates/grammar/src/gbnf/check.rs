//! Checks of grammars that can be parsed and are still refused.

use super::facts::Fact;
use super::{Alternatives, Element, Item, Rule, error_at};
use crate::GrammarError;

/// Elements that a rule may have with everything repeated as often as it must or may at most.
const MAX_SIZE: u64 = 100_000;

/// Refuses a rule that is too large or never ends.
pub(super) fn check(text: &str, rules: &[Rule]) -> Result<(), GrammarError> {
    let large = |rule: &&Rule| size(rule.alternatives()) > MAX_SIZE;
    if let Some(rule) = rules.iter().find(large) {
        let reason = format!(
            "the repetitions of {} make it larger than {MAX_SIZE} elements; repeat less",
            rule.name
        );
        return Err(error_at(text, rule.at, reason));
    }
    let Some(rule) = endless(rules) else {
        return Ok(());
    };
    let reason = format!(
        "{} never ends: each of its texts contains another one",
        rule.name
    );
    Err(error_at(text, rule.at, reason))
}

/// Number of elements that a text may have, a rule counting as one.
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

/// A rule without a finite text.
fn endless(rules: &[Rule]) -> Option<&Rule> {
    let ends = Fact::Ends.of_rules(rules);
    let endless = ends.iter().position(|end| !end)?;
    rules.get(endless)
}
