//! The device of each node, and why.

use std::fmt;
use std::time::Duration;

use rustorch_ir::Node;
use smallvec::SmallVec;

use crate::{DeviceInfo, DeviceType};

/// A device of a [`Runtime`](crate::Runtime), by its place in the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DeviceId(pub(crate) usize);

/// The descriptions of a runtime's devices, in the platform's order.
pub(crate) struct Chain(pub(crate) Vec<DeviceInfo>);

impl Chain {
    pub(crate) fn ids(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..self.0.len()).map(DeviceId)
    }

    pub(crate) fn info(&self, device: DeviceId) -> &DeviceInfo {
        &self.0[device.0]
    }
}

/// Expected times on each measured device.
pub(crate) type Times = SmallVec<[(DeviceId, Duration); 4]>;

/// A graph in parts on several devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Split {
    /// The expected time.
    pub(crate) time: Duration,
    /// Runs of nodes of one device.
    pub(crate) segments: usize,
    /// The device of each node; `None` for those that go where they are read.
    pub(crate) devices: Vec<Option<DeviceId>>,
}

/// Returns whether it is made of nothing but its parameters, and not pinned anywhere.
pub(crate) fn is_constant(node: &Node) -> bool {
    node.inputs.is_empty() && node.pin.is_none() && node.op.def().op_type().is_none()
}

/// The reason for a node's device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The user pinned it there.
    Pinned(DeviceType),
    /// Its operation, or the operation's family, has a route there.
    Routed(DeviceType),
    /// The run requested this device.
    Asked(DeviceType),
    /// A rule for operations of its kind, independent of neighbours.
    Rule(&'static str),
    /// A rule that gives way to neighbours.
    Policy(&'static str),
    /// By measured times of the devices.
    Measured {
        /// The graph's expected time on this device.
        here: Duration,
        /// The expected times on the others.
        others: Vec<(DeviceType, Duration)>,
    },
    /// Part of a graph that is expected to run faster in segments on several devices than on one.
    Split {
        /// The graph's expected time.
        time: Duration,
        /// Number of segments.
        segments: usize,
        /// The expected time on one device, best first.
        alone: Vec<(DeviceType, Duration)>,
    },
    /// The first device of the chain.
    Preferred,
    /// The same device as its neighbour: a view costs nothing there, and moving data less than
    /// elsewhere.
    Neighbour,
    /// It is part of the named operation, which has no kernel on the device.
    Decomposed(&'static str),
    /// Earlier devices in the order declined, with their reasons.
    Fallback(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pinned(device) => write!(f, "pinned to {device}"),
            Self::Routed(device) => write!(f, "routed to {device}"),
            Self::Asked(device) => write!(f, "{device} was asked for"),
            Self::Rule(rule) | Self::Policy(rule) => f.write_str(rule),
            Self::Measured { here, others } => {
                write!(f, "measured: {} here", Time(*here))?;
                each(others, f)
            }
            Self::Split {
                time,
                segments,
                alone,
            } => {
                write!(f, "measured: {} in {segments} segments", Time(*time))?;
                each(alone, f)
            }
            Self::Preferred => f.write_str("first in the chain"),
            Self::Neighbour => f.write_str("where its neighbour is"),
            Self::Decomposed(op) => write!(f, "part of {op}, which has no kernel here"),
            Self::Fallback(why) => f.write_str(why),
        }
    }
}

/// Lists expected times on devices.
fn each(times: &[(DeviceType, Duration)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut times = times.iter();
    times.try_for_each(|(device, time)| write!(f, ", {} on {device}", Time(*time)))
}

/// A time for people.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs_f64() {
            s if s < 1e-3 => write!(f, "{:.1} µs", s * 1e6),
            s if s < 1.0 => write!(f, "{:.1} ms", s * 1e3),
            s => write!(f, "{s:.1} s"),
        }
    }
}

/// The device of a node, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assignment {
    pub(crate) device: DeviceId,
    pub(crate) reason: Reason,
    /// Names of the operations that it was put in place of, if any.
    pub(crate) replaces: SmallVec<[&'static str; 8]>,
}
