//! The bytes that may follow the texts of rules.

use super::{Classes, Edge, Network, NodeId};
use crate::graph::for_each_component;

impl Network {
    /// The classes of bytes that may follow each rule's texts: FOLLOW, as compilers call it. `to_end` says from which
    /// nodes the end of their rule is reached with nothing.
    pub(super) fn find_follow(&self, to_end: &[bool]) -> Vec<Classes> {
        let (nodes, rules) = (self.rule_of.len(), self.rules.len());
        let mut callers: Vec<Vec<NodeId>> = vec![Vec::new(); rules];
        for edge in &self.edges {
            if let Edge::Call { rule, to } = *edge {
                callers[rule as usize].push(to);
            }
        }
        if callers.iter().all(Vec::is_empty) {
            return vec![Classes::default(); rules];
        }
        // Sets are made of others: that of a node, FIRST, and behind those that of a rule.
        let parts = |set: usize, parts: &mut Vec<usize>| match set.checked_sub(nodes) {
            None => self.first_parts(set as NodeId, parts),
            Some(rule) => {
                for &node in &callers[rule] {
                    parts.push(node as usize);
                    if to_end[node as usize] {
                        parts.push(nodes + self.rule_of(node) as usize);
                    }
                }
            }
        };
        let mut sets = vec![Classes::default(); nodes + rules];
        let mut some = Vec::new();
        for_each_component(nodes + rules, parts, |members| {
            let mut whole = Classes::default();
            for &set in members {
                if set < nodes {
                    self.add_classes(set as NodeId, &mut whole);
                }
                some.clear();
                parts(set, &mut some);
                some.iter().for_each(|&part| whole.extend(sets[part]));
            }
            members.iter().for_each(|&set| sets[set] = whole);
        });
        sets.split_off(nodes)
    }

    /// Adds the nodes whose bytes may come first behind this one, but for its own.
    fn first_parts(&self, node: NodeId, parts: &mut Vec<usize>) {
        for edge in self.edges(node) {
            match *edge {
                Edge::Empty { to } => parts.push(to as usize),
                Edge::Bytes { .. } | Edge::Token { .. } => {}
                Edge::Call { rule, to } => {
                    parts.push(self.start(rule) as usize);
                    if self.is_nullable(rule) {
                        parts.push(to as usize);
                    }
                }
            }
        }
    }

    /// Adds the classes of bytes of a node's edges.
    fn add_classes(&self, node: NodeId, classes: &mut Classes) {
        for edge in self.edges(node) {
            if let Edge::Bytes { first, last, .. } = *edge {
                (first..=last).for_each(|class| classes.insert(class));
            }
        }
    }
}
