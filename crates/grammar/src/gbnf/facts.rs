//! Facts about rules that follow from their parts.

use super::{Alternatives, Element, Item, Rule};
use crate::graph::{Statement, Statements};

/// Something that holds of an item, or of texts of rules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    /// There is a text that is finite.
    Ends,
    /// Each text has bytes, as far as that can be seen.
    TakesBytes,
}

impl Fact {
    /// Returns for each rule whether it holds.
    pub(super) fn of_rules(self, rules: &[Rule]) -> Vec<bool> {
        let mut statements = Statements::default();
        for _ in rules {
            statements.add(1);
        }
        for (number, rule) in rules.iter().enumerate() {
            let texts = self.of_texts(rule.alternatives(), &mut statements);
            statements.join(texts, number);
        }
        let mut holds = statements.solve();
        holds.truncate(rules.len());
        holds
    }

    /// Returns the statement that it holds of texts. A rule's statement has the rule's number.
    fn of_texts(self, texts: &Alternatives, statements: &mut Statements) -> Statement {
        let mut of_text = |items: &Vec<Item>| {
            let items: Vec<Statement> = (items.iter())
                .map(|item| self.of_item(item, statements))
                .collect();
            match self {
                Self::Ends => statements.all(&items),
                Self::TakesBytes => statements.any(&items),
            }
        };
        let texts: Vec<Statement> = texts.iter().map(&mut of_text).collect();
        match self {
            Self::Ends => statements.any(&texts),
            Self::TakesBytes => statements.all(&texts),
        }
    }

    fn of_item(self, item: &Item, statements: &mut Statements) -> Statement {
        match &item.what {
            // It may be left out.
            _ if item.min == 0 => statements.constant(self == Self::Ends),
            Element::Rule(rule) => *rule,
            Element::Group(texts) => self.of_texts(texts, statements),
            Element::Token { .. } => statements.constant(self == Self::Ends),
            Element::Text(_) | Element::Class { .. } | Element::Any => statements.constant(true),
        }
    }
}
