//! What may follow the texts of rules.

use std::collections::HashSet;

use super::{Classes, Edge, Network, NodeId, RuleId};

/// What comes first behind nodes.
#[derive(Default)]
struct First {
    classes: Classes,
    /// Rules that may end without anything more.
    ends: Vec<RuleId>,
}

impl Network {
    /// The classes of bytes that may follow each rule's texts: FOLLOW, as compilers call it.
    pub(super) fn find_follow(&self) -> Vec<Classes> {
        let mut callers: Vec<Vec<NodeId>> = vec![Vec::new(); self.rules.len()];
        for edge in &self.edges {
            if let Edge::Call { rule, to } = *edge {
                callers[rule as usize].push(to);
            }
        }
        let firsts: Vec<First> = callers.into_iter().map(|nodes| self.first(nodes)).collect();
        let mut follow: Vec<Classes> = firsts.iter().map(|first| first.classes).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (rule, first) in firsts.iter().enumerate() {
                for &caller in &first.ends {
                    let further = follow[caller as usize];
                    changed |= follow[rule].extend(further);
                }
            }
        }
        follow
    }

    /// What comes first behind any of these nodes.
    fn first(&self, mut left: Vec<NodeId>) -> First {
        let mut first = First::default();
        let mut seen: HashSet<NodeId> = left.iter().copied().collect();
        // Ends of rules that are entered here are no ends of the rules that the nodes are in.
        let outer: Vec<RuleId> = left.iter().map(|&node| self.rule_of(node)).collect();
        while let Some(node) = left.pop() {
            let rule = self.rule_of(node);
            if self.is_end(node) && outer.contains(&rule) {
                first.ends.push(rule);
            }
            for edge in self.edges(node) {
                let mut add = |node| {
                    if seen.insert(node) {
                        left.push(node);
                    }
                };
                match *edge {
                    Edge::Empty { to } => add(to),
                    Edge::Bytes {
                        first: low, last, ..
                    } => {
                        (low..=last).for_each(|class| first.classes.insert(class));
                    }
                    Edge::Token { .. } => {}
                    Edge::Call { rule, to } => {
                        add(self.start(rule));
                        if self.is_nullable(rule) {
                            add(to);
                        }
                    }
                }
            }
        }
        first
    }
}
