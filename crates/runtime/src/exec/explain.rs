//! The device of each operation, and why.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{Node, Role, Signature, TensorType, ValueId};
use smallvec::smallvec;

use crate::devices::Devices;
use crate::devices::costs::work::Workload;
use crate::devices::placement::{Assignment, DeviceId, Reason};
use crate::exec::profile::{Profile, describe_names};
use crate::plan::estimate::{HOST, Locations, bit, duration};
use crate::plan::planner::Plan;
use crate::{Costs, DeviceType, Nodes, TransferMethod};

/// A row of `explain`: operations that go to one device for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The operation, by PyTorch's name. If the method that recorded it has another name, that name comes first. A
    /// timed launch of several operations lists all of them.
    pub op: String,
    /// Number of the plan's nodes, or of several launches.
    pub count: usize,
    /// The devices.
    pub device: DeviceType,
    /// Why there.
    pub reason: String,
    /// The operations that each replaced by [fusion](rustorch_ir::passes::Fusion); empty for those of the
    /// caller's graph.
    pub replaces: String,
    /// Bytes that they write.
    pub bytes: usize,
    /// Operands that have to be copied to the device's memory, each value once for each device.
    pub copies: Vec<Copied>,
    /// Their expected total time; `None` unless the device was measured, see
    /// [`Runtime::set_costs`](crate::Runtime::set_costs).
    pub expected: Option<Duration>,
    /// The device's total time on them, as the mean of the runs. `None` if no run was timed, or the
    /// device does not report times.
    pub measured: Option<Duration>,
}

impl Explanation {
    /// Bytes of operands that have to be copied to the device's memory.
    pub fn moved(&self) -> usize {
        self.copies.iter().map(|copied| copied.ty.bytes()).sum()
    }
}

/// `add on opencl:0: pinned to opencl:0; copied there: operand 1, f32[2], from cpu`.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count > 1 {
            write!(f, "{} ", self.count)?;
        }
        write!(f, "{} on {}: {}", self.op, self.device, self.reason)?;
        for (i, copied) in self.copies.iter().enumerate() {
            let before = if i == 0 { "; copied there: " } else { "; " };
            write!(f, "{before}{copied}")?;
        }
        Ok(())
    }
}

/// An operand that has to be copied to the device of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The operand's index, from 0.
    pub operand: usize,
    /// Shape and dtype of the copied bytes: for a view, those of its base.
    pub ty: TensorType,
    /// The location of the operand.
    pub from: DeviceType,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operand, ty, from } = self;
        write!(f, "operand {operand}, {ty}, from {from}")
    }
}

/// Facts about a node from the caller.
#[derive(Clone, Default, Debug)]
pub struct NodeNote {
    /// The method that recorded it.
    pub method: Option<&'static str>,
    /// The reason why it is pinned, if it is.
    pub pinned: Option<String>,
}

/// Further facts of a plan.
pub(crate) struct Known<'a> {
    /// The timed launches. Nodes that are launched together are known of that.
    pub(crate) profile: Option<&'a Profile>,
    /// The places of the graph's inputs.
    pub(crate) places: &'a Locations,
    /// Facts of a node of the original graph, by its index.
    pub(crate) note: &'a dyn Fn(usize) -> NodeNote,
}

/// A plan as rows: launches of the same operations, device and reason counted together.
pub(crate) fn explain(plan: &Plan, devices: &Devices, known: &Known) -> Vec<Explanation> {
    let mut rows: Vec<Explanation> = Vec::new();
    let mut moves = Moves::new(plan, devices, known.places);
    let workload = Workload::new(&plan.graph);
    for (launched, measured) in launches(plan, known.profile) {
        let nodes = || launched.iter().map(|&at| &plan.graph.nodes()[at]);
        // The last node's result is the one that reaches memory.
        let Some((&last, node)) = launched.last().zip(nodes().next_back()) else {
            continue;
        };
        let assignment = &plan.assignments[last];
        let costs = devices.slot(assignment.device).costs();
        let expected = |costs: &Costs| {
            let seconds = launched.iter().map(|&at| workload.seconds(costs, at));
            duration(seconds.sum())
        };
        let ops = launched.iter().map(|&at| {
            let function = plan.graph.nodes()[at].op.function();
            match (known.note)(plan.origins[at][0]).method {
                Some(method) if method != function => format!("{method}: {function}"),
                _ => function.to_owned(),
            }
        });
        let ops: Vec<String> = ops.collect();
        let written = |s: &Signature| node.op.def().written(s);
        let mut reason = assignment.reason.to_string();
        let note = (known.note)(plan.origins[last][0]);
        if let (Reason::Pinned(_), Some(why)) = (&assignment.reason, note.pinned) {
            reason = format!("{reason}, {why}");
        }
        let row = Explanation {
            op: describe_names(&ops),
            count: 1,
            device: devices.info(assignment.device).device,
            reason,
            replaces: describe_names(&assignment.replaces),
            bytes: plan.graph.with_signature(node, written),
            copies: nodes()
                .flat_map(|node| moves.to(node, assignment))
                .collect(),
            expected: costs.as_deref().map(expected),
            measured,
        };
        let same = |r: &&mut Explanation| {
            let key =
                |r: &Explanation| (r.op.clone(), r.device, r.reason.clone(), r.replaces.clone());
            key(r) == key(&row)
        };
        match rows.iter_mut().find(same) {
            Some(r) => {
                r.count += 1;
                r.bytes += row.bytes;
                r.copies.extend(row.copies);
                r.expected = sum(r.expected, row.expected);
                r.measured = sum(r.measured, row.measured);
            }
            None => rows.push(row),
        }
    }
    rows
}

/// The nodes of each launch, with its time, in the order of their last nodes.
fn launches(plan: &Plan, profile: Option<&Profile>) -> Vec<(Nodes, Option<Duration>)> {
    let timed = profile.into_iter().flat_map(Profile::launches);
    let mut all: Vec<(Nodes, Option<Duration>)> = timed
        .map(|(nodes, time)| (nodes.clone(), Some(time)))
        .collect();
    let known: HashSet<usize> = all
        .iter()
        .flat_map(|(nodes, _)| nodes.iter().copied())
        .collect();
    let others = plan.graph.nodes().iter().enumerate();
    let others =
        others.filter(|(at, node)| node.op.def().role() != Role::View && !known.contains(at));
    all.extend(others.map(|(at, _)| (smallvec![at], None)));
    sort_by_key(&mut all, |(nodes, _)| nodes.last().copied());
    all
}

/// The combined facts of both.
fn sum(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

/// Finds the necessary copies, each value once for each device.
struct Moves<'a> {
    plan: &'a Plan,
    devices: &'a Devices,
    places: &'a Locations,
    there: HashSet<(ValueId, DeviceType)>,
}

impl<'a> Moves<'a> {
    fn new(plan: &'a Plan, devices: &'a Devices, places: &'a Locations) -> Self {
        Self {
            plan,
            devices,
            places,
            there: HashSet::new(),
        }
    }

    /// Operands that come to a node's device for it.
    fn to(&mut self, node: &Node, assignment: &Assignment) -> Vec<Copied> {
        let graph = &self.plan.graph;
        let to = self.devices.info(assignment.device).device;
        let mut copies = Vec::new();
        for (operand, &input) in node.inputs.iter().enumerate() {
            // A view shows what is elsewhere: the value that has to come is what it shows.
            let value = self.shown(input, to);
            let from = match graph.producer(value) {
                Some(i) => {
                    let from = self.plan.assignments[i].device;
                    self.devices.info(from).device
                }
                None => self.place(value.index(), assignment),
            };
            let is_there = from == to
                || self.devices.transfer_method(from, to) == TransferMethod::ZeroCopy
                || !self.there.insert((value, to));
            if !is_there {
                let ty = graph.ty(value).clone();
                copies.push(Copied { operand, ty, from });
            }
        }
        copies
    }

    /// The place of a graph input that a node reads.
    fn place(&self, input: usize, assignment: &Assignment) -> DeviceType {
        let place = self.places.get(input).copied().unwrap_or(HOST);
        let holds = |id: &DeviceId| place & bit(*id) != 0;
        let owner = match () {
            () if holds(&assignment.device) => Some(assignment.device),
            () if place & HOST != 0 => None,
            () => self.devices.ids().find(holds),
        };
        owner.map_or(DeviceType::Cpu, |id| self.devices.info(id).device)
    }

    /// The value that views on `device` show.
    fn shown(&self, mut value: ValueId, device: DeviceType) -> ValueId {
        let graph = &self.plan.graph;
        let root = |v: ValueId| graph.state_root(v).unwrap_or(v);
        while let Some(at) = graph.producer(value) {
            let node = &graph.nodes()[at];
            let here = self.devices.info(self.plan.assignments[at].device).device;
            if node.op.def().role() != Role::View || here != device {
                break;
            }
            value = node.inputs[0];
        }
        root(value)
    }
}
