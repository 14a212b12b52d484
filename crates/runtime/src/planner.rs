//! Chooses a device for each node.

use std::collections::HashMap;

use rustorch_ir::fusion::fuse;
use rustorch_ir::ops::RULES;
use rustorch_ir::{
    DType, Graph, Node, Op, OpError, Results, Role, Signature, TensorType, ValueId, check,
};
use smallvec::SmallVec;

use crate::costs::work::Workload;
use crate::devices::Devices;
use crate::effects::{self, Ordered};
use crate::estimate::{Locations, Measured, duration};
use crate::placement::{Assignment, DeviceId, Reason, Times};
use crate::policy::{Offer, Policy, Subject};
use crate::segment::{Segment, cut};
use crate::{Costs, DeviceType, OpType, Routing, Rules, RunError};

/// A graph with every node placed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The graph after decompositions; same inputs and outputs as the planned one.
    pub(crate) graph: Graph,
    /// One for each node of `graph`.
    pub(crate) assignments: Vec<Assignment>,
    /// For each node, is it an update that must not run twice? See [`effects`].
    pub(crate) unrepeatable: Vec<bool>,
    /// The nodes in runs of one device.
    pub(crate) segments: Vec<Segment>,
}

impl Plan {
    /// Index of the node of the graph as it was given that a node of the segment which begins at
    /// `first` is, or is a part of. Without a node, that of the whole segment, if there is one.
    pub(crate) fn origin(&self, first: usize, node: Option<usize>) -> Option<usize> {
        if let Some(node) = node {
            return Some(self.assignments.get(first + node)?.origin);
        }
        let segment = self.segments.iter().find(|s| s.first == first)?;
        let mut origins = self.assignments[segment.nodes()].iter().map(|a| a.origin);
        let only = origins.next()?;
        origins.all(|origin| origin == only).then_some(only)
    }
}

/// What a plan is made from, besides the graph.
pub(crate) struct Request<'a> {
    pub(crate) devices: &'a Devices,
    pub(crate) policy: &'a Policy,
    pub(crate) routing: Routing,
    /// Where the graph's inputs are.
    pub(crate) places: &'a Locations,
    /// Devices that ran out of memory in this run, with what they said.
    pub(crate) full: &'a [(DeviceId, String)],
}

/// Plans `graph`.
///
/// The ladder for one node: native kernel → decomposed on the same device → next device.
///
/// # Errors
/// No device that is offered can run some node.
pub(crate) fn plan(graph: &Graph, request: &Request) -> Result<Plan, RunError> {
    let mut planner = Planner::new(graph, request)?;
    for ty in graph.inputs() {
        let input = planner.graph.input(ty.clone())?;
        planner.values.push(Some(input));
    }
    for node in graph.nodes() {
        match planner.node(node)? {
            Some(results) => planner.values.extend(results.into_iter().map(Some)),
            None => planner.values.push(None),
        }
    }
    for &output in graph.outputs() {
        let value = planner.output(output)?;
        planner.graph.output(value);
    }
    check::outputs(&planner.graph)?;
    let (graph, assignments) = planner.fused()?;
    let Ordered {
        graph,
        assignments,
        unrepeatable,
    } = effects::last(graph, assignments)?;
    let segments = cut(&graph, &assignments)?;
    Ok(Plan {
        graph,
        assignments,
        unrepeatable,
        segments,
    })
}

/// The devices that a graph is offered to, judged as one product of its size.
///
/// # Errors
/// The graph cannot be taken apart.
pub(crate) fn prefer(graph: &Graph, request: &Request) -> Result<Offer, RunError> {
    let planner = Planner::new(graph, request)?;
    let subject = Subject {
        kind: None,
        op_type: Some(OpType::LinearAlgebra),
        dtype: DType::F32,
        rank: 2,
        elements: planner.bytes / size_of::<f32>(),
        custom_kernel: false,
        bytes: planner.bytes,
        times: &planner.times,
    };
    let Request {
        devices,
        policy,
        routing,
        ..
    } = *request;
    Ok(policy.offer(devices.chain(), routing, None, &subject))
}

/// The devices that can run a graph's only node, in the order in which it is offered to them: the
/// first one is where [`plan`] places it, in strict mode the only one.
///
/// # Errors
/// The graph cannot be taken apart.
pub(crate) fn candidates(
    graph: &Graph,
    request: &Request,
    custom_kernel: bool,
) -> Result<Vec<DeviceId>, RunError> {
    let planner = Planner::new(graph, request)?;
    let Some(node) = graph.nodes().first() else {
        return Ok(Vec::new());
    };
    let subject = planner.subject(node);
    let custom_kernel = custom_kernel || subject.custom_kernel;
    let offer = planner.offer_of(
        node,
        &Subject {
            custom_kernel,
            ..subject
        },
    );
    let can = |id: &DeviceId| planner.way(*id, node).is_ok();
    Ok(offer.ids.into_iter().filter(can).collect())
}

/// The bytes that a graph is judged by: of its inputs and of its outputs.
fn bytes_of(graph: &Graph) -> usize {
    let mut computed = graph.outputs().to_vec();
    computed.sort();
    computed.dedup();
    computed.retain(|&v| graph.node(v).is_some() && graph.state_root(v).is_none());
    let outputs = computed.into_iter().map(|v| graph.ty(v));
    let all = graph.inputs().iter().chain(outputs);
    all.fold(0, |sum, ty| sum.saturating_add(ty.bytes()))
}

struct Planner<'a> {
    source: &'a Graph,
    request: &'a Request<'a>,
    bytes: usize,
    /// What the whole takes on the devices that were measured, if there are several.
    times: Times,
    graph: Graph,
    assignments: Vec<Assignment>,
    /// The planned value of each of the source's; `None` for views of graph inputs and for
    /// constants, which are put in where they are read.
    values: Vec<Option<ValueId>>,
    /// What was put in, by where.
    put_in: HashMap<(ValueId, DeviceId), ValueId>,
}

/// How a device can run a node.
enum Way {
    Native,
    Decomposed(Graph),
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, request: &'a Request<'a>) -> Result<Self, RunError> {
        let mut planner = Self {
            source: graph,
            request,
            bytes: bytes_of(graph),
            times: Times::new(),
            graph: Graph::new(),
            assignments: Vec::with_capacity(graph.nodes().len()),
            values: Vec::with_capacity(graph.len()),
            put_in: HashMap::new(),
        };
        planner.graph.reserve(graph.nodes().len());
        let Routing { device, rules, .. } = request.routing;
        if (device, rules) == (DeviceType::Auto, Rules::Selector) {
            planner.times = planner.estimate()?;
        }
        Ok(planner)
    }

    /// What the graph should take on each measured device: operations, the run itself, and
    /// bringing inputs there. What a device cannot run makes a detour to the best that can.
    fn estimate(&self) -> Result<Times, RunError> {
        let Request {
            devices, policy, ..
        } = *self.request;
        let measured = Measured::of(devices);
        let inputs = self.source.inputs();
        let bare = |(id, costs): (DeviceId, &Costs)| {
            let bring = measured.bring_inputs(inputs, self.request.places, id);
            (id, costs.sync.as_secs_f64() + bring)
        };
        let mut totals: SmallVec<[(DeviceId, f64); 4]> = measured.iter().map(bare).collect();
        if totals.is_empty() {
            return Ok(Times::new());
        }
        let workload = Workload::new(self.source);
        for (index, node) in self.source.nodes().iter().enumerate() {
            let op_type = self.source.with_signature(node, OpType::of);
            let is_set = node.pin.is_some() || policy.route(node.op.kind(), op_type).is_some();
            // Those that are set go to the same device in any case.
            if is_set || node.op.def().role() == Role::View || is_constant(node) {
                continue;
            }
            let seconds = |(id, costs)| match self.way(id, node) {
                Ok(Way::Native) => Some(workload.seconds(costs, index)),
                Ok(Way::Decomposed(parts)) => Some(Workload::new(&parts).total(costs)),
                Err(_) => None,
            };
            let alone: SmallVec<[Option<f64>; 4]> = measured.iter().map(seconds).collect();
            let able = || {
                let all = measured.iter().zip(&alone);
                all.filter_map(|((id, _), seconds)| Some((id, (*seconds)?)))
            };
            for ((id, total), seconds) in totals.iter_mut().zip(&alone) {
                *total += match seconds {
                    Some(seconds) => *seconds,
                    None => {
                        let node = isolate(self.source, node)?;
                        let detour = |(there, s)| s + measured.detour(&node, *id, there);
                        able().map(detour).reduce(f64::min).unwrap_or(0.0)
                    }
                };
            }
        }
        let time = |(id, seconds)| (id, duration(seconds));
        Ok(totals.into_iter().map(time).collect())
    }

    /// Places a node of the source; `None` if that waits for its reader.
    fn node(&mut self, node: &Node) -> Result<Option<Results>, RunError> {
        match node.op.def().role() {
            Role::View => self.view(node),
            Role::Compute if is_constant(node) => Ok(None),
            Role::Compute => self.assign(node).map(Some),
        }
    }

    /// The planned graph with composites in place of what their devices do better at once.
    fn fused(self) -> Result<(Graph, Vec<Assignment>), RunError> {
        let Self {
            request,
            graph,
            assignments,
            ..
        } = self;
        if !request.routing.fuses {
            return Ok((graph, assignments));
        }
        // Neighbours of one device have one number.
        let mut runs = Vec::with_capacity(assignments.len());
        for run in assignments.chunk_by(|a, b| a.device == b.device) {
            runs.resize(runs.len() + run.len(), (runs.len(), run[0].device));
        }
        let supports = |(_, device): (usize, DeviceId), signature: &Signature| {
            let devices = request.devices;
            devices.forbids(device, signature).is_none()
                && devices.backend(device).supports(signature)
        };
        let rules = [&request.policy.fusions[..], RULES].concat();
        let Some(fused) = fuse(&graph, &rules, |at| runs[at], supports)? else {
            return Ok((graph, assignments));
        };
        let assignment = |origin: SmallVec<[usize; 8]>| {
            let mut assignment = assignments[origin[0]].clone();
            if origin.len() > 1 {
                let names = origin.iter().map(|&at| graph.nodes()[at].op.name());
                assignment.replaces = names.collect();
            }
            assignment
        };
        let assignments = fused.origins.into_iter().map(assignment).collect();
        Ok((fused.graph, assignments))
    }

    /// Places a node on the first device that can run it.
    fn assign(&mut self, node: &Node) -> Result<Results, RunError> {
        let mut offer = self.offer(node);
        let mut declined = std::mem::take(&mut offer.passed);
        for &device in &offer.ids {
            match self.way(device, node) {
                Ok(way) => {
                    let reason = match declined.is_empty() {
                        true => offer.reason,
                        false => Reason::Fallback(declined.join("; ")),
                    };
                    return self.place(node, way, device, reason);
                }
                Err(why) => declined.push(format!("{}: {why}", self.name(device))),
            }
        }
        Err(self.nowhere(node, &declined))
    }

    fn place(
        &mut self,
        node: &Node,
        way: Way,
        device: DeviceId,
        reason: Reason,
    ) -> Result<Results, RunError> {
        let inputs: SmallVec<[ValueId; 4]> = (node.inputs.iter())
            .map(|&v| self.resolve(v, device))
            .collect::<Result<_, _>>()?;
        match way {
            Way::Native => self.push(node, self.index(node), &inputs, device, reason),
            Way::Decomposed(parts) => {
                let reason = match reason {
                    fallback @ Reason::Fallback(_) => fallback,
                    _ => Reason::Decomposed(node.op.name()),
                };
                self.splice(&parts, node, &inputs, device, &reason)
            }
        }
    }

    /// A view is made where its input is computed, or where it is pinned to.
    fn view(&mut self, node: &Node) -> Result<Option<Results>, RunError> {
        let planned = self.values[node.inputs[0].index()];
        let computed = planned.and_then(|input| Some((input, self.graph.producer(input)?)));
        let Some((input, at)) = computed else {
            // Of a graph input, or of a view of one.
            return Ok(None);
        };
        let (device, reason) = match node.pin {
            Some(_) => self.first_allowed(node)?,
            None => (self.assignments[at].device, Reason::Neighbour),
        };
        self.push(node, self.index(node), &[input], device, reason)
            .map(Some)
    }

    /// A graph output's value.
    fn output(&mut self, value: ValueId) -> Result<ValueId, RunError> {
        match (self.values[value.index()], self.source.node(value)) {
            (None, Some(node)) if is_constant(node) => Ok(self.assign(node)?[0]),
            (None, Some(view)) => {
                let device = self.first_allowed(view)?.0;
                self.resolve(value, device)
            }
            (placed, _) => Ok(placed.unwrap_or(value)),
        }
    }

    /// The planned value of one of the source's, for a reader on `device`.
    fn resolve(&mut self, value: ValueId, device: DeviceId) -> Result<ValueId, RunError> {
        // Views of views can be many: in a loop, not by recursion.
        let source = self.source;
        let mut chain: SmallVec<[(ValueId, &Node); 4]> = SmallVec::new();
        let mut at = value;
        let mut planned = loop {
            let known = self.values[at.index()].or(self.put_in.get(&(at, device)).copied());
            match (known, source.node(at)) {
                (Some(planned), _) => break planned,
                (None, Some(node)) if is_constant(node) => {
                    break self.constant(at, node, device)?;
                }
                (None, Some(view)) => {
                    chain.push((at, view));
                    at = view.inputs[0];
                }
                // Inputs are known.
                (None, None) => break at,
            }
        };
        for (value, view) in chain.into_iter().rev() {
            let at = self.index(view);
            planned = self.push(view, at, &[planned], device, Reason::Neighbour)?[0];
            self.put_in.insert((value, device), planned);
        }
        Ok(planned)
    }

    /// A constant for a reader on `device`, made there if that has a kernel for it.
    fn constant(
        &mut self,
        value: ValueId,
        node: &Node,
        device: DeviceId,
    ) -> Result<ValueId, RunError> {
        let planned = match self.way(device, node) {
            Ok(way) => self.place(node, way, device, Reason::Neighbour)?[0],
            Err(_) => self.assign(node)?[0],
        };
        self.put_in.insert((value, device), planned);
        Ok(planned)
    }

    fn offer(&self, node: &Node) -> Offer {
        self.offer_of(node, &self.subject(node))
    }

    /// What the rules look at in a node.
    fn subject(&self, node: &Node) -> Subject<'_> {
        let operands = node.inputs.iter().map(|&v| self.source.ty(v));
        let types: SmallVec<[&TensorType; 5]> = operands.chain(&node.outputs).collect();
        let elements = types.iter().map(|ty| ty.shape.elements());
        let op_type = self.source.with_signature(node, OpType::of);
        Subject {
            kind: Some(node.op.kind()),
            op_type,
            dtype: node.output().dtype,
            rank: types.iter().map(|ty| ty.rank()).max().unwrap_or(0),
            elements: elements.max().unwrap_or(0),
            custom_kernel: op_type == Some(OpType::CustomKernel),
            bytes: self.bytes,
            times: &self.times,
        }
    }

    fn offer_of(&self, node: &Node, subject: &Subject) -> Offer {
        let Request {
            devices,
            policy,
            routing,
            ..
        } = *self.request;
        let mut offer = policy.offer(devices.chain(), routing, node.pin, subject);
        let free = matches!(
            offer.reason,
            Reason::Preferred | Reason::Policy(_) | Reason::Measured { .. }
        );
        if subject.op_type.is_none() && free {
            self.prefer_neighbour(node, &mut offer);
        }
        offer
    }

    /// What only moves data goes first to where its first operand is computed.
    fn prefer_neighbour(&self, node: &Node, offer: &mut Offer) {
        let inputs = node.inputs.iter();
        let planned = inputs.filter_map(|v| self.values[v.index()]);
        let Some(at) = planned.filter_map(|v| self.graph.producer(v)).next() else {
            return;
        };
        let device = self.assignments[at].device;
        let place = offer.ids.iter().position(|&id| id == device);
        if let Some(place) = place.filter(|&place| place > 0) {
            offer.ids[..=place].rotate_right(1);
            offer.reason = Reason::Neighbour;
        }
    }

    /// The first device that may be used for a node which needs no kernel.
    fn first_allowed(&self, node: &Node) -> Result<(DeviceId, Reason), RunError> {
        let mut offer = self.offer(node);
        let mut declined = std::mem::take(&mut offer.passed);
        for &device in &offer.ids {
            let forbids = |s: &Signature| self.forbids(device, s);
            match self.source.with_signature(node, forbids) {
                None if declined.is_empty() => return Ok((device, offer.reason)),
                None => return Ok((device, Reason::Fallback(declined.join("; ")))),
                Some(why) => declined.push(format!("{}: {why}", self.name(device))),
            }
        }
        Err(self.nowhere(node, &declined))
    }

    fn name(&self, device: DeviceId) -> DeviceType {
        self.request.devices.info(device).device
    }

    fn nowhere(&self, node: &Node, declined: &[String]) -> RunError {
        let types = node.inputs.iter().map(|&v| self.source.ty(v).to_string());
        let types: Vec<String> = types.collect();
        RunError::NoDevice {
            op: format!("{} of {}", node.op.name(), types.join(", ")),
            node: Some(self.index(node)),
            call: None,
            tried: match declined.is_empty() {
                true => "there is no device".to_owned(),
                false => declined.join("; "),
            },
        }
    }

    /// The index of a node of the source.
    fn index(&self, node: &Node) -> usize {
        self.source.producer(node.result(0)).unwrap_or_default()
    }

    /// Adds a node that is the source's of index `origin`, or a part of it.
    fn push(
        &mut self,
        node: &Node,
        origin: usize,
        inputs: &[ValueId],
        device: DeviceId,
        reason: Reason,
    ) -> Result<Results, RunError> {
        let first = self.graph.push_node(node, inputs)?;
        self.assignments.push(Assignment {
            device,
            reason,
            replaces: SmallVec::new(),
            origin,
        });
        Ok(self.graph.results(first))
    }

    fn way(&self, device: DeviceId, node: &Node) -> Result<Way, String> {
        let declines = |s: &Signature| self.declines(device, s);
        let declined = match self.source.with_signature(node, declines) {
            None => return Ok(Way::Native),
            Some(why) => why,
        };
        if !node.op.def().is_composite() {
            return Err(declined);
        }
        // The node on its own, so that its parts can be tried before they are spliced in.
        let alone = isolate(self.source, node).map_err(|e| e.to_string())?;
        let parts = decompose(&alone, &node.op).map_err(|e| e.to_string())?;
        for part in parts.nodes() {
            if part.op.def().role() == Role::View {
                continue;
            }
            if let Some(why) = parts.with_signature(part, declines) {
                return Err(match why == declined {
                    true => declined,
                    false => format!("{declined}, and its part {}: {why}", part.op.name()),
                });
            }
        }
        Ok(Way::Decomposed(parts))
    }

    /// Why `device` does not run an operation as it is; `None` if it does.
    fn declines(&self, device: DeviceId, s: &Signature) -> Option<String> {
        if let Some(why) = self.forbids(device, s) {
            return Some(why);
        }
        let supported = self.request.devices.backend(device).supports(s);
        let bytes = s.output().bytes() as u64;
        let memory = self.request.devices.info(device).memory_bytes;
        (!supported).then(|| match memory.filter(|&memory| memory < bytes) {
            Some(memory) => format!("out of memory: a result of {bytes} bytes, of {memory} in all"),
            None => format!("no kernel for {} of {}", s.op.name(), s.output().dtype),
        })
    }

    /// Why `device` may not run an operation, whatever it says itself.
    fn forbids(&self, device: DeviceId, signature: &Signature) -> Option<String> {
        let full = self.request.full.iter().find(|(full, _)| *full == device);
        match full {
            Some((_, message)) => Some(message.clone()),
            None => self.request.devices.forbids(device, signature),
        }
    }

    /// Appends the nodes of `parts`, which `node` is made of and whose inputs are `inputs`.
    fn splice(
        &mut self,
        parts: &Graph,
        node: &Node,
        inputs: &[ValueId],
        device: DeviceId,
        reason: &Reason,
    ) -> Result<Results, RunError> {
        let origin = self.index(node);
        let mut values = inputs.to_vec();
        for part in parts.nodes() {
            let operands: SmallVec<[ValueId; 4]> =
                part.inputs.iter().map(|v| values[v.index()]).collect();
            let results = self.push(part, origin, &operands, device, reason.clone())?;
            self.graph.pin(results[0], node.pin);
            values.extend(results);
        }
        Ok(parts.outputs().iter().map(|v| values[v.index()]).collect())
    }
}

/// Is it made of nothing but its parameters, and not pinned anywhere?
fn is_constant(node: &Node) -> bool {
    node.inputs.is_empty() && node.pin.is_none() && node.op.def().op_type().is_none()
}

/// A graph of just one node on inputs of its operands' types.
fn isolate(graph: &Graph, node: &Node) -> Result<Graph, OpError> {
    let mut alone = Graph::new();
    let operands = (node.inputs.iter())
        .map(|&v| alone.input(graph.ty(v).clone()))
        .collect::<Result<SmallVec<[ValueId; 4]>, _>>()?;
    let first = alone.push_node(node, &operands)?;
    for value in alone.results(first) {
        alone.output(value);
    }
    Ok(alone)
}

/// The definition of a graph's only node, a composite, on the same inputs.
fn decompose(alone: &Graph, op: &Op) -> Result<Graph, OpError> {
    let mut parts = Graph::new();
    let operands = (alone.inputs().iter())
        .map(|ty| parts.input(ty.clone()))
        .collect::<Result<SmallVec<[ValueId; 4]>, _>>()?;
    for value in parts.expand(op, &operands)? {
        parts.output(value);
    }
    Ok(parts)
}
