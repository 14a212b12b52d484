//! The driver's status codes, and the answer to each.

use std::ffi::CStr;
use std::fmt;
use std::ptr;

use cudarc::driver::sys::{CUresult, cuGetErrorName, cuGetErrorString};
use rustorch_runtime::FailureClass;

/// A call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    call: &'static str,
    status: CUresult,
}

/// The result of a call.
pub(crate) fn check(call: &'static str, status: CUresult) -> Result<(), Failure> {
    match status {
        CUresult::CUDA_SUCCESS => Ok(()),
        status => Err(Failure { call, status }),
    }
}

impl Failure {
    pub(crate) fn status(self) -> CUresult {
        self.status
    }

    /// The work that a call waits for was not done in time.
    pub(crate) fn hung(call: &'static str) -> Self {
        let status = CUresult::CUDA_ERROR_NOT_READY;
        Self { call, status }
    }

    /// Returns whether it is [`Self::hung`]. No call is checked before its work is done.
    pub(crate) fn is_hung(self) -> bool {
        self.status == CUresult::CUDA_ERROR_NOT_READY
    }

    /// Class of the status. Errors of a kernel that has run stay with the context ("sticky"):
    /// nothing there works any more, so the device is lost. A status that is not known to leave the
    /// device intact counts as a loss, too.
    pub(crate) fn class(self) -> FailureClass {
        use CUresult::*;
        match self.status {
            CUDA_ERROR_OUT_OF_MEMORY | CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => {
                FailureClass::OutOfMemory { never_fits: false }
            }
            CUDA_ERROR_INVALID_VALUE
            | CUDA_ERROR_STUB_LIBRARY
            | CUDA_ERROR_INVALID_IMAGE
            | CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUDA_ERROR_INVALID_PTX
            | CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUDA_ERROR_JIT_COMPILATION_DISABLED
            | CUDA_ERROR_INVALID_SOURCE
            | CUDA_ERROR_FILE_NOT_FOUND
            | CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
            | CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
            | CUDA_ERROR_OPERATING_SYSTEM
            | CUDA_ERROR_NOT_FOUND
            | CUDA_ERROR_NOT_SUPPORTED
            | CUDA_ERROR_NOT_PERMITTED
            | CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING
            | CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
            | CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            | CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
            | CUDA_ERROR_STREAM_CAPTURE_MERGE
            | CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
            | CUDA_ERROR_STREAM_CAPTURE_UNJOINED
            | CUDA_ERROR_STREAM_CAPTURE_ISOLATION
            | CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            | CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD => FailureClass::Unsupported,
            CUDA_ERROR_LAUNCH_TIMEOUT | CUDA_ERROR_NOT_READY => FailureClass::Timeout,
            _ => FailureClass::Lost,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_hung() {
            return f.write_str(self.call);
        }
        let text = |ask: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
            let mut text = ptr::null();
            // SAFETY: the driver writes a text that lives as long as it is loaded, or null.
            unsafe { ask(self.status, &raw mut text) };
            match text.is_null() {
                true => "unknown",
                // SAFETY: as above; it ends with a zero.
                false => unsafe { CStr::from_ptr(text) }
                    .to_str()
                    .unwrap_or("unknown"),
            }
        };
        let (name, what) = (text(cuGetErrorName), text(cuGetErrorString));
        write!(f, "{}: {name} ({}): {what}", self.call, self.status as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_classes() {
        use CUresult::*;
        let memory = FailureClass::OutOfMemory { never_fits: false };
        for (status, class) in [
            (CUDA_ERROR_OUT_OF_MEMORY, memory),
            (CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, memory),
            (CUDA_ERROR_INVALID_PTX, FailureClass::Unsupported),
            (CUDA_ERROR_NOT_SUPPORTED, FailureClass::Unsupported),
            (CUDA_ERROR_ILLEGAL_ADDRESS, FailureClass::Lost),
            (CUDA_ERROR_LAUNCH_FAILED, FailureClass::Lost),
            (CUDA_ERROR_LAUNCH_TIMEOUT, FailureClass::Timeout),
            (CUDA_ERROR_NOT_READY, FailureClass::Timeout),
            (CUDA_ERROR_ECC_UNCORRECTABLE, FailureClass::Lost),
            (CUDA_ERROR_UNKNOWN, FailureClass::Lost),
        ] {
            assert_eq!(check("cuCall", status).unwrap_err().class(), class);
        }
        assert_eq!(check("cuCall", CUDA_SUCCESS), Ok(()));
    }
}
