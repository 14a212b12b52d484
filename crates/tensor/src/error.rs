//! Errors of tensors.

use std::fmt;

use rustorch_comm::CommError;
use rustorch_ir::{ErrorKind, FLOAT8_ADVICE, OpError, TensorType};
use rustorch_runtime::{Absent, Call, DeviceError, DeviceType, FailureClass, RunError};

use crate::call;

/// The result of an operation on tensors.
pub type RusTorchResult<T> = Result<T, RusTorchError>;

/// The reason why a tensor could not be made, read or computed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RusTorchError {
    /// The arguments do not fit the operation. The error has the operation, the expected and the
    /// given arguments.
    #[error("{}", of_arguments(.error, *.call))]
    Op {
        /// Arguments that do not fit.
        error: OpError,
        /// The user's call, if it was one of a tensor's or module's methods.
        call: Option<Call>,
    },
    /// A device failed and no other one could take over. Also a wrong value that is found only at
    /// run time, such as an index out of range.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The computation could not be run.
    #[error(transparent)]
    Run(RunError),
    /// The only copy of a tensor's elements was in the memory of a lost device, and they cannot be recomputed.
    #[error(
        "the only copy of a tensor {tensor}{} was lost with {device} and cannot be recomputed (Runtime::set_recipe_limit keeps what recomputing needs)",
        .op.map(|op| format!(", computed by {op},")).unwrap_or_default()
    )]
    DataLost {
        /// Its shape and dtype.
        tensor: TensorType,
        /// The operation that computed it, if one did.
        op: Option<&'static str>,
        /// The device.
        device: DeviceType,
    },
    /// A device failed while tensors were updated from their old values, so that some are new and
    /// some are not.
    #[error(
        "a tensor {tensor} was lost during an update that cannot be repeated; load it from a checkpoint: {during}"
    )]
    UpdateLost {
        /// Shape and dtype of the first of them.
        tensor: TensorType,
        /// The failure.
        during: Box<DeviceError>,
    },
    /// The requested device does not exist.
    #[error("{}{absent}", .call.map(|call| format!("{call}: ")).unwrap_or_default())]
    UnsupportedDevice {
        /// The missing feature, and the reason.
        absent: Absent,
        /// The user's call, if it was one of a tensor's or module's methods.
        call: Option<Call>,
    },
    /// The error of an operator that cannot return one, such as `+=`. The next use of the changed
    /// tensor reports it.
    #[error("{call}: {error}")]
    Deferred {
        /// The operator, and where it stands.
        call: Call,
        /// Why it failed.
        error: Box<Self>,
    },
    /// Ranks could not finish a call.
    #[error("{}{error}", .call.map(|call| format!("{call}: ")).unwrap_or_default())]
    Collective {
        /// The reason, on which ranks agree.
        error: CommError,
        /// The user's call, if it was one of a tensor's or module's methods.
        call: Option<Call>,
    },
    /// The host has too little memory for a tensor's elements.
    #[error("{op}: the host cannot allocate {bytes} bytes; free memory or compute on less data")]
    OutOfMemory {
        /// The method that asked for them.
        op: &'static str,
        /// Number of bytes.
        bytes: usize,
    },
}

/// The line of [`Display`](fmt::Display), as Rust prints this form of an error that `main` returns.
impl fmt::Debug for RusTorchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl RusTorchError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Op { error, .. } => error.kind(),
            Self::Device(error) => error.kind(),
            Self::Run(error) => error.kind(),
            Self::DataLost { .. } | Self::UpdateLost { .. } => ErrorKind::DataLost,
            Self::UnsupportedDevice { .. } => ErrorKind::Missing,
            Self::Deferred { error, .. } => error.kind(),
            Self::Collective { error, .. } => error.kind(),
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        }
    }

    /// Returns whether a device failed or is absent, so that the same call may succeed on another device.
    /// Otherwise it is the caller's mistake.
    pub fn is_device_error(&self) -> bool {
        match self {
            Self::Op { .. } => false,
            Self::Device(e) | Self::Run(RunError::Device(e)) => e.class != FailureClass::Caller,
            Self::Run(RunError::Op(_)) | Self::Collective { .. } => false,
            Self::Run(_) => true,
            Self::DataLost { .. } | Self::UpdateLost { .. } => true,
            Self::UnsupportedDevice { .. } | Self::OutOfMemory { .. } => true,
            Self::Deferred { error, .. } => error.is_device_error(),
        }
    }

    /// Returns whether elements were lost with a device, so that their owner has to make them again.
    pub fn is_data_lost(&self) -> bool {
        match self {
            Self::DataLost { .. } | Self::UpdateLost { .. } => true,
            Self::Run(e) => matches!(e, RunError::DataLost { .. }),
            Self::Deferred { error, .. } => error.is_data_lost(),
            _ => false,
        }
    }
}

/// Every wrong argument becomes an error here, and learns whose call it came from.
impl From<OpError> for RusTorchError {
    fn from(error: OpError) -> Self {
        let call = call::entered();
        Self::Op { error, call }
    }
}

impl From<Absent> for RusTorchError {
    fn from(absent: Absent) -> Self {
        let call = call::entered();
        Self::UnsupportedDevice { absent, call }
    }
}

impl From<RunError> for RusTorchError {
    fn from(e: RunError) -> Self {
        match e {
            RunError::Op(e) => e.into(),
            RunError::Device(e) => Self::Device(e),
            other => Self::Run(other),
        }
    }
}

impl From<CommError> for RusTorchError {
    fn from(error: CommError) -> Self {
        let call = call::entered();
        Self::Collective { error, call }
    }
}

/// A wrong argument, behind the call that it was one of, whose own name is said once.
fn of_arguments(error: &OpError, call: Option<Call>) -> String {
    match call {
        Some(call) if call.method == error.op => {
            format!("{call}: expected {}, got {}", error.expected, error.got)
        }
        Some(call) => format!("{call}: {error}"),
        None => error.to_string(),
    }
}

/// An empty list with room for `count` elements.
pub(crate) fn with_room<T>(op: &'static str, count: usize) -> RusTorchResult<Vec<T>> {
    let mut list = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>());
    let no_room = |_| RusTorchError::OutOfMemory { op, bytes };
    list.try_reserve_exact(count).map_err(no_room)?;
    Ok(list)
}

/// Fails unless a tensor's dtype is legal. For 8-bit floats the error advises to cast.
pub(crate) fn require_dtype(
    op: &'static str,
    is_legal: bool,
    expected: &str,
    ty: &TensorType,
) -> RusTorchResult<()> {
    match ty.dtype.is_float8() {
        true => require(
            op,
            is_legal,
            format_args!("{expected} ({FLOAT8_ADVICE})"),
            ty,
        ),
        false => require(op, is_legal, expected, ty),
    }
}

/// Fails unless `condition`.
pub(crate) fn require(
    op: &'static str,
    condition: bool,
    expected: impl ToString,
    got: impl ToString,
) -> RusTorchResult<()> {
    match condition {
        true => Ok(()),
        false => Err(OpError::new(op, expected, got).into()),
    }
}
