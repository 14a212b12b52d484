//! Making networks.

use std::collections::HashMap;

use regex_syntax::hir::ClassUnicode;
use regex_syntax::utf8::Utf8Sequences;

use super::{Automaton, Classes, Edge, Network, NodeId, RuleId, Twin};

/// A network while it is made. Nodes belong to the rule that was begun last.
#[derive(Default)]
pub(crate) struct Builder {
    /// In any order, with bytes in place of their classes.
    edges: Vec<(NodeId, Edge)>,
    rule_of: Vec<RuleId>,
    /// In the order of their numbers.
    rules: Vec<Option<Automaton>>,
    rule: RuleId,
    twins: HashMap<NodeId, Twin>,
}

impl Builder {
    /// The number of another rule, which has to be begun some time.
    pub(crate) fn new_rule(&mut self) -> RuleId {
        self.rules.push(None);
        self.rules.len() as RuleId - 1
    }

    /// Begins a rule: its start and its end.
    pub(crate) fn begin(&mut self, rule: RuleId) -> (NodeId, NodeId) {
        self.rule = rule;
        let (start, end) = (self.node(), self.node());
        self.rules[rule as usize] = Some(Automaton {
            start,
            end,
            nullable: false,
            follow: Classes::default(),
        });
        (start, end)
    }

    pub(crate) fn node(&mut self) -> NodeId {
        self.rule_of.push(self.rule);
        self.rule_of.len() as NodeId - 1
    }

    /// Number of nodes and edges.
    pub(crate) fn size(&self) -> usize {
        let (nodes, edges) = self.sizes();
        nodes + edges
    }

    /// Numbers of nodes and of edges.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.rule_of.len(), self.edges.len())
    }

    pub(crate) fn empty(&mut self, from: NodeId, to: NodeId) {
        self.edges.push((from, Edge::Empty { to }));
    }

    pub(crate) fn token(&mut self, from: NodeId, id: u32, negated: bool, to: NodeId) {
        self.edges.push((from, Edge::Token { id, negated, to }));
    }

    pub(crate) fn call(&mut self, from: NodeId, rule: RuleId, to: NodeId) {
        self.edges.push((from, Edge::Call { rule, to }));
    }

    /// A byte from `first` to `last`.
    pub(crate) fn byte(&mut self, from: NodeId, first: u8, last: u8, to: NodeId) {
        self.edges.push((from, Edge::Bytes { first, last, to }));
    }

    /// Adds edges for all of these bytes.
    pub(crate) fn bytes(&mut self, mut from: NodeId, bytes: &[u8], to: NodeId) {
        let Some((&last, others)) = bytes.split_last() else {
            return self.empty(from, to);
        };
        for &byte in others {
            let next = self.node();
            self.byte(from, byte, byte, next);
            from = next;
        }
        self.byte(from, last, last, to);
    }

    /// A character of `class`, in UTF-8.
    pub(crate) fn character(&mut self, from: NodeId, class: &ClassUnicode, to: NodeId) {
        // Nodes from which a byte of a range leads to a node: ends of characters are shared.
        let mut ends: HashMap<(u8, u8, NodeId), NodeId> = HashMap::new();
        for range in class.ranges() {
            for sequence in Utf8Sequences::new(range.start(), range.end()) {
                let mut to = to;
                let (first, rest) = match sequence.as_slice() {
                    [first, rest @ ..] => (first, rest),
                    [] => continue,
                };
                for range in rest.iter().rev() {
                    let key = (range.start, range.end, to);
                    to = *ends.entry(key).or_insert_with(|| {
                        let node = self.node();
                        self.byte(node, range.start, range.end, to);
                        node
                    });
                }
                self.byte(from, first.start, first.end, to);
            }
        }
    }

    /// A repetition between `min` and `max` times, any number without `max`. Returns pairs of
    /// nodes; the repeated part has to be put between each.
    pub(crate) fn repetition(
        &mut self,
        from: NodeId,
        (min, max): (u32, Option<u32>),
        to: NodeId,
    ) -> Vec<(NodeId, NodeId)> {
        let mut pairs = Vec::new();
        let mut at = from;
        let once = max.unwrap_or(min.saturating_sub(1));
        if max == Some(0) {
            self.empty(from, to);
        }
        for i in 0..once {
            if i >= min {
                self.empty(at, to);
            }
            let last = max == Some(i + 1);
            let next = if last { to } else { self.node() };
            pairs.push((at, next));
            at = next;
        }
        if max.is_none() {
            let first = self.node();
            // A part that has to come at least once has its exit behind it.
            let last = if min == 0 { first } else { self.node() };
            self.empty(at, first);
            pairs.push((first, last));
            if min > 0 {
                self.empty(last, first);
            }
            self.empty(last, to);
        }
        pairs
    }

    /// Finds equal nodes in a [`Self::repetition`] of something that takes at least a byte. The repeated part
    /// was put between all pairs in turn. `sizes` are those before each, and behind the last.
    ///
    /// The start of a copy is like that of the first copy that is equally optional. This is so for texts that do not
    /// reach the end of the copies, or need no longer come.
    pub(crate) fn mark_twins(
        &mut self,
        (min, max): (u32, Option<u32>),
        pairs: &[(NodeId, NodeId)],
        sizes: &[(usize, usize)],
    ) {
        let Some(max) = max else { return };
        let (min, max) = (min as usize, max as usize);
        let size = |copy: usize| {
            let ((nodes, edges), (next_nodes, next_edges)) = (sizes[copy], sizes[copy + 1]);
            (next_nodes - nodes, next_edges - edges)
        };
        // The first copy is left out: other edges may begin where it begins.
        for copy in 1..max {
            let (like, end) = match copy < min {
                true => (1, min),
                false => (min.max(1), max),
            };
            let reach = (end - copy).saturating_sub(2) as u32;
            if copy == like || reach == 0 || size(copy) != size(like) {
                continue;
            }
            self.twin(pairs[copy].0, pairs[like].0, reach);
            let (nodes, likes) = (sizes[copy].0..sizes[copy + 1].0, sizes[like].0..);
            for (node, like) in nodes.zip(likes) {
                self.twin(node as NodeId, like as NodeId, reach);
            }
        }
    }

    /// Notes that a node is like another, which may itself be like one, for texts of `reach` bytes.
    fn twin(&mut self, node: NodeId, like: NodeId, reach: u32) {
        let twin = match self.twins.get(&like) {
            Some(twin) => Twin {
                node: twin.node,
                reach: twin.reach.min(reach),
            },
            None => Twin { node: like, reach },
        };
        self.twins.insert(node, twin);
    }

    /// The network, whose rule 0 is the whole; none, if it has no text.
    pub(crate) fn finish(mut self) -> Option<Network> {
        let mut rules: Vec<Automaton> = self.rules.into_iter().flatten().collect();
        let live = live(&self.edges, &rules, self.rule_of.len());
        self.edges.retain(|(from, edge)| {
            let lives = |node: NodeId| live[node as usize];
            let called = match *edge {
                Edge::Call { rule, .. } => lives(rules[rule as usize].start),
                _ => true,
            };
            called && lives(*from) && lives(edge.to())
        });
        let start = rules.first()?.start;
        if !live[start as usize] {
            return None;
        }
        let nodes = self.rule_of.len();
        leave_out_empty(&mut self.edges, &mut rules, &self.twins, nodes);
        let to_end = mark_nullable(&self.edges, &mut rules, self.rule_of.len());
        let classes = classes(&self.edges);
        self.edges.sort_by_key(|&(from, _)| from);
        let firsts = (0..=self.rule_of.len() as NodeId)
            .map(|node| self.edges.partition_point(|&(from, _)| from < node) as u32);
        let mut network = Network {
            firsts: firsts.collect(),
            edges: (self.edges.iter())
                .map(|(_, edge)| in_classes(*edge, &classes))
                .collect(),
            rule_of: self.rule_of,
            rules,
            classes,
            twins: self.twins,
        };
        for (rule, follow) in network.find_follow(&to_end).into_iter().enumerate() {
            network.rules[rule].follow = follow;
        }
        Some(network)
    }
}

/// Leaves out nodes that only lead to another with nothing: a chain of rules would be as many items of a state. Nodes
/// of repetitions stay, which are compared one by one.
fn leave_out_empty(
    edges: &mut Vec<(NodeId, Edge)>,
    rules: &mut [Automaton],
    twins: &HashMap<NodeId, Twin>,
    nodes: usize,
) {
    let mut ways: Vec<NodeId> = (0..nodes as NodeId).collect();
    let mut leading = vec![0_u32; ways.len()];
    for (from, edge) in edges.iter() {
        leading[*from as usize] += 1;
        if let Edge::Empty { to } = *edge {
            ways[*from as usize] = to;
        }
    }
    let mut stays: Vec<bool> = leading.iter().map(|&edges| edges != 1).collect();
    for (&node, twin) in twins {
        (stays[node as usize], stays[twin.node as usize]) = (true, true);
    }
    for rule in rules.iter() {
        stays[rule.end as usize] = true;
    }
    for (node, stays) in stays.iter().enumerate() {
        if *stays {
            ways[node] = node as NodeId;
        }
    }
    edges.retain(|(from, _)| ways[*from as usize] == *from);
    for (_, edge) in edges.iter_mut() {
        *edge.to_mut() = shortest(&mut ways, edge.to());
    }
    for rule in rules {
        rule.start = shortest(&mut ways, rule.start);
    }
}

/// Returns the node that a node leads to with nothing: ways to it are shortened.
fn shortest(ways: &mut [NodeId], node: NodeId) -> NodeId {
    let mut end = node;
    // It ends: from all nodes that are left a rule's end can be reached.
    while ways[end as usize] != end {
        end = ways[end as usize];
    }
    let mut at = node;
    while ways[at as usize] != end && at != end {
        at = std::mem::replace(&mut ways[at as usize], end);
    }
    end
}

fn in_classes(edge: Edge, classes: &[u8; 256]) -> Edge {
    match edge {
        Edge::Bytes { first, last, to } => Edge::Bytes {
            first: classes[first as usize],
            last: classes[last as usize],
            to,
        },
        other => other,
    }
}

/// The nodes from which the end of their rule can be reached.
fn live(edges: &[(NodeId, Edge)], rules: &[Automaton], nodes: usize) -> Vec<bool> {
    let mut live = vec![false; nodes];
    for rule in rules {
        live[rule.end as usize] = true;
    }
    reach(edges, rules, &mut live, |_| true);
    live
}

/// Marks the rules that have the empty text. Returns from which nodes the end of their rule is
/// reached with nothing.
fn mark_nullable(edges: &[(NodeId, Edge)], rules: &mut [Automaton], nodes: usize) -> Vec<bool> {
    let mut reached = vec![false; nodes];
    for rule in rules.iter() {
        reached[rule.end as usize] = true;
    }
    let empty = |edge: &Edge| matches!(edge, Edge::Empty { .. } | Edge::Call { .. });
    reach(edges, rules, &mut reached, empty);
    for rule in rules {
        rule.nullable = reached[rule.start as usize];
    }
    reached
}

/// Adds to `reached` the nodes from which edges of `along` lead there. Calls count if the start of the rule is
/// there, too. Each edge is looked at once, a call twice.
fn reach(
    edges: &[(NodeId, Edge)],
    rules: &[Automaton],
    reached: &mut [bool],
    along: impl Fn(&Edge) -> bool,
) {
    let called = |edge: &Edge| match *edge {
        Edge::Call { rule, .. } => Some(rules[rule as usize].start),
        _ => None,
    };
    // The edges that a node is waited for by, in the order of nodes.
    let mut waiting: Vec<(NodeId, u32)> = Vec::new();
    for (i, (_, edge)) in edges.iter().enumerate() {
        if along(edge) {
            waiting.push((edge.to(), i as u32));
            waiting.extend(called(edge).map(|start| (start, i as u32)));
        }
    }
    waiting.sort_unstable();
    let mut left: Vec<NodeId> = (0..reached.len() as NodeId)
        .filter(|&node| reached[node as usize])
        .collect();
    while let Some(node) = left.pop() {
        let first = waiting.partition_point(|&(other, _)| other < node);
        let of_node = waiting[first..].iter();
        for &(_, i) in of_node.take_while(|(other, _)| *other == node) {
            let (from, edge) = &edges[i as usize];
            let is_there = |node: NodeId| reached[node as usize];
            let leads = is_there(edge.to()) && called(edge).is_none_or(is_there);
            if leads && !is_there(*from) {
                reached[*from as usize] = true;
                left.push(*from);
            }
        }
    }
}

/// Numbers of classes of bytes, so that an edge has either all bytes of a class or none.
fn classes(edges: &[(NodeId, Edge)]) -> [u8; 256] {
    let mut begins = [false; 256];
    for (_, edge) in edges {
        if let Edge::Bytes { first, last, .. } = *edge {
            begins[first as usize] = true;
            if let Some(next) = last.checked_add(1) {
                begins[next as usize] = true;
            }
        }
    }
    let mut class = 0;
    let mut classes = [0; 256];
    for (byte, begins) in begins.iter().enumerate() {
        class += u8::from(*begins && byte > 0);
        classes[byte] = class;
    }
    classes
}
