//! Grammars as networks: of each rule an automaton over bytes that may call other rules' (a
//! recursive transition network; Woods, "Transition network grammars for natural language
//! analysis", 1970). Regular expressions are networks without calls.

mod build;
mod follow;
mod regex;

pub(crate) use build::Builder;
pub(crate) use regex::of_regex;

use std::collections::HashMap;

use crate::trie::Bytes;

/// A node of an automaton, by its number in the network.
pub(crate) type NodeId = u32;
/// A rule with its own automaton, by its number in the network.
pub(crate) type RuleId = u32;

/// A way on from a node to the node `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Edge without a byte.
    Empty { to: NodeId },
    /// With a byte of the classes from `first` to `last`.
    Bytes { first: u8, last: u8, to: NodeId },
    /// With a token, or any but it.
    Token { id: u32, negated: bool, to: NodeId },
    /// With a text of a rule.
    Call { rule: RuleId, to: NodeId },
}

impl Edge {
    fn to(&self) -> NodeId {
        match *self {
            Self::Empty { to }
            | Self::Bytes { to, .. }
            | Self::Token { to, .. }
            | Self::Call { to, .. } => to,
        }
    }

    fn to_mut(&mut self) -> &mut NodeId {
        match self {
            Self::Empty { to }
            | Self::Bytes { to, .. }
            | Self::Token { to, .. }
            | Self::Call { to, .. } => to,
        }
    }
}

/// The automata of a grammar. From every node its rule's end can be reached.
#[derive(Debug)]
pub(crate) struct Network {
    /// The edges of all nodes, in the order of nodes.
    edges: Vec<Edge>,
    /// The first edge of a node; one more than there are nodes.
    firsts: Vec<u32>,
    /// The rule of a node.
    rule_of: Vec<RuleId>,
    rules: Vec<Automaton>,
    /// The class of a byte. The class of each byte. The network treats bytes of one class alike,
    /// and their numbers follow each other.
    classes: [u8; 256],
    /// Nodes like which others are.
    twins: HashMap<NodeId, Twin>,
}

/// A similar node: every continuation of the one is a continuation of the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    pub(crate) node: NodeId,
    /// Number of bytes for which this holds.
    pub(crate) reach: u32,
}

/// The first and last nodes of a rule's texts.
#[derive(Clone, Copy, Debug)]
struct Automaton {
    start: NodeId,
    end: NodeId,
    /// Whether it has the empty text.
    nullable: bool,
    /// The classes of bytes that may follow its texts.
    follow: Classes,
}

/// A set of classes of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes([u64; 4]);

impl Classes {
    /// Adds a class.
    pub(crate) fn insert(&mut self, class: u8) {
        self.0[class as usize / 64] |= 1 << (class % 64);
    }

    /// Adds others.
    fn extend(&mut self, others: Self) {
        for (word, other) in self.0.iter_mut().zip(others.0) {
            *word |= other;
        }
    }

    /// Is a class in the set?
    pub(crate) fn contains(&self, class: u8) -> bool {
        self.0[class as usize / 64] >> (class % 64) & 1 == 1
    }
}

impl Network {
    /// The ways on from a node.
    pub(crate) fn edges(&self, node: NodeId) -> &[Edge] {
        let node = node as usize;
        &self.edges[self.firsts[node] as usize..self.firsts[node + 1] as usize]
    }

    /// The rule whose automaton a node is in.
    pub(crate) fn rule_of(&self, node: NodeId) -> RuleId {
        self.rule_of[node as usize]
    }

    /// The first node of a rule's texts. Rule 0 is the whole grammar's.
    pub(crate) fn start(&self, rule: RuleId) -> NodeId {
        self.rules[rule as usize].start
    }

    /// Does a text of a node's rule end there?
    pub(crate) fn is_end(&self, node: NodeId) -> bool {
        self.rules[self.rule_of(node) as usize].end == node
    }

    /// Does a rule have the empty text?
    pub(crate) fn is_nullable(&self, rule: RuleId) -> bool {
        self.rules[rule as usize].nullable
    }

    /// The classes of bytes that may follow the texts of a rule, whatever calls it.
    pub(crate) fn follow(&self, rule: RuleId) -> Classes {
        self.rules[rule as usize].follow
    }

    /// The node like which a node is: one that comes earlier, and is like no other.
    pub(crate) fn twin(&self, node: NodeId) -> Option<Twin> {
        self.twins.get(&node).copied()
    }

    /// The class of a byte.
    pub(crate) fn class(&self, byte: u8) -> u8 {
        self.classes[byte as usize]
    }

    /// The bytes of classes.
    pub(crate) fn bytes(&self, classes: Classes) -> Bytes {
        Bytes::of(|byte| classes.contains(self.class(byte)))
    }

    /// Number of classes of bytes.
    pub(crate) fn class_count(&self) -> usize {
        self.class(u8::MAX) as usize + 1
    }
}
