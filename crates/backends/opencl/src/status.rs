//! OpenCL's status codes: their names, and the answer to each.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use opencl_sys::*;
use rustorch_runtime::{Deadline, FailureClass};

/// NVIDIA's code, outside of the standard, for a kernel that left its buffers.
const NVIDIA_ILLEGAL_ACCESS: cl_int = -9999;

/// A call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    call: &'static str,
    why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// Status of the driver, for work that was `waited` for or for the call itself.
    Status { status: cl_int, waited: bool },
    /// The wait was given up.
    Hung(Deadline),
}

/// The answer to a status.
#[derive(Clone, Copy)]
enum Answer {
    /// Memory was refused.
    Memory,
    /// A launch needs more than there is; or, after waiting, a kernel crashed.
    Resources,
    /// More memory was asked for than there can be.
    TooLarge,
    /// The device, or the driver's state of it, is gone.
    Lost,
    /// The call is impossible here.
    Unsupported,
}

macro_rules! statuses {
    ($($answer:ident: $($name:ident)*;)*) => {
        fn describe(status: cl_int) -> (&'static str, Answer) {
            match status {
                $($($name => (stringify!($name), Answer::$answer),)*)*
                _ => ("unknown status", Answer::Lost),
            }
        }
    };
}

statuses! {
    Memory: CL_MEM_OBJECT_ALLOCATION_FAILURE CL_OUT_OF_HOST_MEMORY;
    Resources: CL_OUT_OF_RESOURCES;
    TooLarge: CL_INVALID_BUFFER_SIZE;
    Lost: CL_DEVICE_NOT_FOUND CL_DEVICE_NOT_AVAILABLE CL_MAP_FAILURE
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST CL_INVALID_PLATFORM CL_INVALID_DEVICE
        CL_INVALID_CONTEXT CL_INVALID_COMMAND_QUEUE CL_INVALID_MEM_OBJECT CL_INVALID_EVENT
        CL_PLATFORM_NOT_FOUND_KHR CL_CONTEXT_TERMINATED_KHR NVIDIA_ILLEGAL_ACCESS;
    Unsupported: CL_COMPILER_NOT_AVAILABLE CL_BUILD_PROGRAM_FAILURE CL_COMPILE_PROGRAM_FAILURE
        CL_LINKER_NOT_AVAILABLE CL_LINK_PROGRAM_FAILURE CL_INVALID_VALUE
        CL_INVALID_DEVICE_TYPE CL_INVALID_QUEUE_PROPERTIES CL_INVALID_HOST_PTR
        CL_INVALID_BINARY CL_INVALID_BUILD_OPTIONS CL_INVALID_PROGRAM
        CL_INVALID_PROGRAM_EXECUTABLE CL_INVALID_KERNEL_NAME CL_INVALID_KERNEL_DEFINITION
        CL_INVALID_KERNEL CL_INVALID_ARG_INDEX CL_INVALID_ARG_VALUE CL_INVALID_ARG_SIZE
        CL_INVALID_KERNEL_ARGS CL_INVALID_WORK_DIMENSION CL_INVALID_WORK_GROUP_SIZE
        CL_INVALID_WORK_ITEM_SIZE CL_INVALID_GLOBAL_OFFSET CL_INVALID_GLOBAL_WORK_SIZE
        CL_INVALID_OPERATION CL_INVALID_PROPERTY CL_INVALID_COMPILER_OPTIONS
        CL_INVALID_LINKER_OPTIONS CL_MISALIGNED_SUB_BUFFER_OFFSET;
}

/// The result of a call that queues work or asks for something.
pub(crate) fn check(call: &'static str, status: cl_int) -> Result<(), Failure> {
    check_as(call, status, false)
}

/// The result of a call that waits for queued work, and fails if that did.
pub(crate) fn check_wait(call: &'static str, status: cl_int) -> Result<(), Failure> {
    check_as(call, status, true)
}

fn check_as(call: &'static str, status: cl_int, waited: bool) -> Result<(), Failure> {
    match status {
        CL_SUCCESS => Ok(()),
        _ => Err(Failure {
            call,
            why: Why::Status { status, waited },
        }),
    }
}

/// The value of a property. `ask` returns the size, the value, or both.
pub(crate) fn query(
    call: &'static str,
    ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<Vec<u8>, Failure> {
    let mut size = 0;
    check(call, ask(0, ptr::null_mut(), &raw mut size))?;
    let mut value = vec![0; size];
    check(call, ask(size, value.as_mut_ptr().cast(), ptr::null_mut()))?;
    Ok(value)
}

/// A value that is text, without the zero at its end.
pub(crate) fn text(value: &[u8]) -> String {
    let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

impl Failure {
    /// A call that was not done by its deadline.
    pub(crate) fn hung(call: &'static str, deadline: Deadline) -> Self {
        let why = Why::Hung(deadline);
        Self { call, why }
    }

    /// Returns whether it is this status of the driver.
    pub(crate) fn is(self, status: cl_int) -> bool {
        matches!(self.why, Why::Status { status: said, .. } if said == status)
    }

    pub(crate) fn class(self) -> FailureClass {
        let Why::Status { status, waited } = self.why else {
            return FailureClass::Timeout;
        };
        match describe(status).1 {
            Answer::Memory => FailureClass::OutOfMemory { never_fits: false },
            // Work was accepted, and failed.
            _ if waited => FailureClass::Lost,
            Answer::Resources => FailureClass::OutOfMemory { never_fits: false },
            Answer::TooLarge => FailureClass::OutOfMemory { never_fits: true },
            Answer::Lost => FailureClass::Lost,
            Answer::Unsupported => FailureClass::Unsupported,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::Status { status, .. } => {
                let (name, _) = describe(status);
                write!(f, "{}: {name} ({status})", self.call)
            }
            Why::Hung(deadline) => write!(f, "{}: {deadline}", self.call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_names_and_classes() {
        let memory = FailureClass::OutOfMemory { never_fits: false };
        for (status, class, name) in [
            (-4, memory, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
            (-5, memory, "CL_OUT_OF_RESOURCES"),
            (-11, FailureClass::Unsupported, "CL_BUILD_PROGRAM_FAILURE"),
            (-36, FailureClass::Lost, "CL_INVALID_COMMAND_QUEUE"),
            (-52, FailureClass::Unsupported, "CL_INVALID_KERNEL_ARGS"),
            (-77777, FailureClass::Lost, "unknown status"),
        ] {
            let failure = check("clCall", status).unwrap_err();
            assert_eq!(failure.class(), class, "{failure}");
            assert_eq!(failure.to_string(), format!("clCall: {name} ({status})"));
        }
        assert_eq!(check("clCall", 0), Ok(()));
    }

    #[test]
    fn a_crash_shows_when_it_is_waited_for() {
        for status in [CL_OUT_OF_RESOURCES, CL_INVALID_KERNEL_ARGS] {
            let failure = check_wait("clFinish", status).unwrap_err();
            assert_eq!(failure.class(), FailureClass::Lost);
        }
        let failure = check_wait("clFinish", CL_OUT_OF_HOST_MEMORY).unwrap_err();
        assert_ne!(failure.class(), FailureClass::Lost);
    }
}
