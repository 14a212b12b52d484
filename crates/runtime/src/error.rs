//! What can go wrong on a device, by what to do about it.

use std::fmt;
use std::panic::Location;

use rustorch_ir::OpError;

use crate::DeviceType;

/// Why a device did not do what it was asked, by the answer it calls for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureClass {
    /// No kernel, or its compilation failed: remembered; the next device does it.
    Unsupported,
    /// Memory was refused. Caches are freed and it is tried once more here, unless it can
    /// never fit; then the next device.
    OutOfMemory {
        /// More was asked for than the device has at all.
        never_fits: bool,
    },
    /// The device cannot be trusted any more (sticky error, removed). It is avoided from now on,
    /// and what only its memory held is gone.
    Lost,
    /// The device did not answer in time ([`Deadline`](crate::Deadline)): it is lost, and may still
    /// use its memory.
    Timeout,
    /// The caller's mistake, such as an index out of range: reported at once, never retried.
    Caller,
}

impl FailureClass {
    /// Is the device avoided from now on?
    pub fn loses_device(self) -> bool {
        matches!(self, Self::Lost | Self::Timeout)
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "unsupported",
            Self::OutOfMemory { never_fits: false } => "out of memory",
            Self::OutOfMemory { never_fits: true } => "can never fit in memory",
            Self::Lost => "device lost",
            Self::Timeout => "timeout",
            Self::Caller => "invalid argument",
        })
    }
}

/// Where a user called a library that records operations and has them computed later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The method.
    pub method: &'static str,
    /// File, line and column of the call, as far as it tells them: formatting does not.
    pub location: Option<&'static Location<'static>>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method)?;
        self.location.map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

/// A failure on a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{message}", where_it_failed(*.device, *.class, *.op, *.call))]
pub struct DeviceError {
    /// The device.
    pub device: DeviceType,
    /// What to do about it.
    pub class: FailureClass,
    /// The operation that failed, where one did.
    pub op: Option<&'static str>,
    /// Index of the failed node, where one did: for who compiled a graph in that, for who runs one
    /// in the graph as it was given.
    pub node: Option<usize>,
    /// The call that recorded the node, if that is known.
    pub call: Option<Call>,
    /// What happened, in the driver's or kernel's words.
    pub message: String,
}

impl RunError {
    /// The same, of which `call` tells the call that recorded the node that failed, if one did.
    pub fn by_call(mut self, call: impl FnOnce(Option<usize>) -> Option<Call>) -> Self {
        match &mut self {
            Self::Device(error) => error.call = call(error.node),
            Self::DataLost {
                during: Some(error),
                ..
            } => error.call = call(error.node),
            Self::NoDevice { node, call: by, .. } => *by = call(*node),
            Self::Op(_) | Self::DataLost { .. } | Self::Busy { .. } | Self::WrongInput { .. } => {}
        }
        self
    }
}

impl DeviceError {
    /// A failure of no particular operation.
    pub fn new(device: DeviceType, class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            device,
            class,
            op: None,
            node: None,
            call: None,
            message: message.into(),
        }
    }

    /// The failure of node `node`, which is `op`.
    pub fn at(mut self, node: usize, op: &'static str) -> Self {
        self.node = Some(node);
        self.op = Some(op);
        self
    }
}

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

/// Why a graph could not be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The graph itself is wrong.
    #[error(transparent)]
    Op(#[from] OpError),
    /// A device failed, and no other could take over; or the caller made a mistake.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No device is left that could run an operation.
    #[error("{}no device can run {op}: {tried}", before(*.call))]
    NoDevice {
        /// The operation with its types.
        op: String,
        /// Index of its node in the graph, if it has one.
        node: Option<usize>,
        /// The call that recorded it, if that is known.
        call: Option<Call>,
        /// Each device with its reason.
        tried: String,
    },
    /// The only copy of an input was in the memory of a device that is lost; or a device failed
    /// while states were updated from their old values, so that some are new and some are not.
    /// It has to be made again from its recipe, such as a checkpoint.
    #[error("{}", data_lost(*.input, .during.as_deref()))]
    DataLost {
        /// Which graph input; of several states the first.
        input: usize,
        /// What happened in the middle of an update.
        during: Option<Box<DeviceError>>,
    },
    /// A state buffer is in use by another run, or bound to two inputs.
    #[error("input {input} is in use: a state buffer can serve one run at a time")]
    Busy {
        /// Which graph input.
        input: usize,
    },
    /// An input does not have the graph's type.
    #[error("input {input}: expected {expected} bytes, got {got}")]
    WrongInput {
        /// Which graph input.
        input: usize,
        /// Bytes of the graph's input.
        expected: usize,
        /// Bytes of the storage given.
        got: usize,
    },
}

/// What comes before the words of an error that a call led to.
fn before(call: Option<Call>) -> String {
    call.map(|call| format!("{call}: ")).unwrap_or_default()
}

/// What comes before a driver's or kernel's words. A method says more than its operation.
fn where_it_failed(
    device: DeviceType,
    class: FailureClass,
    op: Option<&'static str>,
    call: Option<Call>,
) -> String {
    match (call, op) {
        (Some(call), _) => format!("{call}: {device}: {class}: "),
        (None, Some(op)) => format!("{device}: {class} in {op}: "),
        (None, None) => format!("{device}: {class}: "),
    }
}

fn data_lost(input: usize, during: Option<&DeviceError>) -> String {
    match during {
        None => format!("the only copy of input {input} was lost with its device"),
        Some(error) => format!(
            "input {input} was lost in the middle of its update, which cannot be run again: {error}"
        ),
    }
}
