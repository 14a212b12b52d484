//! Fusion: nodes are replaced by one composite operation that a device runs faster.
//!
//! A composite that is worth it has a [`Rule`] that finds the nodes that it can replace. [`Fusion`]
//! applies rules wherever the device of those nodes has a kernel for the composite. Three
//! conditions keep the graph's results. No other node needs a hidden value. No other node has to
//! run between the replaced ones. Readers of a state still run before the state is written over.

mod rules;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use smallvec::SmallVec;

pub use rules::RULES;

use super::{Pass, Places, Rewriting, Rewritten};
use crate::ops::BinaryOp;
use crate::order::sort_by_key;
use crate::{Graph, Op, OpError, Role, Signature, TensorType, ValueId};

/// The matches whose first node is `at`, the best first.
pub type Rule = fn(&Finder, at: usize) -> Vec<Match>;

/// An operation that replaces some nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Match {
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub inputs: SmallVec<[ValueId; 8]>,
    /// Indices of the nodes that it replaces.
    pub nodes: SmallVec<[usize; 8]>,
    /// The values that its results replace, in their order. Other results of the nodes must not be
    /// used.
    pub results: SmallVec<[ValueId; 4]>,
}

/// A graph in the form that rules read.
pub struct Finder<'g> {
    graph: &'g Graph,
    /// For each value, the nodes that read it.
    readers: Vec<SmallVec<[usize; 2]>>,
    is_output: Vec<bool>,
    /// Found once for all nodes, see [`Finder::updates`] and [`Finder::conversions`].
    updates: OnceCell<Vec<Match>>,
    conversions: OnceCell<Vec<Match>>,
}

impl<'g> Finder<'g> {
    /// Looks at `graph`.
    pub fn new(graph: &'g Graph) -> Self {
        let mut readers: Vec<SmallVec<[usize; 2]>> = vec![SmallVec::new(); graph.len()];
        for (at, node) in graph.nodes().iter().enumerate() {
            for value in &node.inputs {
                let readers = &mut readers[value.index()];
                if readers.last() != Some(&at) {
                    readers.push(at);
                }
            }
        }
        let mut is_output = vec![false; graph.len()];
        for value in graph.outputs() {
            is_output[value.index()] = true;
        }
        Self {
            graph,
            readers,
            is_output,
            updates: OnceCell::new(),
            conversions: OnceCell::new(),
        }
    }

    /// The updates of states that can be made together, which `find` looks for once.
    pub(crate) fn updates(&self, find: impl FnOnce(&Self) -> Vec<Match>) -> &[Match] {
        self.updates.get_or_init(|| find(self))
    }

    /// The conversions that can be made together, which `find` looks for once.
    pub(crate) fn conversions(&self, find: impl FnOnce(&Self) -> Vec<Match>) -> &[Match] {
        self.conversions.get_or_init(|| find(self))
    }

    /// The graph.
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    /// The operation of a node.
    pub fn op(&self, at: usize) -> &'g Op {
        &self.graph.nodes()[at].op
    }

    /// The operands of a node.
    pub fn operands(&self, at: usize) -> &'g [ValueId] {
        &self.graph.nodes()[at].inputs
    }

    /// The first result of a node.
    pub fn result(&self, at: usize) -> ValueId {
        self.graph.nodes()[at].result(0)
    }

    /// The node that computes a value.
    pub fn producer(&self, value: ValueId) -> Option<usize> {
        self.graph.producer(value)
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &'g TensorType {
        self.graph.ty(value)
    }

    /// The nodes that read a value, in order.
    pub fn readers(&self, value: ValueId) -> &[usize] {
        &self.readers[value.index()]
    }

    /// Returns whether the value is an output of the graph.
    pub fn is_output(&self, value: ValueId) -> bool {
        self.is_output[value.index()]
    }

    /// The only node that uses a value.
    pub fn only_reader(&self, value: ValueId) -> Option<usize> {
        match *self.readers(value) {
            [reader] if !self.is_output(value) => Some(reader),
            _ => None,
        }
    }

    /// The terms of a sum node.
    pub fn terms(&self, at: usize) -> Option<[ValueId; 2]> {
        match (self.op(at), self.operands(at)) {
            (Op::Binary(op), &[a, b]) if op.op == BinaryOp::Add => Some([a, b]),
            _ => None,
        }
    }

    /// The sum that is the only user of a value, and its other term of the same type.
    pub fn sum_with(&self, value: ValueId) -> Option<(usize, ValueId)> {
        let at = self.only_reader(value)?;
        let [a, b] = self.terms(at)?;
        let other = if a == value { b } else { a };
        (a != b && self.ty(other) == self.ty(value)).then_some((at, other))
    }

    /// Are the nodes' results that `found` does not give needed by its own nodes only?
    fn hides(&self, found: &Match) -> bool {
        let own = Sorted::new(&found.nodes);
        let given = Sorted::new(&found.results);
        let results = found
            .nodes
            .iter()
            .flat_map(|&at| self.graph.nodes()[at].results());
        let mut hidden = results.filter(|&value| !given.contains(value));
        hidden.all(|value| {
            let mut readers = self.readers(value).iter();
            !self.is_output(value) && readers.all(|&reader| own.contains(reader))
        })
    }
}

/// Nodes or values in order, among which one is found fast.
struct Sorted<T>(SmallVec<[T; 8]>);

impl<T: Copy + Ord> Sorted<T> {
    fn new(list: &[T]) -> Self {
        let mut sorted: SmallVec<[T; 8]> = list.iter().copied().collect();
        sort_by_key(&mut sorted, |&member| member);
        Self(sorted)
    }

    fn contains(&self, member: T) -> bool {
        self.0.binary_search(&member).is_ok()
    }
}

/// Composites in place of several nodes, by the first rule that fits. It replaces neighbours of one device, by
/// operations that the device supports.
pub struct Fusion<'r> {
    /// The rules, in the order in which they are tried.
    pub rules: &'r [Rule],
}

impl Default for Fusion<'_> {
    /// All rules of this crate's composites.
    fn default() -> Self {
        Self { rules: RULES }
    }
}

impl Pass for Fusion<'_> {
    fn name(&self) -> &'static str {
        "fusion"
    }

    fn run(&self, graph: &Graph, places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        let count = graph.nodes().len();
        if count < 2 {
            return Ok(None);
        }
        // Neighbours of one device have one number.
        let mut runs = vec![0_usize; count];
        for at in 1..count {
            let is_other = places.device(at) != places.device(at - 1);
            runs[at] = runs[at - 1] + usize::from(is_other);
        }
        let finder = Finder::new(graph);
        let mut groups = Groups::new(&finder);
        for at in 0..count {
            for rule in self.rules {
                if groups.of[at].is_some() {
                    break;
                }
                for found in rule(&finder, at) {
                    let is_free =
                        |&node: &usize| groups.of[node].is_none() && runs[node] == runs[at];
                    let fits = found.nodes.iter().all(is_free)
                        && finder.hides(&found)
                        && has_kernel(graph, &found, |s| places.supports(at, s))?
                        && groups.stays_acyclic(&found);
                    if fits {
                        groups.add(found);
                        break;
                    }
                }
            }
        }
        match groups.matches.is_empty() {
            true => Ok(None),
            false => groups.emit().map(Some),
        }
    }
}

/// Is the operation of `found` supported, with results of the types that it replaces?
fn has_kernel(
    graph: &Graph,
    found: &Match,
    supports: impl FnOnce(&Signature) -> bool,
) -> Result<bool, OpError> {
    let inputs: SmallVec<[&TensorType; 8]> = found.inputs.iter().map(|&v| graph.ty(v)).collect();
    let outputs = found.op.def().infer(&inputs)?;
    let replaced = found.results.iter().map(|&v| graph.ty(v));
    if !outputs.iter().eq(replaced.clone()) {
        let replaced: Vec<String> = replaced.map(ToString::to_string).collect();
        let got = format_args!("a rule that replaces {}", replaced.join(", "));
        return Err(OpError::new(
            found.op.name(),
            "values of its results' types",
            got,
        ));
    }
    Ok(supports(&Signature {
        op: &found.op,
        inputs: &inputs,
        outputs: &outputs,
    }))
}

/// The first and the last of some nodes.
fn ends(nodes: &[usize]) -> (usize, usize) {
    let first = nodes.iter().copied().min().unwrap_or_default();
    (first, nodes.iter().copied().max().unwrap_or_default())
}

/// Nodes that are replaced together.
struct Groups<'f, 'g> {
    finder: &'f Finder<'g>,
    matches: Vec<Match>,
    /// Match of each node.
    of: Vec<Option<usize>>,
    /// For each node, the nodes that have to come after it because they write over its operands.
    writers: Vec<SmallVec<[usize; 1]>>,
    /// For each node, the last node of the matches that begin with it or earlier; itself, if they end earlier.
    reach: Vec<usize>,
}

impl<'f, 'g> Groups<'f, 'g> {
    fn new(finder: &'f Finder<'g>) -> Self {
        let nodes = finder.graph.nodes();
        let mut writers = vec![SmallVec::new(); nodes.len()];
        for (writer, node) in nodes.iter().enumerate() {
            for (_, operand) in node.overwrites() {
                // The state, and what shows it, are read by others before.
                let mut shown: SmallVec<[ValueId; 4]> =
                    [node.inputs[operand]].into_iter().collect();
                while let Some(value) = shown.pop() {
                    for &reader in finder.readers(value).iter().filter(|&&r| r < writer) {
                        writers[reader].push(writer);
                        if nodes[reader].op.def().role() == Role::View {
                            shown.push(nodes[reader].result(0));
                        }
                    }
                }
            }
        }
        Self {
            finder,
            matches: Vec::new(),
            of: vec![None; nodes.len()],
            writers,
            reach: (0..nodes.len()).collect(),
        }
    }

    fn add(&mut self, found: Match) {
        for &node in &found.nodes {
            self.of[node] = Some(self.matches.len());
        }
        let (first, last) = ends(&found.nodes);
        for reach in &mut self.reach[first..last] {
            *reach = last.max(*reach);
        }
        self.matches.push(found);
    }

    /// The nodes that have to come after a node.
    fn followers(&self, at: usize) -> impl Iterator<Item = usize> {
        let results = self.finder.graph.nodes()[at].results();
        let readers = results.flat_map(|value| self.finder.readers(value).iter().copied());
        readers.chain(self.writers[at].iter().copied())
    }

    /// Does no way lead from the nodes of `found` through others back to them?
    fn stays_acyclic(&self, found: &Match) -> bool {
        let own = Sorted::new(&found.nodes);
        // Ways lead to later nodes, but where they pass a match that begins earlier. No match lies on both sides of `last`,
        // so that none comes back from behind it.
        let mut last = ends(&found.nodes).1;
        while self.reach[last] > last {
            last = self.reach[last];
        }
        let mut met: HashSet<usize> = HashSet::new();
        let mut ahead: Vec<usize> = found
            .nodes
            .iter()
            .flat_map(|&at| self.followers(at))
            .collect();
        ahead.retain(|&node| !own.contains(node));
        while let Some(at) = ahead.pop() {
            if at > last || !met.insert(at) {
                continue;
            }
            let alone = [at];
            let together = match self.of[at] {
                Some(group) => &self.matches[group].nodes[..],
                None => &alone,
            };
            met.extend(together);
            for next in together.iter().flat_map(|&at| self.followers(at)) {
                if own.contains(next) {
                    return false;
                }
                ahead.push(next);
            }
        }
        true
    }

    /// The graph with each match as one node. Nodes keep their order as far as it can be.
    fn emit(&self) -> Result<Rewritten, OpError> {
        let mut out = Rewriting::new(self.finder.graph)?;
        let needed = self.needed();
        for node in self.order() {
            match self.of[node] {
                None if !needed[node] => {}
                None => out.keep(node)?,
                Some(group) => out.replace(&self.matches[group])?,
            }
        }
        out.finish()
    }

    /// For each node, is it still needed? A node that a match computes again is not, if the match alone
    /// read it.
    fn needed(&self) -> Vec<bool> {
        let graph = self.finder.graph;
        let mut needed = vec![false; self.of.len()];
        let is_end = |&at: &usize| {
            let node = &graph.nodes()[at];
            let is_read = |value| !self.finder.readers(value).is_empty();
            node.has_effects()
                || node.results().any(|value| self.finder.is_output(value))
                || !node.results().any(is_read)
        };
        let mut ahead: Vec<usize> = (0..self.of.len()).filter(is_end).collect();
        while let Some(at) = ahead.pop() {
            if std::mem::replace(&mut needed[at], true) {
                continue;
            }
            let read = match self.of[at] {
                Some(group) => &self.matches[group].inputs[..],
                None => self.finder.operands(at),
            };
            ahead.extend(read.iter().filter_map(|&value| graph.producer(value)));
        }
        needed
    }

    /// The nodes in an order in which each comes after its operands. The first node of a match
    /// stands for all of it.
    fn order(&self) -> Vec<usize> {
        let count = self.of.len();
        let first = |at: usize| self.of[at].map_or(at, |group| self.matches[group].nodes[0]);
        let mut waits_for = vec![0; count];
        let edges: Vec<SmallVec<[usize; 4]>> = (0..count)
            .map(|at| {
                let next = self.followers(at).map(first);
                next.filter(|&next| next != first(at)).collect()
            })
            .collect();
        for &next in edges.iter().flatten() {
            waits_for[next] += 1;
        }
        let mut order = Vec::with_capacity(count);
        // The first node that waits for nothing is always next.
        let mut ready = BTreeSet::new();
        ready.extend((0..count).filter(|&at| first(at) == at && waits_for[at] == 0));
        while let Some(at) = ready.pop_first() {
            order.push(at);
            let alone = [at];
            let together = match self.of[at] {
                Some(group) => &self.matches[group].nodes[..],
                None => &alone,
            };
            for &next in together.iter().flat_map(|&at| &edges[at]) {
                waits_for[next] -= 1;
                if waits_for[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        order
    }
}

#[cfg(test)]
mod tests;
