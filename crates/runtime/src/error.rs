//! The class of a device's failure, by the runtime's reaction.

use std::fmt;
use std::panic::Location;

use rustorch_ir::{ErrorKind, OpError};

use crate::DeviceType;

/// Class of a device's failure, by the runtime's reaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureClass {
    /// There is no kernel, or it does not compile. This is remembered, and the next device runs the
    /// operation.
    Unsupported,
    /// Memory was refused. Caches are freed and it is tried once more here, unless it can never
    /// fit. Then the next device runs it.
    OutOfMemory {
        /// More was asked for than the device has at all.
        never_fits: bool,
    },
    /// The device is lost (sticky error, removed). It is not used again, and data that only its
    /// memory held is lost.
    Lost,
    /// The device did not answer in time ([`Deadline`](crate::Deadline)): it is lost, and may still
    /// use its memory.
    Timeout,
    /// The caller's mistake, such as an index out of range: reported at once, never retried.
    Caller,
}

impl FailureClass {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unsupported => ErrorKind::Unsupported,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::Lost | Self::Timeout => ErrorKind::Device,
            Self::Caller => ErrorKind::Argument,
        }
    }

    /// Returns whether the device is not used again.
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

/// The user's call of a library that records operations and computes them later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The method.
    pub method: &'static str,
    /// File, line and column of the call, if known: formatting hides them.
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
    /// The class.
    pub class: FailureClass,
    /// The failed operation, if known.
    pub op: Option<&'static str>,
    /// Index of the failed node, if there is one. Callers that compile get the index in their
    /// graph, and callers that run get the index in the original one.
    pub node: Option<usize>,
    /// The call that recorded the node, if known.
    pub call: Option<Call>,
    /// The driver's or kernel's message.
    pub message: String,
}

impl RunError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Op(error) => error.kind(),
            Self::Device(error) => error.kind(),
            Self::NoDevice { .. } => ErrorKind::Unsupported,
            Self::DataLost { .. } => ErrorKind::DataLost,
            Self::Busy { .. } | Self::WrongInput { .. } => ErrorKind::Argument,
            Self::Calibration { kind, .. } => *kind,
        }
    }

    /// The same, with the recording call of the failed node from `call`, if a node failed.
    pub fn by_call(mut self, call: impl FnOnce(Option<usize>) -> Option<Call>) -> Self {
        match &mut self {
            Self::Device(error) => error.call = call(error.node),
            Self::DataLost {
                during: Some(error),
                ..
            } => error.call = call(error.node),
            Self::NoDevice { node, call: by, .. } => *by = call(*node),
            Self::Op(_)
            | Self::DataLost { .. }
            | Self::Busy { .. }
            | Self::WrongInput { .. }
            | Self::Calibration { .. } => {}
        }
        self
    }
}

impl DeviceError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        self.class.kind()
    }

    /// A failure that belongs to no operation.
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
    /// The failed operation, its device and the reason.
    pub error: DeviceError,
    /// The device that takes over; `None` if it is not planned yet, or if no device is left.
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

/// The reason why a graph could not run, or why measured times are not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The graph is invalid.
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
        /// The tried devices, each with its reason.
        tried: String,
    },
    /// The only copy of an input was on a lost device. Or a device failed while states were updated
    /// from their old values, so only some are new. The input has to be made again, for example
    /// from a checkpoint.
    #[error("{}", data_lost(*.input, .during.as_deref()))]
    DataLost {
        /// The graph input; the first of several states.
        input: usize,
        /// The failure during the update.
        during: Option<Box<DeviceError>>,
    },
    /// A state buffer is in use by another run, or bound to two inputs.
    #[error("input {input} is in use: a state buffer can serve one run at a time")]
    Busy {
        /// The graph input.
        input: usize,
    },
    /// An input does not have the graph's type.
    #[error("input {input}: expected {expected} bytes, got {got}")]
    WrongInput {
        /// The graph input.
        input: usize,
        /// Bytes of the graph's input.
        expected: usize,
        /// Bytes of the storage given.
        got: usize,
    },
    /// A file of measured times cannot be read or written, or belongs to another machine or version.
    #[error("{problem}")]
    Calibration {
        /// The kind of the problem.
        kind: ErrorKind,
        /// The problem, and its cure.
        problem: String,
    },
}

/// The prefix of an error's text: the call that led to it.
fn before(call: Option<Call>) -> String {
    call.map(|call| format!("{call}: ")).unwrap_or_default()
}

/// The prefix of a driver's or kernel's message. A method says more than its operation.
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
        Some(error) => {
            format!("input {input} was lost during an update that cannot be repeated: {error}")
        }
    }
}
