//! The backward pass through a history.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::Arc;

use rustorch_ir::autodiff::Differentiated;
use rustorch_ir::ops::{Concat, Pad};
use rustorch_ir::{Graph, Op, OpError, Scalar, ValueId};
use rustorch_runtime::Moment;
use smallvec::{SmallVec, smallvec};

use super::track::{Record, Step, Track, TrackId};
use super::{enable_grad, no_grad};
use crate::error::{RusTorchResult, require};
use crate::lazy::recording::is_recording;
use crate::lazy::value::{Value, written_since};
use crate::precision::with_lower;
use crate::{Tensor, call};

/// The targets of a backward pass.
pub(super) struct Request<'a> {
    /// Its name in errors.
    pub(super) name: &'static str,
    /// Tensors, each with the gradient that it begins with.
    pub(super) outputs: Vec<(&'a Tensor, Tensor)>,
    /// The tensors whose gradients are wanted; `None` for all leaves.
    pub(super) wanted: Option<&'a [&'a Tensor]>,
    /// Do tensors that [retain](Track::retains) theirs get their gradients?
    pub(super) accumulates: bool,
    pub(super) retain_graph: bool,
    pub(super) create_graph: bool,
}

/// An operation on the way back.
struct Visited {
    record: Record,
    /// The handles' tracks of its results.
    tracks: SmallVec<[Option<Arc<Track>>; 1]>,
    /// Gradients of the results.
    cotangents: SmallVec<[Option<Tensor>; 1]>,
    /// For each operand, does a way lead from it to something wanted?
    needed: SmallVec<[bool; 4]>,
}

/// A walk back. Operations are visited from the last one recorded on. So all readers of a value come before the
/// operation that computed it.
struct Walk<'a> {
    request: &'a Request<'a>,
    /// `None` if all leaves are wanted.
    wanted: Option<BTreeSet<TrackId>>,
    visited: BTreeMap<Moment, Visited>,
    /// Leaves and other wanted tensors, with their gradients.
    found: BTreeMap<TrackId, (Arc<Track>, Tensor)>,
}

/// Gradients of the wanted tensors, in their order, as far as a way leads to them; none if leaves
/// are wanted.
pub(super) fn run(request: &Request) -> RusTorchResult<Vec<Option<Tensor>>> {
    // Gradients are of the operations that were recorded.
    with_lower(None, || match request.create_graph {
        true => enable_grad(|| Walk::new(request).run()),
        false => no_grad(|| Walk::new(request).run()),
    })
}

impl<'a> Walk<'a> {
    fn new(request: &'a Request) -> Self {
        let ids = |wanted: &[&Tensor]| {
            let tracks = wanted.iter().filter_map(|tensor| tensor.track());
            tracks.map(|track| track.id()).collect()
        };
        Self {
            request,
            wanted: request.wanted.map(ids),
            visited: BTreeMap::new(),
            found: BTreeMap::new(),
        }
    }

    fn run(mut self) -> RusTorchResult<Vec<Option<Tensor>>> {
        for (output, cotangent) in &self.request.outputs {
            if let Some(track) = output.track() {
                self.begin(&track, cotangent.clone())?;
            }
        }
        while let Some((_, node)) = self.visited.pop_last() {
            self.go_back(node)?;
        }
        for (track, gradient) in self.found.values_mut() {
            if track.is_leaf() {
                *gradient = hooked(track, gradient.clone())?;
            }
            if self.request.accumulates {
                let sum = match track.gradient() {
                    Some(before) => before.add(&*gradient)?,
                    None => gradient.clone(),
                };
                track.set_gradient(Some(sum));
            }
        }
        let gradient = |tensor: &&Tensor| {
            let (_, gradient) = self.found.get(&tensor.track()?.id())?;
            Some(gradient.clone())
        };
        Ok(self
            .request
            .wanted
            .map_or_else(Vec::new, |wanted| wanted.iter().map(gradient).collect()))
    }

    /// Begins at a tensor with its gradient.
    fn begin(&mut self, track: &Arc<Track>, cotangent: Tensor) -> RusTorchResult<()> {
        let new = self.visit(track)?;
        // Operands first: whether a way leads on from them is then known.
        for moment in new {
            let needed = {
                let inputs = &self.visited[&moment].record.inputs;
                inputs.iter().map(|track| self.leads_on(track)).collect()
            };
            if let Some(node) = self.visited.get_mut(&moment) {
                node.needed = needed;
            }
        }
        self.send(track, cotangent)
    }

    /// Finds the operations that a value was computed by, and returns those that are new.
    fn visit(&mut self, track: &Arc<Track>) -> RusTorchResult<BTreeSet<Moment>> {
        let mut new = BTreeSet::new();
        let mut next = vec![track.clone()];
        while let Some(track) = next.pop() {
            let (moment, result) = track.id();
            if track.is_leaf() {
                continue;
            }
            if !self.visited.contains_key(&moment) {
                let Some(record) = track.record() else {
                    if self.is_wanted(&track) {
                        continue;
                    }
                    return Err(self.forgotten().into());
                };
                next.extend(record.inputs.iter().flatten().cloned());
                let count = record.results.len();
                let visited = Visited {
                    record,
                    tracks: smallvec![None; count],
                    cotangents: smallvec![None; count],
                    needed: SmallVec::new(),
                };
                self.visited.insert(moment, visited);
                new.insert(moment);
            }
            if let Some(node) = self.visited.get_mut(&moment) {
                node.tracks[result] = Some(track);
            }
        }
        Ok(new)
    }

    fn forgotten(&self) -> OpError {
        let cure = match is_recording() {
            true => {
                "TrainStep goes backward itself from the loss that its function returns: leave backward out there; \
                 grad_with and create_graph keep the history"
            }
            false => "use retain_graph in the first backward pass to keep it",
        };
        let expected = format_args!("the history of the tensors ({cure})");
        let got = "one that a backward pass has used up";
        OpError::new(self.request.name, expected, got)
    }

    fn is_wanted(&self, track: &Track) -> bool {
        match &self.wanted {
            Some(wanted) => wanted.contains(&track.id()),
            None => track.is_leaf() && track.is_wanted(),
        }
    }

    /// Is an operand wanted, or is one of its ancestors?
    fn leads_on(&self, track: &Option<Arc<Track>>) -> bool {
        let Some(track) = track else {
            return false;
        };
        let node = self.visited.get(&track.id().0);
        // What a function that is called again reads is not known yet.
        let leads_on = |node: &Visited| {
            matches!(node.record.step, Step::Again(_)) || node.needed.contains(&true)
        };
        self.is_wanted(track) || node.is_some_and(leads_on)
    }

    /// Adds to the gradient of a value.
    fn send(&mut self, track: &Arc<Track>, cotangent: Tensor) -> RusTorchResult<()> {
        let id = track.id();
        if let Some(node) = self.visited.get_mut(&id.0) {
            let sum = &mut node.cotangents[id.1];
            *sum = Some(match sum.take() {
                Some(other) => added(other, cotangent)?,
                None => cotangent,
            });
        } else if self.is_wanted(track) {
            let sum = match self.found.remove(&id) {
                Some((_, other)) => added(other, cotangent)?,
                None => cotangent,
            };
            self.found.insert(id, (track.clone(), sum));
        }
        Ok(())
    }

    /// From the results of an operation to its operands.
    fn go_back(&mut self, mut node: Visited) -> RusTorchResult<()> {
        for (track, cotangent) in node.tracks.iter().zip(&mut node.cotangents) {
            let (Some(track), Some(gradient)) = (track, cotangent.take()) else {
                continue;
            };
            let gradient = hooked(track, gradient)?;
            *cotangent = Some(gradient.clone());
            let is_asked = self.wanted.is_some() && self.is_wanted(track);
            if is_asked || self.request.accumulates && track.retains() {
                self.found.insert(track.id(), (track.clone(), gradient));
            }
        }
        if node.cotangents.iter().all(Option::is_none) {
            return Ok(());
        }
        let record = node.record.clone();
        match &record.step {
            Step::Again(f) => {
                let result = enable_grad(|| f())?;
                if let (Some(track), Some(cotangent)) = (result.track(), node.cotangents[0].take())
                {
                    self.begin(&track, cotangent)?;
                }
            }
            Step::Operation(pending) if node.needed.contains(&true) => {
                let inputs = pending.inputs.iter().zip(&record.inputs);
                let inputs = inputs.map(|(value, track)| Tensor::of(value.clone(), track.clone()));
                let results = record.results.iter().zip(&node.tracks);
                let result = |(value, track): (&Value, &Option<Arc<Track>>)| {
                    let is_tracked = value.ty().dtype.has_gradient();
                    let new = || {
                        let (pending, inputs) = (pending.clone(), record.inputs.clone());
                        Track::result(pending, inputs, value, &record.results)
                    };
                    let track = is_tracked.then(|| track.clone().unwrap_or_else(new));
                    Tensor::of(value.clone(), track)
                };
                let found = pull_back(&Pulled {
                    op: &pending.op,
                    name: pending.call.method,
                    location: pending.call.location,
                    recorded: pending.recorded,
                    inputs: inputs.collect(),
                    results: results.map(result).collect(),
                    cotangents: &node.cotangents,
                    needed: &node.needed,
                })?;
                for (track, cotangent) in record.inputs.iter().zip(found) {
                    if let (Some(track), Some(cotangent)) = (track, cotangent) {
                        self.send(track, cotangent)?;
                    }
                }
            }
            Step::Operation(_) => {}
        }
        if !self.request.retain_graph {
            node.tracks
                .iter()
                .flatten()
                .for_each(|track| track.forget());
        }
        Ok(())
    }
}

/// The sum of two gradients. Adjacent slices are joined: sums of mostly zeros would be written and read as
/// often as there are slices.
fn added(a: Tensor, b: Tensor) -> RusTorchResult<Tensor> {
    let (Some(first), Some(second)) = (Padded::of(&a), Padded::of(&b)) else {
        return a.add(&b);
    };
    let follows = |a: &Padded, b: &Padded| a.dim == b.dim && a.before + a.len() == b.before;
    match () {
        () if follows(&first, &second) => first.joined(second),
        () if follows(&second, &first) => second.joined(first),
        () => a.add(&b),
    }
}

/// A gradient that is still to be computed, as neighbours along a dimension with zeros around them.
struct Padded {
    dim: usize,
    neighbours: Vec<Tensor>,
    /// Zeros in front.
    before: usize,
    /// Zeros behind.
    after: usize,
}

impl Padded {
    /// `None` of other tensors, and of those that a gradient is wanted of in turn.
    fn of(x: &Tensor) -> Option<Self> {
        let pending = x.value().pending().filter(|_| !x.is_tracked())?;
        let Op::Pad(pad) = &pending.op else {
            return None;
        };
        let mut padded = pad
            .padding
            .iter()
            .enumerate()
            .filter(|(_, p)| **p != (0, 0));
        let (dim, &(before, after)) = padded.next()?;
        if pad.value != Scalar::Int(0) || padded.next().is_some() {
            return None;
        }
        let untracked = |value: &Value| Tensor::of(value.clone(), None);
        let [inner] = &pending.inputs[..] else {
            return None;
        };
        let neighbours = match inner.pending() {
            Some(inner) if inner.op == (Concat { dim }).into() => {
                inner.inputs.iter().map(untracked).collect()
            }
            _ => vec![untracked(inner)],
        };
        Some(Self {
            dim,
            neighbours,
            before,
            after,
        })
    }

    fn len(&self) -> usize {
        self.neighbours.iter().map(|x| x.shape()[self.dim]).sum()
    }

    /// Joins the slice with the one that begins where this ends.
    fn joined(self, next: Self) -> RusTorchResult<Tensor> {
        const NAME: &str = "backward";
        let dim = self.dim;
        let all: Vec<&Tensor> = self.neighbours.iter().chain(&next.neighbours).collect();
        let whole = Tensor::apply(NAME, Concat { dim }, &all)?;
        let mut padding: SmallVec<[(usize, usize); 6]> = smallvec![(0, 0); whole.rank()];
        padding[dim] = (self.before, next.after);
        if padding[dim] == (0, 0) {
            return Ok(whole);
        }
        let value = Scalar::Int(0);
        Tensor::apply(NAME, Pad { padding, value }, &[&whole])
    }
}

/// A gradient as a tensor's hooks leave it.
fn hooked(track: &Track, mut gradient: Tensor) -> RusTorchResult<Tensor> {
    for hook in track.hooks() {
        if let Some(other) = call::user(|| hook(&gradient))? {
            let expected = format_args!("a gradient {}", gradient.ty());
            let fits = other.ty() == gradient.ty();
            require("register_hook", fits, expected, other.ty())?;
            gradient = other;
        }
    }
    Ok(gradient)
}

/// An operation whose operands' gradients are asked for.
struct Pulled<'a> {
    op: &'a Op,
    name: &'static str,
    location: Option<&'static Location<'static>>,
    recorded: Moment,
    inputs: SmallVec<[Tensor; 4]>,
    results: SmallVec<[Tensor; 1]>,
    cotangents: &'a [Option<Tensor>],
    needed: &'a [bool],
}

/// Records the operations that the gradients of an operation's operands are made of.
fn pull_back(pulled: &Pulled) -> RusTorchResult<Vec<Option<Tensor>>> {
    let mut g = Graph::new();
    let mut values: Vec<Option<Tensor>> = Vec::new();
    let mut input = |tensor: &Tensor| {
        values.push(Some(tensor.clone()));
        g.input(tensor.ty().clone())
    };
    let ids = |list: &[Tensor], input: &mut dyn FnMut(&Tensor) -> Result<ValueId, OpError>| {
        list.iter().map(input).collect::<Result<Vec<_>, _>>()
    };
    let inputs = ids(&pulled.inputs, &mut input)?;
    let results = ids(&pulled.results, &mut input)?;
    let cotangents = pulled.cotangents.iter();
    let cotangents: Vec<Option<ValueId>> = cotangents
        .map(|cotangent| cotangent.as_ref().map(&mut input).transpose())
        .collect::<Result<_, _>>()?;
    let node = Differentiated {
        inputs: &inputs,
        results: &results,
        cotangents: &cotangents,
        needed: pulled.needed,
    };
    let named = |e: OpError| OpError {
        op: pulled.name,
        ..e
    };
    let found = pulled.op.vjp(&mut g, &node).map_err(named)?;

    // Rules may append more than they need.
    let mut is_read = vec![false; g.len()];
    let mut mark = |value: &ValueId| is_read[value.index()] = true;
    found.iter().flatten().for_each(&mut mark);
    for node in g.nodes().iter().rev() {
        if node.results().any(|value| is_read[value.index()]) {
            node.inputs.iter().for_each(|v| is_read[v.index()] = true);
        }
    }
    let primals = pulled.inputs.iter().chain(&pulled.results);
    for (tensor, _) in primals.zip(&is_read).filter(|&(_, &is_read)| is_read) {
        let value = tensor.value();
        if value.is_of(pulled.recorded) {
            continue;
        }
        let place = pulled.location.map(|at| format!(" at {at}"));
        let place = place.unwrap_or_default();
        let expected = format_args!(
            "operands and results as they were when it was recorded{place}, for its gradient"
        );
        let cure = "copy it before that, or write after backward";
        let got = written_since(value.writer(), cure);
        return Err(OpError::new(pulled.name, expected, got).into());
    }
    for node in g.nodes() {
        let is_needed = node.results().any(|value| is_read[value.index()]);
        if !is_needed {
            values.extend(node.results().map(|_| None));
            continue;
        }
        let results = {
            let operands = node
                .inputs
                .iter()
                .filter_map(|v| values[v.index()].as_ref());
            let operands: SmallVec<[&Tensor; 4]> = operands.collect();
            Tensor::apply_node(pulled.name, node.op.clone(), &operands)?
        };
        values.extend(results.into_iter().map(Some));
    }
    let gradient = |value: Option<ValueId>| value.and_then(|value| values[value.index()].clone());
    Ok(found.into_iter().map(gradient).collect())
}
