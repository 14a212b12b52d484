//! Chooses a device for each node and cuts the graph into segments.

use std::collections::HashMap;
use std::fmt;

use rustorch_ir::{Graph, Node, Op, OpError, Role, TensorType, ValueId};
use smallvec::SmallVec;

use crate::executor::Devices;
use crate::{Explanation, RunError};

/// A device of a [`Runtime`](crate::Runtime), by its place in the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub usize);

/// Why a node goes to its device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The first device of the chain, or the only one asked for, has a kernel.
    Preferred,
    /// As its neighbour: a view costs nothing where its input is.
    Neighbour,
    /// It is part of the named operation, which the device has no kernel for.
    Decomposed(&'static str),
    /// Devices before it in the chain declined, with their reasons.
    Fallback(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preferred => f.write_str("first in the chain"),
            Self::Neighbour => f.write_str("where its input is"),
            Self::Decomposed(op) => write!(f, "part of {op}, which has no kernel here"),
            Self::Fallback(why) => f.write_str(why),
        }
    }
}

/// Where a node goes, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The device.
    pub device: DeviceId,
    /// The reason.
    pub reason: Reason,
}

/// Neighbouring nodes of one device, as a graph of their own.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The device.
    pub device: DeviceId,
    /// The nodes. Its node `i` is node `first + i` of the plan's graph.
    pub graph: Graph,
    /// Index of its first node in the plan's graph.
    pub first: usize,
    /// The values of the plan's graph that are its inputs. A state input is written to.
    pub inputs: Vec<ValueId>,
    /// For each input, is it updated as state?
    pub writes: Vec<bool>,
    /// The values of the plan's graph that are its outputs.
    pub outputs: Vec<ValueId>,
}

/// A graph with every node placed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The graph after decompositions; same inputs and outputs as the planned one.
    pub graph: Graph,
    /// One for each node of `graph`.
    pub assignments: Vec<Assignment>,
    /// The nodes in runs of one device.
    pub segments: Vec<Segment>,
}

/// What the planner may not do, besides what the devices decline.
pub(crate) trait Constraints {
    /// Why `device` may not run this; `None` if it may.
    fn forbids(&self, device: DeviceId, graph: &Graph, node: &Node) -> Option<String>;
}

struct Planner<'a, C> {
    devices: &'a Devices,
    chain: &'a [DeviceId],
    constraints: &'a C,
    graph: Graph,
    assignments: Vec<Assignment>,
}

/// Plans `graph` on the devices of `chain`, best first.
///
/// The ladder for one node: native kernel → decomposed on the same device → next device.
///
/// # Errors
/// No device of the chain can run some node.
pub(crate) fn plan(
    graph: &Graph,
    devices: &Devices,
    chain: &[DeviceId],
    constraints: &impl Constraints,
) -> Result<Plan, RunError> {
    let mut planner = Planner {
        devices,
        chain,
        constraints,
        graph: Graph::new(),
        assignments: Vec::with_capacity(graph.nodes().len()),
    };
    let mut values: Vec<ValueId> = Vec::with_capacity(graph.len());
    for ty in graph.inputs() {
        values.push(planner.graph.input(ty.clone())?);
    }
    for node in graph.nodes() {
        let inputs: SmallVec<[ValueId; 4]> =
            (node.inputs.iter()).map(|v| values[v.index()]).collect();
        values.push(planner.node(node, &inputs)?);
    }
    for output in graph.outputs() {
        planner.graph.output(values[output.index()]);
    }
    let Planner {
        graph, assignments, ..
    } = planner;
    let segments = cut(&graph, &assignments)?;
    Ok(Plan {
        graph,
        assignments,
        segments,
    })
}

/// How a device can run a node.
enum Way {
    Native,
    Decomposed(Graph),
}

impl<C: Constraints> Planner<'_, C> {
    fn node(&mut self, node: &Node, inputs: &[ValueId]) -> Result<ValueId, RunError> {
        if node.op.def().role() == Role::View {
            let device = self.neighbour(node, inputs)?;
            return self.push(node.op.clone(), inputs, device, Reason::Neighbour);
        }
        let mut declined = Vec::new();
        for &device in self.chain {
            match self.way(device, node, inputs) {
                Ok(way) => {
                    let fallback = match declined.is_empty() {
                        true => Reason::Preferred,
                        false => Reason::Fallback(declined.join("; ")),
                    };
                    return match way {
                        Way::Native => self.push(node.op.clone(), inputs, device, fallback),
                        Way::Decomposed(parts) => {
                            let reason = match fallback {
                                Reason::Preferred => Reason::Decomposed(node.op.name()),
                                other => other,
                            };
                            self.splice(&parts, inputs, device, &reason)
                        }
                    };
                }
                Err(why) => {
                    let name = self.devices.backend(device).info().device;
                    declined.push(format!("{name}: {why}"));
                }
            }
        }
        Err(RunError::NoDevice {
            op: describe(&self.graph, node, inputs),
            tried: match declined.is_empty() {
                true => "no device is left".to_owned(),
                false => declined.join("; "),
            },
        })
    }

    /// The device of the node that computes a view's input; for a graph input that of the last
    /// node, or the first one that may be used.
    fn neighbour(&self, view: &Node, inputs: &[ValueId]) -> Result<DeviceId, RunError> {
        let computed = inputs[0].index().checked_sub(self.graph.inputs().len());
        if let Some(i) = computed.or(self.assignments.len().checked_sub(1)) {
            return Ok(self.assignments[i].device);
        }
        let alone = isolate(&self.graph, &view.op, inputs)?;
        let forbidden = |d| self.constraints.forbids(d, &alone, &alone.nodes()[0]);
        let mut allowed = self.chain.iter().filter(|d| forbidden(**d).is_none());
        allowed.next().copied().ok_or_else(|| RunError::NoDevice {
            op: describe(&self.graph, view, inputs),
            tried: "no device is left".to_owned(),
        })
    }

    fn push(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        device: DeviceId,
        reason: Reason,
    ) -> Result<ValueId, RunError> {
        let value = self.graph.push(op, inputs)?;
        self.assignments.push(Assignment { device, reason });
        Ok(value)
    }

    fn way(&self, device: DeviceId, node: &Node, inputs: &[ValueId]) -> Result<Way, String> {
        // The node on its own, so that its parts can be tried before they are spliced in.
        let alone = isolate(&self.graph, &node.op, inputs).map_err(|e| e.to_string())?;
        let declined = match self.permits(device, &alone, &alone.nodes()[0]) {
            None => return Ok(Way::Native),
            Some(why) => why,
        };
        if !node.op.def().is_composite() {
            return Err(declined);
        }
        let parts = decompose(&alone).map_err(|e| e.to_string())?;
        for part in parts.nodes() {
            if part.op.def().role() == Role::View {
                continue;
            }
            if let Some(why) = self.permits(device, &parts, part) {
                return Err(format!(
                    "{declined}, and its part {}: {why}",
                    part.op.name()
                ));
            }
        }
        Ok(Way::Decomposed(parts))
    }

    /// Why `device` does not run a node as it is; `None` if it does.
    fn permits(&self, device: DeviceId, graph: &Graph, node: &Node) -> Option<String> {
        if let Some(why) = self.constraints.forbids(device, graph, node) {
            return Some(why);
        }
        let backend = self.devices.backend(device);
        let supported = graph.with_signature(node, |s| backend.supports(s));
        (!supported).then(|| format!("no kernel for {} of {}", node.op.name(), node.output.dtype))
    }

    /// Appends the nodes of `parts`, whose inputs are `inputs`.
    fn splice(
        &mut self,
        parts: &Graph,
        inputs: &[ValueId],
        device: DeviceId,
        reason: &Reason,
    ) -> Result<ValueId, RunError> {
        let mut values = inputs.to_vec();
        for part in parts.nodes() {
            let operands: SmallVec<[ValueId; 4]> =
                part.inputs.iter().map(|v| values[v.index()]).collect();
            values.push(self.push(part.op.clone(), &operands, device, reason.clone())?);
        }
        Ok(values[parts.outputs()[0].index()])
    }
}

/// A graph of just one node on inputs of the given values' types.
fn isolate(graph: &Graph, op: &Op, inputs: &[ValueId]) -> Result<Graph, OpError> {
    let mut alone = Graph::new();
    let operands = (inputs.iter())
        .map(|&v| alone.input(graph.ty(v).clone()))
        .collect::<Result<SmallVec<[ValueId; 4]>, _>>()?;
    let value = alone.push(op.clone(), &operands)?;
    alone.output(value);
    Ok(alone)
}

/// The definition of a graph's only node, a composite, on the same inputs.
fn decompose(alone: &Graph) -> Result<Graph, OpError> {
    let mut parts = Graph::new();
    let node = &alone.nodes()[0];
    let operands = (alone.inputs().iter())
        .map(|ty| parts.input(ty.clone()))
        .collect::<Result<SmallVec<[ValueId; 4]>, _>>()?;
    let value = parts.expand(&node.op, &operands)?;
    parts.output(value);
    Ok(parts)
}

fn describe(graph: &Graph, node: &Node, inputs: &[ValueId]) -> String {
    let types: Vec<String> = inputs.iter().map(|&v| graph.ty(v).to_string()).collect();
    format!("{} of {}", node.op.name(), types.join(", "))
}

/// Cuts the nodes into runs of one device. What a run computes and a later one, or the
/// caller, needs is its output.
fn cut(graph: &Graph, assignments: &[Assignment]) -> Result<Vec<Segment>, OpError> {
    let mut last_use: HashMap<ValueId, usize> = HashMap::new();
    for (i, node) in graph.nodes().iter().enumerate() {
        for &v in &node.inputs {
            last_use.insert(v, i);
        }
    }
    for &v in graph.outputs() {
        last_use.insert(v, usize::MAX);
    }
    let mut segments = Vec::new();
    let mut first = 0;
    for run in assignments.chunk_by(|a, b| a.device == b.device) {
        let nodes = first..first + run.len();
        segments.push(segment(graph, nodes, run[0].device, &last_use)?);
        first += run.len();
    }
    Ok(segments)
}

fn segment(
    graph: &Graph,
    nodes: std::ops::Range<usize>,
    device: DeviceId,
    last_use: &HashMap<ValueId, usize>,
) -> Result<Segment, OpError> {
    let mut out = Segment {
        device,
        graph: Graph::new(),
        first: nodes.start,
        inputs: Vec::new(),
        writes: Vec::new(),
        outputs: Vec::new(),
    };
    let mut local: HashMap<ValueId, ValueId> = HashMap::new();
    let computed_here = |v: ValueId| nodes.contains(&v.index().wrapping_sub(graph.inputs().len()));
    for node in &graph.nodes()[nodes.clone()] {
        for &v in &node.inputs {
            if !computed_here(v) && !local.contains_key(&v) {
                let ty: TensorType = graph.ty(v).clone();
                local.insert(v, out.graph.input(ty)?);
                out.inputs.push(v);
                out.writes.push(false);
            }
        }
    }
    for (offset, node) in graph.nodes()[nodes.clone()].iter().enumerate() {
        let operands: SmallVec<[ValueId; 4]> = node.inputs.iter().map(|v| local[v]).collect();
        let value = graph.value_of(nodes.start + offset);
        local.insert(value, out.graph.push(node.op.clone(), &operands)?);
        if node.op.def().role() == Role::State {
            // The state lives in its input's storage, which later segments read.
            if let Some(root) = out.graph.state_root(operands[0]) {
                out.writes[root.index()] = true;
            }
        }
        let needed_later = last_use.get(&value).is_some_and(|&at| at >= nodes.end);
        let stays_in_state = graph.state_root(value).is_some();
        if needed_later && !stays_in_state {
            out.graph.output(local[&value]);
            out.outputs.push(value);
        }
    }
    Ok(out)
}

impl Plan {
    /// The plan as rows: nodes of one op, device and reason counted together.
    pub(crate) fn explain(&self, devices: &Devices) -> Vec<Explanation> {
        let mut rows: Vec<Explanation> = Vec::new();
        for (node, assignment) in self.graph.nodes().iter().zip(&self.assignments) {
            if node.op.def().role() == Role::View {
                continue;
            }
            // An update writes as much as its source has.
            let written = match node.op.def().role() {
                Role::State => self.graph.ty(node.inputs[1]),
                _ => &node.output,
            };
            let row = Explanation {
                op: node.op.name(),
                count: 1,
                device: devices.backend(assignment.device).info().device,
                reason: assignment.reason.to_string(),
                bytes: written.bytes(),
            };
            let same = |r: &&mut Explanation| {
                (r.op, r.device, &r.reason) == (row.op, row.device, &row.reason)
            };
            match rows.iter_mut().find(same) {
                Some(r) => {
                    r.count += 1;
                    r.bytes += row.bytes;
                }
                None => rows.push(row),
            }
        }
        rows
    }
}
