//! Finding groups of tensors to which the same elementwise operations are done.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::foreach::ANY;
use super::*;
use crate::ops::Full;
use crate::order::sort_by_key;
use crate::passes::{Finder, Match};
use crate::{Graph, Node, Op, OpKind, Role, Shape, ValueId};

/// Operations of a body and operands of a group: a kernel has all of them in registers.
const MAX_PARTS: usize = 64;
const MAX_OPERANDS: usize = 16;

/// Has it the elements of its operand as they are, as records of writes over states do?
fn is_same(f: &Finder, at: usize) -> bool {
    let moves = matches!(f.op(at).kind(), OpKind::Expand | OpKind::Contiguous);
    moves && f.ty(f.operands(at)[0]) == f.ty(f.result(at))
}

/// Is it an operation on each element, or none at all?
pub(super) fn is_part(f: &Finder, at: usize) -> bool {
    f.op(at).kind().is_elementwise() || is_same(f, at)
}

/// Kinds of operands of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Found {
    /// A tensor of the group's shape.
    Tensor(ValueId),
    /// A number.
    Number(ValueId),
    /// A constant, by its node.
    Constant(usize),
}

/// Kind of an operand of an elementwise operation on tensors of `shape`; `None` if it is broadcast otherwise.
fn operand(f: &Finder, value: ValueId, shape: &Shape) -> Option<Found> {
    let mut root = value;
    // One number is what it is a view of.
    while let Some(at) = f.producer(root) {
        let is_view = f.op(at).def().role() == Role::View;
        match is_view && f.ty(f.operands(at)[0]).shape.elements() == 1 {
            true => root = f.operands(at)[0],
            false => break,
        }
    }
    if let Some(at) = f.producer(root)
        && f.op(at).kind() == OpKind::Full
    {
        return Some(Found::Constant(at));
    }
    match () {
        () if f.ty(value).shape == *shape => Some(Found::Tensor(value)),
        () if f.ty(root).rank() == 0 => Some(Found::Number(root)),
        () => None,
    }
}

/// Is it so cheap that it is computed again rather than read: a tensor scaled by a number?
fn is_scaled(f: &Finder, at: usize) -> bool {
    let shape = &f.ty(f.result(at)).shape;
    let is_product =
        matches!(f.op(at), Op::Binary(b) if matches!(b.op, BinaryOp::Mul | BinaryOp::Div));
    let is_number = |&value: &ValueId| {
        let found = operand(f, value, shape);
        matches!(found, Some(Found::Number(_) | Found::Constant(_)))
    };
    is_product && f.operands(at).iter().any(is_number)
}

/// `ends` and the nodes before them, in order. The nodes before read elements of the same shape, and are cheap or
/// needed by no other node.
pub(super) fn chain(f: &Finder, ends: &[usize]) -> Vec<usize> {
    let nodes = chain_by(f, ends, is_scaled);
    let own = hidden(f, &nodes, ends);
    // A repeated node would read an operand again later, when it may have been written over.
    let reads_state = |at: usize| f.operands(at).iter().any(|&x| f.graph().is_overwritten(x));
    match nodes.iter().any(|at| !own.contains(at) && reads_state(*at)) {
        true => chain_by(f, ends, |_, _| false),
        false => nodes,
    }
}

/// [`chain`], where `is_repeated` chooses the nodes that are computed again, although others need
/// them, too.
fn chain_by(
    f: &Finder,
    ends: &[usize],
    is_repeated: impl Fn(&Finder, usize) -> bool,
) -> Vec<usize> {
    let mut nodes: Vec<usize> = ends.to_vec();
    let mut ahead: Vec<usize> = ends.to_vec();
    let is_within = |nodes: &[usize], value: ValueId, shape: &Shape| {
        let readers = f.readers(value);
        let is_reader = |reader: &usize| {
            let is_alike = f.ty(f.result(*reader)).shape == *shape;
            nodes.contains(reader) && (is_alike || ends.contains(reader))
        };
        !f.is_output(value) && readers.iter().all(is_reader)
    };
    // A node is looked at again when another of its readers is found to be within.
    while let Some(reader) = ahead.pop() {
        for &value in f.operands(reader) {
            let Some(at) = f.producer(value).filter(|at| !nodes.contains(at)) else {
                continue;
            };
            let shape = &f.ty(value).shape;
            let are_known = |at: usize| {
                let mut operands = f.operands(at).iter();
                operands.all(|&x| operand(f, x, shape).is_some())
            };
            let is_alike = ends.contains(&reader) || f.ty(f.result(reader)).shape == *shape;
            let fits = is_part(f, at) && is_alike && nodes.len() < MAX_PARTS && are_known(at);
            if fits && (is_within(&nodes, value, shape) || is_repeated(f, at)) {
                nodes.push(at);
                ahead.push(at);
            }
        }
    }
    sort_by_key(&mut nodes, |node| *node);
    nodes
}

/// The nodes of `nodes`, which end with `ends`, that no other node needs.
pub(super) fn hidden(f: &Finder, nodes: &[usize], ends: &[usize]) -> Vec<usize> {
    let mut hidden: Vec<usize> = Vec::new();
    for &at in nodes.iter().rev() {
        let mut readers = f.readers(f.result(at)).iter();
        let is_alone = !f.is_output(f.result(at)) && readers.all(|reader| hidden.contains(reader));
        if ends.contains(&at) || is_alone {
            hidden.push(at);
        }
    }
    hidden.reverse();
    hidden
}

/// Nodes that can become a group of [`Foreach`].
pub(super) struct Group {
    /// The nodes, in order.
    pub(super) nodes: Vec<usize>,
    /// The shape of its tensors.
    shape: Shape,
    /// Operands that are tensors, then those that are numbers, each as it is first read.
    pub(super) operands: Vec<ValueId>,
    pub(super) results: Vec<ValueId>,
}

impl Group {
    /// A group of nodes on tensors of `shape`, in order, that give results.
    pub(super) fn new(
        f: &Finder,
        shape: &Shape,
        nodes: Vec<usize>,
        results: Vec<ValueId>,
    ) -> Option<Self> {
        let (mut tensors, mut numbers) = (Vec::new(), Vec::new());
        let known: HashSet<ValueId> = nodes.iter().map(|&at| f.result(at)).collect();
        for &value in nodes.iter().flat_map(|&at| f.operands(at)) {
            let list = match operand(f, value, shape)? {
                Found::Tensor(value) | Found::Number(value) if known.contains(&value) => continue,
                Found::Tensor(value) => (&mut tensors, value),
                Found::Number(value) => (&mut numbers, value),
                Found::Constant(_) => continue,
            };
            if !list.0.contains(&list.1) {
                list.0.push(list.1);
            }
        }
        let operands = [tensors, numbers].concat();
        (operands.len() <= MAX_OPERANDS).then(|| Self {
            nodes,
            shape: shape.clone(),
            operands,
            results,
        })
    }

    /// Graph of the operations, with operands in this order.
    pub(super) fn body(&self, f: &Finder, operands: &[ValueId]) -> Option<Graph> {
        let mut body = Graph::new();
        let mut values: HashMap<Found, ValueId> = HashMap::new();
        for &value in operands {
            let found = operand(f, value, &self.shape)?;
            let shape: &[usize] = match found {
                Found::Tensor(_) => &ANY,
                Found::Number(_) | Found::Constant(_) => &[],
            };
            let input = body.input(TensorType::new(shape, f.ty(value).dtype)).ok()?;
            values.insert(found, input);
        }
        for &at in &self.nodes {
            let mut inputs: SmallVec<[ValueId; 4]> = SmallVec::new();
            for &value in f.operands(at) {
                let found = operand(f, value, &self.shape)?;
                inputs.push(match (values.get(&found), found) {
                    (Some(&known), _) => known,
                    (None, Found::Constant(node)) => {
                        let Op::Full(full) = f.op(node) else {
                            return None;
                        };
                        let number = Full {
                            shape: Shape::default(),
                            ..full.clone()
                        };
                        let value = body.push(number, &[]).ok()?;
                        values.insert(found, value);
                        value
                    }
                    (None, _) => return None,
                });
            }
            if is_same(f, at) {
                values.insert(Found::Tensor(f.result(at)), inputs[0]);
                continue;
            }
            let op = match f.op(at) {
                Op::Reduce(reduce) => Reduce {
                    dims: smallvec![0],
                    ..reduce.clone()
                }
                .into(),
                op => op.clone(),
            };
            let result = body.push(op, &inputs).ok()?;
            values.insert(Found::Tensor(f.result(at)), result);
            values.insert(Found::Number(f.result(at)), result);
        }
        for &value in &self.results {
            body.output(*values.get(&Found::Tensor(value))?);
        }
        Some(body)
    }

    /// The states that are written over.
    fn states<'f>(&'f self, f: &'f Finder) -> impl Iterator<Item = ValueId> + 'f {
        let graph = f.graph();
        self.results
            .iter()
            .filter_map(|&result| graph.previous(result))
    }
}

/// Updates of states by the same operations, found by the first of them.
pub(crate) fn foreach(f: &Finder, at: usize) -> Vec<Match> {
    if f.op(at).kind() != OpKind::Assign {
        return Vec::new();
    }
    let all = f.updates(updates);
    let found = all.iter().filter(|found| found.nodes[0] == at);
    found.cloned().collect()
}

/// All that can be updated together.
fn updates(f: &Finder) -> Vec<Match> {
    let nodes = f.graph().nodes();
    let is_update = |(at, node): (usize, &Node)| {
        let is_update = matches!(node.op, Op::Assign(_)) && node.pin.is_none();
        is_update.then_some(at)
    };
    let ends: Vec<usize> = nodes.iter().enumerate().filter_map(is_update).collect();
    let mut kinds: Vec<(Graph, Vec<Group>)> = Vec::new();
    let mut places: HashMap<Graph, usize> = HashMap::new();
    for ends in together(f, &ends) {
        let shape = &f.ty(f.result(ends[0])).shape;
        let results = ends.iter().map(|&at| f.result(at)).collect();
        let Some(group) = Group::new(f, shape, chain(f, &ends), results) else {
            continue;
        };
        let body = group.body(f, &group.operands);
        let are_updates = |body: &Graph| {
            let states = body.inputs().len();
            let mut results = body.outputs().iter();
            // A state that is written over twice is none of the operands the second time.
            let is_of_operand = |value| body.previous(value).is_none_or(|s| s.index() < states);
            results.all(|&value| body.ty(value).shape[..] == ANY && is_of_operand(value))
        };
        let Some(body) = body.filter(are_updates) else {
            continue;
        };
        let place = *places.entry(body.clone()).or_insert(kinds.len());
        match kinds.get_mut(place) {
            Some((_, groups)) => groups.push(group),
            None => kinds.push((body, vec![group])),
        }
    }
    let matches = kinds
        .into_iter()
        .filter_map(|(_, groups)| of_kind(f, groups));
    matches.collect()
}

/// Conversions of many tensors, found by the first of them.
pub(crate) fn foreach_cast(f: &Finder, at: usize) -> Vec<Match> {
    if f.op(at).kind() != OpKind::Cast {
        return Vec::new();
    }
    let all = f.conversions(conversions);
    let found = all.iter().filter(|found| found.nodes[0] == at);
    found.cloned().collect()
}

/// All conversions that can be made together, without being made earlier or later than others need them. Conversions of
/// states can, since states are there from the beginning. So can conversions of computed values that are read only when
/// all are there, such as clipped gradients.
fn conversions(f: &Finder) -> Vec<Match> {
    let mut kinds: BTreeMap<(bool, &str, &str), Vec<usize>> = BTreeMap::new();
    for (at, node) in f.graph().nodes().iter().enumerate() {
        let Op::Cast(cast) = &node.op else { continue };
        let (x, result) = (node.inputs[0], node.result(0));
        let is_state = f.producer(x).is_none() && f.graph().is_overwritten(x);
        let is_free = node.pin.is_none() && !f.is_output(result);
        // Updates take conversions that they alone need into what they do themselves.
        let mut readers = f.readers(result).iter().copied();
        let is_shared = match is_state {
            true => readers.any(|reader| !is_part(f, reader)),
            false => {
                let (reduce, others): (Vec<usize>, Vec<usize>) =
                    readers.partition(|&reader| is_reduced(f, reader));
                is_dense(f, x) && !reduce.is_empty() && !others.is_empty()
            }
        };
        if is_free && is_shared {
            let kind = (is_state, f.ty(x).dtype.name(), cast.dtype.name());
            kinds.entry(kind).or_default().push(at);
        }
    }
    let matches = kinds.into_iter().filter_map(|((is_state, ..), mut nodes)| {
        let made = |&at: &usize| f.producer(f.operands(at)[0]);
        let last = nodes.iter().filter_map(made).max();
        let waits = |&at: &usize| f.readers(f.result(at)).first().copied() > last;
        nodes.retain(|at| is_state || waits(at));
        together_as_they_are(f, &nodes)
    });
    matches.collect()
}

/// Is it a reduction, or needed by one alone?
fn is_reduced(f: &Finder, at: usize) -> bool {
    let is_reduction = |at: usize| f.op(at).kind() == OpKind::Reduce;
    is_reduction(at) || f.only_reader(f.result(at)).is_some_and(is_reduction)
}

/// Is it computed, and lies as it was computed?
fn is_dense(f: &Finder, mut value: ValueId) -> bool {
    while let Some(at) = f.producer(value) {
        match f.op(at).def().role() {
            Role::Compute => return true,
            Role::View if f.op(at).kind() == OpKind::Reshape => value = f.operands(at)[0],
            Role::View => return false,
        }
    }
    false
}

/// Nodes of one kind, each its own group.
fn together_as_they_are(f: &Finder, nodes: &[usize]) -> Option<Match> {
    let group = |&at: &usize| {
        let result = f.result(at);
        Group::new(f, &f.ty(result).shape, vec![at], vec![result])
    };
    let groups: Vec<Group> = nodes.iter().map(group).collect::<Option<_>>()?;
    (groups.len() > 1).then_some(())?;
    let (op, inputs) = each(f, &groups)?;
    Some(Match {
        op: op.into(),
        inputs,
        nodes: nodes.into(),
        results: nodes.iter().map(|&at| f.result(at)).collect(),
    })
}

/// Updates, those together that have operations in common which only they need.
fn together(f: &Finder, ends: &[usize]) -> Vec<Vec<usize>> {
    // For each node that an update is computed by, the first of the updates.
    let mut firsts: HashMap<usize, usize> = HashMap::new();
    let mut sets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &end in ends {
        let reached = reached(f, end);
        let known = reached.iter().filter_map(|node| firsts.get(node));
        let mut merged: Vec<usize> = known.copied().collect();
        sort_by_key(&mut merged, |first| *first);
        merged.dedup();
        let first = merged.first().copied().unwrap_or(end);
        let mut set = vec![end];
        for &other in &merged {
            set.extend(sets.remove(&other).unwrap_or_default());
        }
        sort_by_key(&mut set, |end| *end);
        if merged.len() > 1 {
            for owner in firsts.values_mut().filter(|owner| merged.contains(owner)) {
                *owner = first;
            }
        }
        firsts.extend(reached.into_iter().map(|node| (node, first)));
        sets.insert(first, set);
    }
    sets.into_values().collect()
}

/// The elementwise nodes that an update is computed by and that updates alone, or such nodes, read.
fn reached(f: &Finder, end: usize) -> Vec<usize> {
    let shape = &f.ty(f.result(end)).shape;
    let mut reached = Vec::new();
    let mut ahead = vec![end];
    while let Some(reader) = ahead.pop() {
        for &value in f.operands(reader) {
            let Some(at) = f.producer(value) else {
                continue;
            };
            let readers = f.readers(value);
            let is_reader = |&reader: &usize| {
                (is_part(f, reader) || f.op(reader).kind() == OpKind::Assign)
                    && f.ty(f.result(reader)).shape == *shape
            };
            let fits = is_part(f, at)
                && f.ty(value).shape == *shape
                && !f.is_output(value)
                && readers.iter().all(is_reader)
                && reached.len() < MAX_PARTS;
            if fits && !reached.contains(&at) {
                reached.push(at);
                ahead.push(at);
            }
        }
    }
    reached
}

/// Groups of one body as one operation.
fn of_kind(f: &Finder, mut groups: Vec<Group>) -> Option<Match> {
    // A group may read neither the states that other groups write over, nor the results of others.
    let states: HashSet<ValueId> = groups.iter().flat_map(|group| group.states(f)).collect();
    let results = groups
        .iter()
        .flat_map(|group| group.results.iter().copied());
    let results: HashSet<ValueId> = results.collect();
    groups.retain(|group| {
        let own: Vec<ValueId> = group.states(f).collect();
        let is_other = |value: &ValueId| {
            let is_state = !own.contains(value) && states.contains(&f.graph().base(*value));
            !is_state && !results.contains(value)
        };
        group.operands.iter().all(is_other)
    });
    let op = each(f, &groups)?;
    let ends = |group: &Group| -> Vec<usize> {
        group
            .results
            .iter()
            .filter_map(|&result| f.producer(result))
            .collect()
    };
    let hidden = groups
        .iter()
        .flat_map(|group| hidden(f, &group.nodes, &ends(group)));
    let mut nodes: SmallVec<[usize; 8]> = hidden.collect();
    if nodes.len() < 2 {
        return None;
    }
    // The match is found at the first update.
    let first = groups.iter().flat_map(ends).min()?;
    let place = nodes.iter().position(|&at| at == first)?;
    nodes.swap(0, place);
    Some(Match {
        inputs: op.1,
        results: groups
            .iter()
            .flat_map(|group| group.results.iter().copied())
            .collect(),
        nodes,
        op: op.0.into(),
    })
}

/// The operations on groups of one body, with the operands.
pub(super) fn each(f: &Finder, groups: &[Group]) -> Option<(Foreach, SmallVec<[ValueId; 8]>)> {
    let first = groups.first()?;
    let is_shared = |&k: &usize| {
        let value = first.operands[k];
        let is_number = matches!(operand(f, value, &first.shape), Some(Found::Number(_)));
        is_number && groups.iter().all(|group| group.operands[k] == value)
    };
    let all = 0..first.operands.len();
    let (shared, own): (Vec<usize>, Vec<usize>) = all.partition(is_shared);
    let order = [&own[..], &shared].concat();
    let operands: Vec<ValueId> = order.iter().map(|&k| first.operands[k]).collect();
    let op = Foreach {
        body: Arc::new(first.body(f, &operands)?),
        own: own.len(),
        count: groups.len(),
    };
    let of_groups = groups
        .iter()
        .flat_map(|group| own.iter().map(|&k| group.operands[k]));
    let shared = shared.iter().map(|&k| first.operands[k]);
    Some((op, of_groups.chain(shared).collect()))
}
