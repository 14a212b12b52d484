//! Less memory for a recorded computation: values are computed again, or moved to the host.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pass, Places, Rewriting, Rewritten};
use crate::ops::{Offload, Reload};
use crate::{Graph, Node, OpError, OpKind, Role, ValueId};

/// Multiply-accumulates of a device in the time in which it reads or writes a byte, roughly. A processor's cores
/// make fewer, and a GPU's units for products more. It only has to separate products from operations that move
/// bytes.
const MACS_PER_BYTE: f64 = 32.0;

/// Number of checks of a graph's memory on the way from all values to none.
const LOOKS: usize = 24;

/// The bytes that a device reads or writes while one byte goes to the host and back. PCI Express has a
/// sixtieth of the speed of its memory.
const MOVED_BYTE: f64 = 128.0;

/// Bytes of the smallest values that are moved to the host: smaller copies take as long.
const SMALLEST_MOVED: usize = 16 << 10;

/// Strategies for values that wait to be read and take too much memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saving {
    /// Recompute the values.
    Recompute,
    /// Move them to the host's memory, if the device supports it.
    Offload,
    /// Choose the faster one for each value.
    Either,
}

impl Saving {
    /// May values be computed again?
    fn recomputes(self) -> bool {
        self != Self::Offload
    }

    /// May values be moved?
    fn offloads(self) -> bool {
        self != Self::Recompute
    }
}

/// Values that wait too long are computed again, or wait on the host. The graph is the cheapest found whose values
/// take at most `bytes` at once; or that which takes least.
pub struct Recomputation {
    /// The value behind which others read values from before it, as gradients do behind a loss.
    pub last: ValueId,
    /// Bytes of all values that are alive at once.
    pub bytes: usize,
    /// The strategy.
    pub saving: Saving,
}

impl Pass for Recomputation {
    fn name(&self) -> &'static str {
        "recomputation"
    }

    fn run(&self, graph: &Graph, _places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        let parts = Parts::new(graph, self.last, self.saving);
        parts.within(self.bytes).map(Some)
    }
}

/// A graph in two parts. The later part reads values of the earlier one, as gradients do.
struct Parts<'a> {
    graph: &'a Graph,
    saving: Saving,
    /// The later part's first node.
    later: usize,
    /// For each value, is it there for the later part? Inputs, constants, states, outputs, and whatever is kept.
    kept: Vec<bool>,
    /// For each value, does it wait on the host for the later part?
    moved: Vec<bool>,
    /// For each node of the earlier part, is it computed again?
    again: Vec<bool>,
    /// For each value, the node that writes over it.
    overwritten: Vec<usize>,
    /// The last node that reads a value of the earlier part.
    end: usize,
    /// Values that are kept and need not be.
    candidates: Vec<Candidate>,
}

/// A value that the later part reads.
struct Candidate {
    value: ValueId,
    /// The saved bytes over the cost, as far as it is known.
    rate: f64,
    /// The nodes from the one that computes it to the first that reads it in the later part.
    waits: usize,
}

/// The steps for a missing value of the earlier part.
#[derive(Default)]
struct Missing {
    /// Nodes that are computed again.
    nodes: BTreeSet<usize>,
    /// Values that are brought back.
    moved: BTreeSet<ValueId>,
}

impl<'a> Parts<'a> {
    /// The state for a graph whose later part follows the node that computes `last`.
    fn new(graph: &'a Graph, last: ValueId, saving: Saving) -> Self {
        let later = graph.producer(graph.base(last)).map_or(0, |at| at + 1);
        let mut overwritten = vec![usize::MAX; graph.len()];
        let mut kept: Vec<bool> = (0..graph.len())
            .map(|value| value < graph.inputs().len())
            .collect();
        for (at, node) in graph.nodes().iter().enumerate() {
            for (_, operand) in node.overwrites() {
                overwritten[graph.base(node.inputs[operand]).index()] = at;
            }
            let is_there = node.inputs.is_empty() || node.has_effects() || node.op.def().offloads();
            node.results()
                .for_each(|value| kept[value.index()] = is_there);
        }
        for &value in graph.outputs() {
            kept[graph.base(value).index()] = true;
        }
        let made = |value: ValueId| graph.producer(value).filter(|&at| at < later);
        let (mut read, mut end) = (BTreeMap::new(), later);
        for (at, node) in graph.nodes().iter().enumerate().skip(later) {
            for value in node.inputs.iter().map(|&value| graph.base(value)) {
                let Some(made) = made(value) else { continue };
                end = at;
                if !kept[value.index()] {
                    read.entry(value).or_insert(at - made);
                }
            }
        }
        read.keys().for_each(|value| kept[value.index()] = true);
        let candidate = |(value, waits)| Candidate {
            value,
            // Found when it is asked for.
            rate: f64::INFINITY,
            waits,
        };
        Self {
            graph,
            saving,
            later,
            kept,
            moved: vec![false; graph.len()],
            again: vec![false; later],
            overwritten,
            end,
            candidates: read.into_iter().map(candidate).collect(),
        }
    }

    /// The cheapest graph found whose values take at most `bytes` at once; or that which takes least.
    fn within(mut self, bytes: usize) -> Result<Rewritten, OpError> {
        let all = self.candidates.len();
        let looks = LOOKS.min(all).max(1);
        let mut least: Option<(usize, Rewritten)> = None;
        for look in 1..=looks {
            while self.candidates.len() > all - all * look / looks {
                self.drop_cheapest();
            }
            let changed = self.changed()?;
            let peak = peak(&changed.graph);
            if least.as_ref().is_none_or(|(known, _)| peak < *known) {
                least = Some((peak, changed));
            }
            if peak <= bytes {
                break;
            }
        }
        match least {
            Some((_, changed)) => Ok(changed),
            None => self.changed(),
        }
    }

    /// Drops the value that saves most bytes for its cost; of several, the one that waits longest.
    fn drop_cheapest(&mut self) {
        loop {
            let best = self.candidates.iter().enumerate().max_by(|(_, a), (_, b)| {
                let by_rate = a.rate.total_cmp(&b.rate);
                by_rate.then(a.waits.cmp(&b.waits))
            });
            let Some((at, &Candidate { value, rate, .. })) = best else {
                return;
            };
            let bytes = self.graph.ty(value).bytes();
            // A value from which others are computed again may cost more than before.
            self.kept[value.index()] = false;
            let nodes = self.saving.recomputes().then(|| {
                let is_there = |value| self.graph.producer(value).is_some_and(|at| self.again[at]);
                self.missing(value, is_there)
            });
            let nodes = nodes.flatten().map(|missing| missing.nodes);
            let recomputed = nodes.as_ref().map(|nodes| {
                let costs = nodes.iter().map(|&at| self.cost(&self.graph.nodes()[at]));
                bytes as f64 / costs.sum::<f64>().max(1.0)
            });
            let is_moved = self.saving.offloads()
                && bytes >= SMALLEST_MOVED
                && !self.graph.ty(value).dtype.is_block();
            let moved = is_moved.then_some(1.0 / MOVED_BYTE);
            let now = recomputed.into_iter().chain(moved).reduce(f64::max);
            match now {
                Some(now) if now >= rate => {
                    match nodes.filter(|_| recomputed == Some(now)) {
                        Some(nodes) => nodes.iter().for_each(|&at| self.again[at] = true),
                        None => self.moved[value.index()] = true,
                    }
                    self.candidates.swap_remove(at);
                    return;
                }
                Some(now) => {
                    self.kept[value.index()] = true;
                    self.candidates[at].rate = now;
                }
                None => {
                    self.kept[value.index()] = true;
                    self.candidates.swap_remove(at);
                    return;
                }
            }
        }
    }

    /// The recomputation, or transfer back, of a value; `None` if something cannot be computed again.
    fn missing(&self, value: ValueId, is_there: impl Fn(ValueId) -> bool) -> Option<Missing> {
        let (mut found, mut next) = (Missing::default(), vec![value]);
        while let Some(value) = next.pop() {
            let Some(at) = self.graph.producer(value) else {
                continue;
            };
            if self.kept[self.graph.base(value).index()] || is_there(value) {
                continue;
            }
            if self.moved[value.index()] {
                found.moved.insert(value);
                continue;
            }
            if !found.nodes.insert(at) {
                continue;
            }
            let node = &self.graph.nodes()[at];
            if !self.can_repeat(node) {
                return None;
            }
            next.extend(&node.inputs);
        }
        Some(found)
    }

    /// Does a node compute the same when it is computed in the later part?
    fn can_repeat(&self, node: &Node) -> bool {
        let stays = |value: &ValueId| {
            let base = self.graph.base(*value).index();
            self.overwritten[base] > self.end
        };
        node.op.kind() != OpKind::Host && node.inputs.iter().all(stays)
    }

    /// The cost of a node, in bytes that are read and written in that time.
    fn cost(&self, node: &Node) -> f64 {
        let def = node.op.def();
        if def.role() == Role::View {
            return 0.0;
        }
        let bytes = |value: ValueId| self.graph.ty(value).bytes();
        let written: usize = node.results().map(bytes).sum();
        // A node that only moves data reads no more of a table than it writes.
        let moves = def.op_type().is_none();
        let operands: BTreeSet<ValueId> = node.inputs.iter().copied().collect();
        let read = operands.into_iter().map(|value| match bytes(value) {
            table if moves => table.min(written),
            operand => operand,
        });
        let moved = written as f64 + read.sum::<usize>() as f64;
        let macs = self.graph.with_signature(node, |s| def.macs(s));
        moved.max(macs as f64 / MACS_PER_BYTE)
    }

    /// The graph in which values that are not kept are computed again, or brought back, at their
    /// first reader.
    fn changed(&self) -> Result<Rewritten, OpError> {
        let graph = self.graph;
        let mut out = Rewriting::new(graph)?;
        // The values' copies in the later part, and the places where offloaded values wait.
        let mut copies: Vec<Option<ValueId>> = vec![None; graph.len()];
        let mut waiting: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        for (at, node) in graph.nodes().iter().enumerate() {
            if at >= self.later {
                for &value in &node.inputs {
                    self.copy(value, &waiting, &mut copies, &mut out)?;
                }
            }
            let results = out.node(at, |value| copies[value.index()])?;
            for (value, new) in node.results().zip(results) {
                out.set(value, new);
                if self.moved[value.index()] {
                    waiting.insert(value, out.push(Offload, &[new], at)?);
                }
            }
        }
        out.finish()
    }

    /// Brings a value back or computes it again, unless it is there.
    fn copy(
        &self,
        value: ValueId,
        waiting: &BTreeMap<ValueId, ValueId>,
        copies: &mut [Option<ValueId>],
        out: &mut Rewriting,
    ) -> Result<(), OpError> {
        let graph = self.graph;
        let made = graph.producer(value).filter(|&at| at < self.later);
        let is_there = |value: ValueId| copies[value.index()].is_some();
        let missing = made.and_then(|_| self.missing(value, is_there));
        let Some(Missing { nodes, moved }) = missing else {
            return Ok(());
        };
        for value in moved {
            if let (Some(&waiting), Some(at)) = (waiting.get(&value), graph.producer(value)) {
                copies[value.index()] = Some(out.push(Reload, &[waiting], at)?);
            }
        }
        for at in nodes {
            let results = out.node(at, |value| copies[value.index()])?;
            for (old, new) in graph.nodes()[at].results().zip(results) {
                copies[old.index()] = Some(new);
            }
        }
        Ok(())
    }
}

/// Bytes of the values that are alive at once, at most, with the nodes in their order. Chains of operations that a
/// device computes together write fewer.
pub fn peak(graph: &Graph) -> usize {
    let mut last = vec![0; graph.len()];
    for (at, node) in graph.nodes().iter().enumerate() {
        for &value in &node.inputs {
            last[graph.base(value).index()] = at;
        }
    }
    for &value in graph.outputs() {
        last[graph.base(value).index()] = usize::MAX;
    }
    let bytes = |value: ValueId| match graph.previous(value) {
        // It is in the memory of a state.
        Some(_) => 0,
        None => graph.ty(value).bytes(),
    };
    let mut ends: Vec<usize> = vec![0; graph.nodes().len()];
    let (mut alive, mut most) = (0, 0);
    for (at, node) in graph.nodes().iter().enumerate() {
        let def = node.op.def();
        if def.role() != Role::View && !def.offloads() {
            for value in node.results() {
                alive += bytes(value);
                let end = last[value.index()].max(at);
                if let Some(ending) = ends.get_mut(end) {
                    *ending += bytes(value);
                }
            }
        }
        most = most.max(alive);
        alive -= ends[at];
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::UnaryOp;
    use crate::passes::OneDevice;
    use crate::{DType, TensorType};

    const ROWS: usize = 1024;

    /// Layers of a product, an exponential and its square, and gradients that read some of these values.
    fn layers(count: usize) -> Result<(Graph, ValueId), OpError> {
        let mut graph = Graph::new();
        let mut x = graph.input(TensorType::new([ROWS, ROWS], DType::F32))?;
        let weights: Vec<ValueId> = (0..count)
            .map(|_| graph.input(TensorType::new([ROWS, ROWS], DType::F32)))
            .collect::<Result<_, _>>()?;
        let mut read = Vec::new();
        for weight in weights {
            let product = graph.matmul(x, weight)?;
            let exp = graph.unary(UnaryOp::Exp, product)?;
            x = graph.square(exp)?;
            read.push([product, exp, x]);
        }
        let loss = x;
        let mut gradient = x;
        for read in read.into_iter().rev() {
            for value in read {
                gradient = graph.mul(gradient, value)?;
            }
        }
        graph.output(loss);
        graph.output(gradient);
        Ok((graph, loss))
    }

    #[test]
    fn the_cheapest_values_are_computed_again_first() -> Result<(), OpError> {
        let (graph, loss) = layers(8)?;
        let whole = peak(&graph);
        let products = |graph: &Graph| {
            let kinds = graph.nodes().iter().map(|node| node.op.kind());
            kinds.filter(|kind| *kind == OpKind::Matmul).count()
        };
        let mut before = whole;
        let within = |bytes: usize| {
            let pass = Recomputation {
                last: loss,
                bytes,
                saving: Saving::Recompute,
            };
            let less = pass.run(&graph, &OneDevice(|_| true))?;
            Ok::<_, OpError>(less.expect("it always gives a graph"))
        };
        for part in [0.9, 0.75, 0.6] {
            let bytes = (part * whole as f64) as usize;
            let Rewritten {
                graph: less,
                origins,
            } = within(bytes)?;
            assert!(peak(&less) <= bytes && peak(&less) < before, "{part}");
            assert!(less.nodes().len() > graph.nodes().len());
            for (node, origin) in less.nodes().iter().zip(origins) {
                assert_eq!(node.op, graph.nodes()[origin[0]].op);
            }
            // Products are last.
            assert_eq!(products(&less), 8, "{part}");
            before = peak(&less);
        }
        // Less than anything takes gives the least there is.
        assert!(peak(&within(0)?.graph) <= before);
        // A budget that is enough changes next to nothing: the first look already keeps to it.
        assert!(within(whole)?.graph.nodes().len() <= graph.nodes().len() + 3);
        Ok(())
    }
}
