//! Less memory for a recorded computation: values that are computed again rather than kept.

use std::collections::BTreeSet;

use rustorch_ir::{Graph, Node, OpError, OpKind, Role, ValueId};
use smallvec::SmallVec;

/// A device computes about so many multiply-accumulates in the time in which it reads or writes a byte: more than a
/// processor's cores, fewer than a GPU's units for products. It only has to tell products from what moves bytes.
const MACS_PER_BYTE: f64 = 32.0;

/// How often on the way from all values to none is looked at what a graph then takes.
const LOOKS: usize = 24;

/// A graph in two parts, of which the later one reads what the earlier one computed, as gradients do.
pub(crate) struct Recomputation<'a> {
    graph: &'a Graph,
    /// The later part's first node.
    later: usize,
    /// For each value, is it there for the later part? Inputs, constants, states, outputs, and whatever is kept.
    kept: Vec<bool>,
    /// For each node of the earlier part, is it computed again?
    again: Vec<bool>,
    /// For each value, the node that writes over it.
    overwritten: Vec<usize>,
    /// The last node that reads what the earlier part computed.
    end: usize,
    /// What may still be computed again, with the bytes that this saves for what it costs, as far as is known.
    candidates: Vec<(ValueId, f64)>,
}

impl<'a> Recomputation<'a> {
    /// Of a graph whose later part is what comes behind the node that computes `last`.
    pub(crate) fn new(graph: &'a Graph, last: ValueId) -> Self {
        let later = graph.producer(graph.base(last)).map_or(0, |at| at + 1);
        let mut overwritten = vec![usize::MAX; graph.len()];
        let mut kept: Vec<bool> = (0..graph.len())
            .map(|value| value < graph.inputs().len())
            .collect();
        for (at, node) in graph.nodes().iter().enumerate() {
            for (_, operand) in node.overwrites() {
                overwritten[graph.base(node.inputs[operand]).index()] = at;
            }
            let is_there = node.inputs.is_empty() || node.has_effects();
            node.results()
                .for_each(|value| kept[value.index()] = is_there);
        }
        for &value in graph.outputs() {
            kept[graph.base(value).index()] = true;
        }
        let is_earlier = |value: ValueId| graph.producer(value).is_some_and(|at| at < later);
        let (mut read, mut end) = (BTreeSet::new(), later);
        for (at, node) in graph.nodes().iter().enumerate().skip(later) {
            let bases = node.inputs.iter().map(|&value| graph.base(value));
            for value in bases.filter(|&value| is_earlier(value)) {
                end = at;
                if !kept[value.index()] {
                    read.insert(value);
                }
            }
        }
        read.iter().for_each(|value| kept[value.index()] = true);
        Self {
            graph,
            later,
            kept,
            again: vec![false; later],
            overwritten,
            end,
            // What it saves is found when it is asked for.
            candidates: read
                .into_iter()
                .map(|value| (value, f64::INFINITY))
                .collect(),
        }
    }

    /// The graph whose values take at most `bytes` at once, of those that are looked at the one that costs least; or
    /// that which takes least. With it, for its nodes, those of the given graph that they are.
    ///
    /// # Errors
    /// Those of [`Graph::push`].
    pub(crate) fn within(mut self, bytes: usize) -> Result<(Graph, Vec<usize>), OpError> {
        let all = self.candidates.len();
        let looks = LOOKS.min(all).max(1);
        let mut least: Option<(usize, (Graph, Vec<usize>))> = None;
        for look in 1..=looks {
            while self.candidates.len() > all - all * look / looks {
                self.drop_cheapest();
            }
            let changed = self.changed()?;
            let peak = peak(&changed.0);
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

    /// Has the value computed again that saves the most bytes for what that costs.
    fn drop_cheapest(&mut self) {
        loop {
            let rated = self.candidates.iter().enumerate();
            let best = rated.max_by(|(_, a), (_, b)| a.1.total_cmp(&b.1));
            let Some((at, &(value, known))) = best else {
                return;
            };
            // What others are computed again from costs more than it did.
            self.kept[value.index()] = false;
            let nodes = self.missing(value, |at| self.again[at]);
            let now = nodes.as_ref().map(|nodes| {
                let costs = nodes.iter().map(|&at| self.cost(&self.graph.nodes()[at]));
                self.graph.ty(value).bytes() as f64 / costs.sum::<f64>().max(1.0)
            });
            match (nodes, now) {
                (Some(nodes), Some(now)) if now >= known => {
                    nodes.iter().for_each(|&at| self.again[at] = true);
                    self.candidates.swap_remove(at);
                    return;
                }
                (_, Some(now)) => {
                    self.kept[value.index()] = true;
                    self.candidates[at].1 = now;
                }
                (_, None) => {
                    self.kept[value.index()] = true;
                    self.candidates.swap_remove(at);
                    return;
                }
            }
        }
    }

    /// The nodes that have to be computed again for a value; `None` if one of them cannot be.
    fn missing(&self, value: ValueId, is_there: impl Fn(usize) -> bool) -> Option<BTreeSet<usize>> {
        let (mut found, mut next) = (BTreeSet::new(), vec![value]);
        while let Some(value) = next.pop() {
            let Some(at) = self.graph.producer(value) else {
                continue;
            };
            let is_kept = self.kept[self.graph.base(value).index()];
            if is_kept || is_there(at) || !found.insert(at) {
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

    /// What a node costs, in bytes that are read and written in that time.
    fn cost(&self, node: &Node) -> f64 {
        let def = node.op.def();
        if def.role() == Role::View {
            return 0.0;
        }
        let bytes = |value: ValueId| self.graph.ty(value).bytes();
        let written: usize = node.results().map(bytes).sum();
        // What is taken out of a table is as much as comes out.
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

    /// The graph with what is not kept computed again where it is read first.
    fn changed(&self) -> Result<(Graph, Vec<usize>), OpError> {
        let graph = self.graph;
        let (mut out, mut origins) = (Graph::new(), Vec::new());
        let mut values = Vec::with_capacity(graph.len());
        for ty in graph.inputs() {
            values.push(out.input(ty.clone())?);
        }
        // What values are in the later part.
        let mut copies: Vec<Option<ValueId>> = vec![None; graph.len()];
        for (at, node) in graph.nodes().iter().enumerate() {
            if at >= self.later {
                for &value in &node.inputs {
                    self.copy(value, &values, &mut copies, &mut out, &mut origins)?;
                }
            }
            let shown = |value: &ValueId| copies[value.index()].unwrap_or(values[value.index()]);
            let operands: SmallVec<[ValueId; 4]> = node.inputs.iter().map(shown).collect();
            let first = out.push_node(node, &operands)?;
            origins.push(at);
            values.extend(out.results(first));
        }
        for &value in graph.outputs() {
            out.output(values[value.index()]);
        }
        Ok((out, origins))
    }

    /// Computes a value again, unless it is there.
    fn copy(
        &self,
        value: ValueId,
        values: &[ValueId],
        copies: &mut [Option<ValueId>],
        out: &mut Graph,
        origins: &mut Vec<usize>,
    ) -> Result<(), OpError> {
        let graph = self.graph;
        if graph.producer(value).is_none_or(|at| at >= self.later) {
            return Ok(());
        }
        let is_there = |at: usize| copies[graph.nodes()[at].result(0).index()].is_some();
        let Some(nodes) = self.missing(value, is_there) else {
            return Ok(());
        };
        for at in nodes {
            let node = &graph.nodes()[at];
            let shown = |value: &ValueId| copies[value.index()].unwrap_or(values[value.index()]);
            let operands: SmallVec<[ValueId; 4]> = node.inputs.iter().map(shown).collect();
            let first = out.push_node(node, &operands)?;
            origins.push(at);
            for (old, new) in node.results().zip(out.results(first)) {
                copies[old.index()] = Some(new);
            }
        }
        Ok(())
    }
}

/// Bytes of the values that are alive at once, at most, with the nodes in their order. Chains of operations that a
/// device computes together write fewer.
pub(crate) fn peak(graph: &Graph) -> usize {
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
        if node.op.def().role() != Role::View {
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
    use rustorch_ir::ops::UnaryOp;
    use rustorch_ir::{DType, TensorType};

    use super::*;

    const ROWS: usize = 1024;

    /// Layers of a product, an exponential and its square, and gradients that read what of them they need.
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
        for part in [0.9, 0.75, 0.6] {
            let bytes = (part * whole as f64) as usize;
            let (less, origins) = Recomputation::new(&graph, loss).within(bytes)?;
            assert!(peak(&less) <= bytes && peak(&less) < before, "{part}");
            assert!(less.nodes().len() > graph.nodes().len());
            for (node, origin) in less.nodes().iter().zip(origins) {
                assert_eq!(node.op, graph.nodes()[origin].op);
            }
            // Products are last.
            assert_eq!(products(&less), 8, "{part}");
            before = peak(&less);
        }
        // Less than anything takes gives the least there is.
        let (least, _) = Recomputation::new(&graph, loss).within(0)?;
        assert!(peak(&least) <= before);
        // A budget that is enough changes next to nothing: the first look already keeps to it.
        let (enough, _) = Recomputation::new(&graph, loss).within(whole)?;
        assert!(enough.nodes().len() <= graph.nodes().len() + 3);
        Ok(())
    }
}
