//! Ends of command buffers: their error codes, and the answer to each.

use rustorch_runtime::FailureClass;

use crate::CommandError;

/// Name and class of a code of `MTLCommandBufferError` (Metal's `MTLCommandBuffer.h`).
///
/// Codes that are not known to leave the device intact count as a loss. So does an internal error,
/// which the system also reports when it stops a command buffer for the display's sake. "Not
/// permitted" is a loss, too. It holds until the program is in the foreground again.
fn describe(code: isize) -> (&'static str, FailureClass) {
    match code {
        1 => ("internal error", FailureClass::Lost),
        2 => ("timeout", FailureClass::Timeout),
        3 => ("page fault", FailureClass::Lost),
        4 => ("access revoked", FailureClass::Lost),
        7 => ("not permitted", FailureClass::Lost),
        8 => (
            "out of memory",
            FailureClass::OutOfMemory { never_fits: false },
        ),
        9 => ("invalid resource", FailureClass::Caller),
        10 => ("memoryless resource", FailureClass::Lost),
        11 => ("device removed", FailureClass::Lost),
        12 => ("stack overflow", FailureClass::Lost),
        _ => ("unknown code", FailureClass::Lost),
    }
}

impl CommandError {
    pub(crate) fn class(&self) -> FailureClass {
        describe(self.code).1
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, message } = self;
        write!(f, "command buffer: {} ({code})", describe(*code).0)?;
        match message.is_empty() {
            true => Ok(()),
            false => write!(f, ": {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_and_classes() {
        let memory = FailureClass::OutOfMemory { never_fits: false };
        for (code, class, name) in [
            (1, FailureClass::Lost, "internal error"),
            (2, FailureClass::Timeout, "timeout"),
            (3, FailureClass::Lost, "page fault"),
            (4, FailureClass::Lost, "access revoked"),
            (7, FailureClass::Lost, "not permitted"),
            (8, memory, "out of memory"),
            (9, FailureClass::Caller, "invalid resource"),
            (11, FailureClass::Lost, "device removed"),
            (12, FailureClass::Lost, "stack overflow"),
            (-5, FailureClass::Lost, "unknown code"),
        ] {
            let message = String::new();
            let mut error = CommandError { code, message };
            assert_eq!(error.class(), class, "{error}");
            assert_eq!(
                error.to_string(),
                format!("command buffer: {name} ({code})")
            );
            error.message.push_str("why");
            assert!(error.to_string().ends_with("): why"), "{error}");
        }
    }
}
