//! A runtime's activity besides computing: conversions and copies.

use std::fmt;

use rustorch_runtime::{Moved, Runtime};

/// Conversions and copies of a runtime, by its counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Tensors that were written in another element type; see
    /// [`MemoryManager::conversions`](rustorch_runtime::MemoryManager::conversions).
    pub conversions: u64,
    /// Copies between devices, including the host. Memory that devices share is not copied.
    pub copied: Moved,
}

impl Activity {
    /// The whole activity so far.
    pub fn of(runtime: &Runtime) -> Self {
        let memory = runtime.memory();
        Self {
            conversions: memory.conversions(),
            copied: memory.copied(),
        }
    }

    /// The activity since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            conversions: self.conversions.saturating_sub(earlier.conversions),
            copied: Moved {
                bytes: self.copied.bytes.saturating_sub(earlier.copied.bytes),
                copies: self.copied.copies.saturating_sub(earlier.copied.copies),
            },
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moved { bytes, copies } = self.copied;
        let conversions = self.conversions;
        write!(f, "{conversions} conversions, {copies} copies")?;
        match bytes {
            0 => Ok(()),
            bytes => write!(f, " of {bytes} bytes"),
        }
    }
}
