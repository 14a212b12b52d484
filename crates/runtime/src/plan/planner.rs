//! Chooses a device for each node.

use std::collections::HashMap;
use std::time::Duration;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::passes::RULES;
use rustorch_ir::passes::{
    Changes, Decomposition, Fusion, OneDevice, Origins, Pass, Places, Rewriting, Rewritten,
    planned, unrepeatable,
};
use rustorch_ir::{
    DType, Graph, Node, OpError, Results, Role, Signature, TensorType, ValueId, check,
};
use smallvec::SmallVec;

use crate::devices::Devices;
use crate::devices::costs::work::Workload;
use crate::devices::placement::{Assignment, DeviceId, Reason, is_constant};
use crate::devices::policy::{Offer, Policy, Subject};
use crate::plan::estimate::{Locations, Measured, duration};
use crate::plan::partition::{Offers, Partition, Problem};
use crate::plan::segment::{Segment, cut};
use crate::{Costs, DeviceType, GpuExecutionStrategy, Hardware, OpType, Routing, Rules, RunError};

/// A graph with every node placed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The graph after decompositions; same inputs and outputs as the planned one.
    pub(crate) graph: Graph,
    /// One for each node of `graph`.
    pub(crate) assignments: Vec<Assignment>,
    /// For each node of `graph`, its origins in the graph as it was given.
    pub(crate) origins: Vec<Origins>,
    /// For each node, is it an update that must not run twice? See [`unrepeatable`].
    pub(crate) unrepeatable: Vec<bool>,
    /// The nodes in runs of one device.
    pub(crate) segments: Vec<Segment>,
    /// Reports of the passes that made it, if the [request](Request::reports) has them.
    pub(crate) changes: Vec<Changes>,
}

impl Plan {
    /// The index in the original graph of a node in the segment that begins at `first`. The node may be a part
    /// of it. Without a node, that of the whole segment, if there is one.
    pub(crate) fn origin(&self, first: usize, node: Option<usize>) -> Option<usize> {
        if let Some(node) = node {
            return Some(self.origins.get(first + node)?[0]);
        }
        let segment = self.segments.iter().find(|s| s.first == first)?;
        let mut origins = self.origins[segment.nodes()].iter().map(|of| of[0]);
        let only = origins.next()?;
        origins.all(|origin| origin == only).then_some(only)
    }

    /// Number of operations that a segment computes, fused ones counted one by one.
    fn operations(&self, segment: &Segment) -> usize {
        let nodes = self.graph.nodes()[segment.nodes()].iter();
        let all = nodes.zip(&self.assignments[segment.nodes()]);
        let computing = all.filter(|(node, _)| node.op.def().role() == Role::Compute);
        computing.map(|(_, a)| a.replaces.len().max(1)).sum()
    }

    /// Adds a segment's nodes to those that its device is not to run. Views and constants go where
    /// they are read, unless there is nothing else.
    pub(crate) fn avoid(&self, segment: &Segment, graph: &Graph, why: &str, avoided: &mut Avoided) {
        let origins = || self.origins[segment.nodes()].iter().flatten().copied();
        let computes = |origin: &usize| {
            let node = &graph.nodes()[*origin];
            node.op.def().role() == Role::Compute && !is_constant(node)
        };
        let is_empty = !origins().any(|origin| computes(&origin));
        for origin in origins().filter(|origin| is_empty || computes(origin)) {
            avoided.insert((origin, segment.device), why.to_owned());
        }
    }
}

impl Request<'_> {
    /// Has the user sent a node somewhere, or its operation, or the family of that?
    fn is_set(&self, graph: &Graph, node: &Node) -> bool {
        let route = || {
            let op_type = graph.with_signature(node, OpType::of);
            self.policy.route(node.op.kind(), op_type)
        };
        node.pin.is_some() || route().is_some()
    }

    /// Are measured times compared?
    fn compares(&self) -> bool {
        let Routing { device, rules, .. } = self.routing;
        let by_times = device == DeviceType::Auto && rules != Rules::F32Hybrid;
        by_times && self.policy.selector.compares
    }
}

/// Nodes of a graph as it was given that devices are not to run, with the reasons.
pub(crate) type Avoided = HashMap<(usize, DeviceId), String>;

/// The input of a plan besides the graph.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) devices: &'a Devices,
    pub(crate) policy: &'a Policy,
    pub(crate) routing: Routing,
    /// The places of the graph's inputs.
    pub(crate) places: &'a Locations,
    /// Devices that ran out of memory in this run, with their messages.
    pub(crate) full: &'a [(DeviceId, String)],
    /// Operations that are left to other devices.
    pub(crate) avoided: &'a Avoided,
    /// Do passes report their changes?
    pub(crate) reports: bool,
}

/// Plans `graph`.
///
/// The ladder for one node: native kernel → decomposed on the same device → next device. Segments
/// that are not worth compiling where that takes long go to the next device.
///
/// # Errors
/// Fails if none of the offered devices can run some node.
pub(crate) fn plan(graph: &Graph, request: &Request) -> Result<Plan, RunError> {
    let mut plan = place_all(graph, request)?;
    if request.routing.strict || !request.devices.compile_slowly() {
        return Ok(plan);
    }
    let mut avoided = request.avoided.clone();
    while avoid_small_segments(&plan, graph, request, &mut avoided) {
        let avoided = &avoided;
        match place_all(
            graph,
            &Request {
                avoided,
                ..*request
            },
        ) {
            Ok(other) => plan = other,
            // Nobody else can run them.
            Err(_) => break,
        }
    }
    Ok(plan)
}

/// Adds the nodes of segments that are too small for their devices. Returns whether there are any.
fn avoid_small_segments(
    plan: &Plan,
    graph: &Graph,
    request: &Request,
    avoided: &mut Avoided,
) -> bool {
    let is_asked = request.routing.device != DeviceType::Auto;
    if is_asked && plan.segments.len() == 1 {
        return false;
    }
    let before = avoided.len();
    for segment in &plan.segments {
        let Some(compilation) = request.devices.slot(segment.device).compilation else {
            continue;
        };
        let (operations, least) = (plan.operations(segment), compilation.least_operations);
        let is_set = |at: usize| {
            let mut origins = plan.origins[at].iter();
            origins.any(|&origin| request.is_set(graph, &graph.nodes()[origin]))
        };
        if operations < least && !segment.nodes().any(is_set) {
            let why = format!("a segment of {operations} of the {least} operations that it takes");
            plan.avoid(segment, graph, &why, avoided);
        }
    }
    avoided.len() > before
}

/// Places each node of `graph`, and runs the passes of planning.
fn place_all(graph: &Graph, request: &Request) -> Result<Plan, RunError> {
    let mut planner = Planner::new(graph, request);
    planner.out.reserve();
    planner.out.inputs()?;
    for node in graph.nodes() {
        let results = planner.node(node)?.into_iter().flatten();
        for (value, new) in node.results().zip(results) {
            planner.out.set(value, new);
        }
    }
    let outputs = graph.outputs().iter().map(|&v| planner.output(v));
    let outputs: SmallVec<[ValueId; 4]> = outputs.collect::<Result<_, _>>()?;
    let Planner {
        out, assignments, ..
    } = planner;
    let placed = out.finish_with(&outputs);
    check::outputs(&placed.graph)?;
    let mut changes = Vec::new();
    if request.reports {
        changes.push(Changes::between("placement", graph, Some(&placed)));
    }
    let rules = [&request.policy.fusions[..], RULES].concat();
    let fusion = Fusion { rules: &rules };
    let mut places = Placed {
        request,
        assignments,
    };
    let reports = request.reports.then_some(&mut changes);
    let Rewritten { graph, origins } = placed.through(&planned(&fusion), &mut places, reports)?;
    let assignments = places.assignments;
    Ok(Plan {
        unrepeatable: unrepeatable(&graph),
        segments: cut(&graph, &assignments)?,
        graph,
        assignments,
        origins,
        changes,
    })
}

/// The devices of a graph's nodes, with their reasons.
struct Placed<'a> {
    request: &'a Request<'a>,
    assignments: Vec<Assignment>,
}

impl Places for Placed<'_> {
    fn device(&self, at: usize) -> usize {
        self.assignments[at].device.0
    }

    fn supports(&self, at: usize, signature: &Signature) -> bool {
        let Request {
            devices, routing, ..
        } = self.request;
        let device = self.assignments[at].device;
        routing.fuses
            && devices.forbids(device, signature).is_none()
            && devices.backend(device).supports(signature)
    }

    fn follow(&mut self, before: &Graph, rewritten: &Rewritten) {
        let assignment = |(node, origins): (&Node, &Origins)| {
            let mut assignment = self.assignments[origins[0]].clone();
            if origins.len() > 1 {
                let names = origins.iter().map(|&at| before.nodes()[at].op.function());
                assignment.replaces = names.collect();
            } else if node.op.def().role() == Role::View && before.nodes()[origins[0]].op != node.op
            {
                // A view for the node is none of those that this replaces.
                assignment.replaces.clear();
            }
            assignment
        };
        let nodes = rewritten.graph.nodes().iter().zip(&rewritten.origins);
        self.assignments = nodes.map(assignment).collect();
    }
}

/// The devices that a graph is offered to, judged as one product of its size.
pub(crate) fn prefer(graph: &Graph, request: &Request) -> Offer {
    let planner = Planner::new(graph, request);
    let subject = Subject {
        kind: None,
        op_type: Some(OpType::LinearAlgebra),
        dtype: DType::F32,
        rank: 2,
        elements: planner.bytes / size_of::<f32>(),
        custom_kernel: false,
        bytes: planner.bytes,
        times: &planner.partition.times,
        split: None,
    };
    let Request {
        devices,
        policy,
        routing,
        ..
    } = *request;
    policy.offer(devices.chain(), routing, None, &subject)
}

/// The devices that can run a graph's only node, in the order in which it is offered to them: the
/// first one is where [`plan`] places it, in strict mode the only one.
pub(crate) fn candidates(graph: &Graph, request: &Request, custom_kernel: bool) -> Vec<DeviceId> {
    let planner = Planner::new(graph, request);
    let Some(node) = graph.nodes().first() else {
        return Vec::new();
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
    let mut able: Vec<DeviceId> = offer.ids.into_iter().filter(can).collect();
    let is_chosen = request.routing.device != DeviceType::Auto || request.is_set(graph, node);
    if !is_chosen && !request.routing.strict {
        // One operation may be too few for those that compile slowly.
        let least = |id: &DeviceId| request.devices.slot(*id).compilation;
        sort_by_key(&mut able, |id| {
            least(id).is_some_and(|c| c.least_operations > 1)
        });
    }
    able
}

/// The expected time of a graph as planned, and whole on each measured device; `None` unless measured times are
/// compared.
///
/// # Errors
/// Fails if no device can run some node.
pub(crate) fn estimate(graph: &Graph, request: &Request) -> Result<Option<Estimate>, RunError> {
    let planner = Planner::new(graph, request);
    let Some(measured) = planner.measured() else {
        return Ok(None);
    };
    let plan = plan(graph, request)?;
    let mut devices = vec![None; graph.nodes().len()];
    for (assignment, origins) in plan.assignments.iter().zip(&plan.origins) {
        for &origin in origins {
            devices[origin] = Some(assignment.device);
        }
    }
    let problem = planner.problem(&measured);
    let name = |&(id, time)| (request.devices.info(id).device, time);
    Ok(Some(Estimate {
        planned: duration(problem.seconds(|node| devices[node])),
        segments: plan.segments.len(),
        alone: planner.partition.times.iter().map(name).collect(),
    }))
}

/// The bytes that a graph is judged by: of its inputs and of its outputs.
fn bytes_of(graph: &Graph) -> usize {
    let mut computed = graph.outputs().to_vec();
    sort_by_key(&mut computed, |v| *v);
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
    /// The expected time of the whole graph on measured devices, if there are several.
    partition: Partition,
    /// The placed nodes. Views of graph inputs, and constants, are not there before they are read.
    out: Rewriting<'a>,
    assignments: Vec<Assignment>,
    /// The inserted nodes, by place.
    put_in: HashMap<(ValueId, DeviceId), ValueId>,
}

/// The expected time of a graph, by the measured speed of devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Expected time of the planned run.
    pub planned: Duration,
    /// Number of segments in the plan.
    pub segments: usize,
    /// Time on each measured device alone; only operations that it does not support go elsewhere.
    pub alone: Vec<(DeviceType, Duration)>,
}

/// Ways in which a device can run a node.
enum Way {
    Native,
    Decomposed(Graph),
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, request: &'a Request<'a>) -> Self {
        let mut planner = Self {
            source: graph,
            request,
            bytes: bytes_of(graph),
            partition: Partition::default(),
            out: Rewriting::empty(graph),
            assignments: Vec::with_capacity(graph.nodes().len()),
            put_in: HashMap::new(),
        };
        if let Some(measured) = planner.measured() {
            let splits = !request.routing.strict;
            planner.partition = planner.problem(&measured).solve(splits);
        }
        planner
    }

    /// The measured devices that the graph is offered to; `None` if there is nothing to compare.
    fn measured(&self) -> Option<Measured> {
        let Request {
            devices, routing, ..
        } = *self.request;
        let Routing {
            rules,
            strategy,
            strict,
            ..
        } = routing;
        let allowed = |id| {
            let info = devices.info(id);
            rules.compare(info) && !strategy.excludes(info, strict)
        };
        let measured = (self.request.compares()).then(|| Measured::of(devices, allowed))?;
        (!measured.is_empty()).then_some(measured)
    }

    /// The graph with its nodes' times.
    fn problem<'m>(&self, measured: &'m Measured) -> Problem<'m> {
        let workload = Workload::new(self.source);
        Problem::new(self.source, self.request.places, measured, |index, node| {
            self.offers(measured, &workload, index, node)
        })
    }

    /// The measured devices that can run a node, with its time there.
    fn offers(
        &self,
        measured: &Measured,
        workload: &Workload,
        index: usize,
        node: &Node,
    ) -> Offers {
        let Request {
            devices,
            policy,
            routing,
            ..
        } = *self.request;
        let freely = Routing {
            strict: false,
            ..routing
        };
        let ids = (policy.offer(devices.chain(), freely, node.pin, &self.subject(node))).ids;
        let offer = |&id: &DeviceId| {
            let way = self.way(id, node).ok()?;
            let seconds = |costs: &Costs| match &way {
                Way::Native => workload.seconds(costs, index),
                Way::Decomposed(parts) => Workload::new(parts).total(costs),
            };
            Some((id, measured.get(id).map_or(0.0, seconds)))
        };
        let first = || ids.iter().find_map(offer).into_iter().collect();
        if self.request.is_set(self.source, node) {
            return first();
        }
        let known = ids.iter().filter(|id| measured.get(**id).is_some());
        let mut offers: Offers = known.filter_map(offer).collect();
        let is_processor =
            |(id, _): &(DeviceId, f64)| devices.info(*id).hardware == Hardware::Processor;
        if routing.strategy == GpuExecutionStrategy::GpuOnly && !offers.iter().all(is_processor) {
            offers.retain(|offer| !is_processor(offer));
        }
        match offers.is_empty() {
            true => first(),
            false => offers,
        }
    }

    /// Places a node of the source; `None` if that waits for its reader.
    fn node(&mut self, node: &Node) -> Result<Option<Results>, RunError> {
        match node.op.def().role() {
            Role::View => self.view(node),
            Role::Compute if is_constant(node) => Ok(None),
            Role::Compute => self.assign(node).map(Some),
        }
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
                    _ => Reason::Decomposed(node.op.function()),
                };
                self.splice(&parts, node, &inputs, device, &reason)
            }
        }
    }

    /// A view is made where its input is computed, or where it is pinned to.
    fn view(&mut self, node: &Node) -> Result<Option<Results>, RunError> {
        let planned = self.out.known(node.inputs[0]);
        let computed = planned.and_then(|input| Some((input, self.out.graph().producer(input)?)));
        let Some((input, at)) = computed else {
            // The base is a graph input or a view of one.
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
        match (self.out.known(value), self.source.node(value)) {
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
            let known = (self.out.known(at)).or(self.put_in.get(&(at, device)).copied());
            match (known, source.node(at)) {
                (Some(planned), _) => break planned,
                (None, Some(node)) if is_constant(node) => {
                    let seen = self.seen(node, &mut chain);
                    let (at, node) = seen.as_ref().map_or((at, node), |(at, node)| (*at, node));
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

    /// A constant with the elements that the innermost views of another one show, if it is no larger.
    fn seen(
        &self,
        node: &Node,
        chain: &mut SmallVec<[(ValueId, &Node); 4]>,
    ) -> Option<(ValueId, Node)> {
        let mut seen: Option<(ValueId, Node)> = None;
        while let Some(&(value, view)) = chain.last() {
            let (whole, ty) = (seen.as_ref().map_or(node, |(_, node)| node), view.output());
            let fits = ty.shape.elements() <= whole.output().shape.elements();
            let Some(op) = whole.op.def().seen(&view.op, ty).filter(|_| fits) else {
                break;
            };
            let mut node = node.clone();
            (node.op, node.outputs[0]) = (op, ty.clone());
            seen = Some((value, node));
            chain.pop();
        }
        seen
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

    /// The facts of a node that the rules look at.
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
            times: &self.partition.times,
            split: self.partition.split.as_ref().and_then(|split| {
                let device = split.devices[self.index(node)]?;
                Some((split, device))
            }),
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
        if free && routing.rules.follows(subject) {
            self.prefer_neighbour(node, &mut offer);
        }
        offer
    }

    /// Goes first to where the node's first operand is computed.
    fn prefer_neighbour(&self, node: &Node, offer: &mut Offer) {
        let inputs = node.inputs.iter();
        let planned = inputs.filter_map(|&v| self.out.known(v));
        let Some(at) = planned.filter_map(|v| self.out.graph().producer(v)).next() else {
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
            let avoids = self.avoids(device, node).map(str::to_owned);
            match avoids.or_else(|| self.source.with_signature(node, forbids)) {
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
        let results = self.out.push_node(node, inputs, origin)?;
        self.assignments.push(Assignment {
            device,
            reason,
            replaces: SmallVec::new(),
        });
        Ok(results)
    }

    fn way(&self, device: DeviceId, node: &Node) -> Result<Way, String> {
        if let Some(why) = self.avoids(device, node) {
            return Err(why.to_owned());
        }
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
        let here = OneDevice(|s| declines(s).is_none());
        let parts = Decomposition
            .run(&alone, &here)
            .map_err(|e| e.to_string())?;
        let parts = parts.map_or(alone, |parts| parts.graph);
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

    /// The reason why `device` does not run an operation directly; `None` if it does.
    fn declines(&self, device: DeviceId, s: &Signature) -> Option<String> {
        if let Some(why) = self.forbids(device, s) {
            return Some(why);
        }
        let backend = self.request.devices.backend(device);
        let supported = backend.supports(s);
        let bytes = s.output().bytes() as u64;
        let memory = self.request.devices.info(device).memory_bytes;
        (!supported).then(|| match memory.filter(|&memory| memory < bytes) {
            Some(memory) => format!("out of memory: a result of {bytes} bytes, of {memory} in all"),
            None => {
                let feature = backend.missing_feature(s);
                let feature = feature.map(|name| format!(" without the Cargo feature {name}"));
                let (op, dtype) = (s.op.name(), s.output().dtype);
                format!(
                    "no kernel for {op} of {dtype}{}",
                    feature.unwrap_or_default()
                )
            }
        })
    }

    /// Why a node is left to other devices than this.
    fn avoids(&self, device: DeviceId, node: &Node) -> Option<&str> {
        let avoided = self.request.avoided;
        // Most often there are none.
        let known = !avoided.is_empty();
        let why = known.then(|| avoided.get(&(self.index(node), device)))?;
        why.map(String::as_str)
    }

    /// The reason why `device` may not run an operation, even if it reports support.
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
            values.extend(self.push(part, origin, &operands, device, reason.clone())?);
        }
        Ok(parts.outputs().iter().map(|v| values[v.index()]).collect())
    }
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
