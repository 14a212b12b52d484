//! Reports of passes: which operations became which.

use std::collections::HashMap;
use std::fmt;

use super::{Origins, Pass, Rewritten};
use crate::{Graph, Node};

/// Reports of the passes over a graph: those over what was recorded, and those of planning. Each list has the name of its
/// stage.
pub type Stages = [(&'static str, Vec<Changes>); 2];

/// The changes of a graph by a pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Name of the pass.
    pub pass: &'static str,
    /// Numbers of nodes before and after it.
    pub nodes: [usize; 2],
    /// Operations in place of others, in the order of the new graph.
    pub replaced: Vec<Replaced>,
    /// Has it put nodes into another order?
    pub reordered: bool,
}

/// Operations that a pass put in place of others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// The operations before the pass.
    pub from: String,
    /// The operations in their place; empty if they are left out.
    pub to: String,
    /// Number of places.
    pub count: usize,
}

impl Changes {
    /// The changes of `before` by a pass that returned `rewritten`.
    pub fn of(pass: &(impl Pass + ?Sized), before: &Graph, rewritten: Option<&Rewritten>) -> Self {
        Self::between(pass.name(), before, rewritten)
    }

    /// [`Self::of`], by the name of a pass.
    pub fn between(pass: &'static str, before: &Graph, rewritten: Option<&Rewritten>) -> Self {
        let nodes = before.nodes().len();
        let mut changes = Self {
            pass,
            nodes: [nodes; 2],
            replaced: Vec::new(),
            reordered: false,
        };
        let Some(Rewritten { graph, origins }) = rewritten else {
            return changes;
        };
        changes.nodes[1] = graph.nodes().len();
        changes.reordered = !origins.is_sorted_by_key(|of| of[0]);
        let mut uses = vec![0; nodes];
        origins.iter().flatten().for_each(|&at| uses[at] += 1);
        let mut order: Vec<&Origins> = Vec::new();
        let mut of: HashMap<&Origins, Vec<&Node>> = HashMap::new();
        for (node, origins) in graph.nodes().iter().zip(origins) {
            // Most are as they were.
            if let [only] = origins[..]
                && uses[only] == 1
                && before.nodes()[only].op == node.op
            {
                continue;
            }
            let nodes = of.entry(origins).or_default();
            if nodes.is_empty() {
                order.push(origins);
            }
            nodes.push(node);
        }
        let node = |at: usize| &before.nodes()[at];
        for origins in order {
            let from = names(origins.iter().map(|&at| node(at)));
            let to = names(of[origins].iter().copied());
            changes.add(from, to);
        }
        for at in (0..nodes).filter(|&at| uses[at] == 0) {
            changes.add(names([node(at)]), String::new());
        }
        changes
    }

    fn add(&mut self, from: String, to: String) {
        if from == to {
            return;
        }
        let mut known = self.replaced.iter_mut();
        match known.find(|known| known.from == from && known.to == to) {
            Some(known) => known.count += 1,
            None => self.replaced.push(Replaced { from, to, count: 1 }),
        }
    }
}

/// `conv2d, 2 add`: functions in the order of their first nodes.
fn names<'g>(nodes: impl IntoIterator<Item = &'g Node>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in nodes.into_iter().map(|node| node.op.function()) {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let names = counts.into_iter().map(|(name, count)| match count {
        1 => name.to_owned(),
        _ => format!("{count} {name}"),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// `fusion: 9 nodes, then 5`, and a line for each replacement.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pass,
            nodes: [before, after],
            replaced,
            reordered,
        } = self;
        if replaced.is_empty() && !reordered {
            return write!(f, "{pass}: no change of {before} nodes");
        }
        write!(f, "{pass}: {before} nodes, then {after}")?;
        if *reordered {
            f.write_str(", in another order")?;
        }
        replaced.iter().try_for_each(|r| write!(f, "\n  {r}"))
    }
}

/// `2 x: rms_norm, linear -> fused_linear`.
impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, count } = self;
        let to = if to.is_empty() { "nothing" } else { to };
        match count {
            1 => write!(f, "{from} -> {to}"),
            _ => write!(f, "{count} times {from} -> {to}"),
        }
    }
}
