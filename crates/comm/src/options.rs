//! Time limits of ranks that wait for each other.

use std::time::Duration;

/// Limits of time. All ranks of a group should have the same. Times above a year count as a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The longest time that a call waits for other ranks.
    pub deadline: Duration,
    /// The longest time that ranks take to agree on a failure.
    pub settle: Duration,
    /// The longest silence of a process before it counts as dead. Processes send a sign of life five times in this
    /// period.
    pub silence: Duration,
}

/// The longest time: clocks can count several of it from now.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Options {
    /// The same, with no time that overflows a clock.
    pub(crate) fn bounded(self) -> Self {
        Self {
            deadline: self.deadline.min(LONGEST),
            settle: self.settle.min(LONGEST),
            silence: self.silence.min(LONGEST),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(300),
            settle: Duration::from_secs(2),
            silence: Duration::from_secs(10),
        }
    }
}
