//! What ran where, and why.

use std::fmt;

use crate::{DeviceError, DeviceType};

/// One failure and where the work went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fallback {
    /// What failed, where and why.
    pub error: DeviceError,
    /// Who does it now; `None` while that is not planned yet, or if nobody can.
    pub to: Option<DeviceType>,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(to) => write!(f, "{}; now on {to}", self.error),
            None => write!(f, "{}", self.error),
        }
    }
}

/// A row of `explain`: operations that go to one device for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The operation's name.
    pub op: &'static str,
    /// How many nodes of the plan.
    pub count: usize,
    /// Where they go.
    pub device: DeviceType,
    /// Why there.
    pub reason: String,
    /// Bytes of their results.
    pub bytes: usize,
}
