//! The measured speed of a device, and the estimated times of operations.
//!
//! `curve.rs` interpolates between measurements; `work.rs` counts the work of a graph.

mod curve;
pub(crate) mod work;

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use rustorch_ir::{DType, OpKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use curve::{Curve, NoCurve};

use work::Work;

/// A device's measured times. Times between the measured sizes are interpolated.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Costs {
    /// Start and end of a run, in seconds.
    #[serde(rename = "sync_seconds", with = "seconds")]
    pub sync: Duration,
    /// One operation without data, within a run.
    #[serde(rename = "launch_seconds", with = "seconds")]
    pub launch: Duration,
    /// Copies from the host to the device.
    pub upload: Curve,
    /// Copies from the device to the host.
    pub download: Curve,
    /// The time of operations without their launch.
    pub operations: Vec<OpCost>,
}

/// The variable that bounds an operation's time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// The bytes that it reads and writes.
    Bytes,
    /// Multiply-accumulates.
    Macs,
}

/// The measured times of one operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OpCost {
    /// The operation.
    #[serde(with = "op_name")]
    pub op: OpKind,
    /// The measured operation, with its parameters in Rust's debug form. Unmeasured variants use
    /// the first entry of their operation.
    pub example: String,
    /// Element type of its operands; for a product, of its weights.
    #[serde(with = "text")]
    pub dtype: DType,
    /// The curve's variable.
    pub bound: Bound,
    /// The time by bytes, or by MACs.
    pub curve: Curve,
}

impl Costs {
    /// Seconds of some work beyond its launch.
    ///
    /// A product of few rows is bound by the bytes of its weights, one of many by its multiplications.
    /// Convolutions of few and of many channels are alike: the slower of the two counts.
    pub(crate) fn seconds(&self, work: &Work) -> f64 {
        let by_bytes = || self.curve(work, Bound::Bytes, work.kind);
        let bytes = |curve: &Curve| curve.seconds(work.bytes);
        if work.macs == 0.0 {
            let relative = || self.curve(work, Bound::Bytes, OpKind::typical(work.op_type));
            return by_bytes().or_else(relative).map_or(0.0, bytes);
        }
        let relative = || self.curve(work, Bound::Macs, OpKind::typical(work.op_type));
        let by_macs = self.curve(work, Bound::Macs, work.kind);
        let macs = by_macs.or_else(relative);
        let macs = macs.map(|curve| curve.seconds(work.macs));
        match (by_bytes().map(bytes), macs) {
            (Some(bytes), _) if work.reads_once => bytes,
            (bytes, macs) => bytes.unwrap_or(0.0).max(macs.unwrap_or(0.0)),
        }
    }

    /// The curve of an operation: with these parameters if it was measured with them, else of
    /// its first example; with elements of that type, else of the first that are blocks, or
    /// are not, just as those.
    fn curve(&self, work: &Work, bound: Bound, op: OpKind) -> Option<&Curve> {
        let all = self.operations.iter();
        let all = all.filter(|cost| cost.op == op && cost.bound == bound);
        let found = all.min_by_key(|cost| {
            let is_alike = cost.dtype.is_block() == work.dtype.is_block();
            let differs = (cost.example != work.example, cost.dtype != work.dtype);
            (differs, !is_alike)
        });
        found.map(|cost| &cost.curve)
    }
}

/// Values that are written as their text.
pub(crate) mod text {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        value: &impl Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err: Display>,
    {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Operations by name.
mod op_name {
    use super::*;

    pub(super) fn serialize<S: Serializer>(op: &OpKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(op.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<OpKind, D::Error> {
        let name = String::deserialize(deserializer)?;
        let mut all = OpKind::ALL.iter().copied();
        let found = all.find(|op| op.name() == name);
        found.ok_or_else(|| de::Error::custom(format!("unknown operation {name:?}")))
    }
}

/// Times in seconds.
mod seconds {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(de::Error::custom)
    }
}
