//! Limit of waiting times for a device.

use std::fmt;
use std::panic::resume_unwind;
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustorch_ir::OpError;

use crate::journal::lock;
use crate::platform;

/// The variable that sets the limit.
const VARIABLE: &str = "RUSTORCH_DEVICE_TIMEOUT";

/// A kernel of a large product may take a minute where a slow processor is the device.
const DEFAULT: Duration = Duration::from_secs(300);

/// Time without progress after which a device counts as hung. This is a failure of the class
/// [`Timeout`](crate::FailureClass::Timeout).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline(Option<Duration>);

/// Five minutes.
impl Default for Deadline {
    fn default() -> Self {
        Self(Some(DEFAULT))
    }
}

/// The expected text.
const EXPECTED: &str = "the seconds without progress after which a device counts as hung, such as 300 or 0.5; 0 or none for no limit";

impl Deadline {
    /// No limit.
    pub const NEVER: Self = Self(None);

    /// This limit.
    pub fn after(limit: Duration) -> Self {
        Self(Some(limit))
    }

    /// The value of the variable `RUSTORCH_DEVICE_TIMEOUT`; five minutes if it is not set.
    ///
    /// # Errors
    /// Fails for a value that is neither a number of seconds nor `none`.
    pub fn of_environment() -> Result<Self, OpError> {
        match platform::variable(VARIABLE) {
            Some(text) => text.to_string_lossy().parse(),
            None => Ok(Self::default()),
        }
    }

    /// [`Self::of_environment`]; an invalid value is logged, and means five minutes.
    pub fn of_user() -> Self {
        Self::of_environment().unwrap_or_else(|error| {
            tracing::warn!("{error}; using five minutes");
            Self::default()
        })
    }

    /// The limit; `None` for no limit.
    pub fn limit(self) -> Option<Duration> {
        self.0
    }

    /// The result of `call`, which may be a driver call that never returns; `None` if it is not
    /// ready in time. The call then continues on its own thread, so it must own all its data.
    pub fn watch<T: Send + 'static>(self, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let Some(limit) = self.0 else {
            return Some(call());
        };
        let call = Arc::new(Mutex::new(Some(call)));
        let theirs = call.clone();
        let (tell, told) = mpsc::channel();
        let spawned = platform::spawn("rustorch-driver", move || {
            let call = lock(&theirs).take();
            // Nobody hears of what comes too late.
            let _ = call.map(|call| tell.send(call()));
        });
        let Ok(thread) = spawned else {
            // Without a thread it is better called here than not at all.
            let call = lock(&call).take();
            return call.map(|call| call());
        };
        match told.recv_timeout(limit) {
            Ok(given) => Some(given),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                None
            }
        }
    }
}

impl FromStr for Deadline {
    type Err = OpError;

    fn from_str(text: &str) -> Result<Self, OpError> {
        if text == "none" {
            return Ok(Self::NEVER);
        }
        let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
        match seconds {
            Some(Ok(Duration::ZERO)) => Ok(Self::NEVER),
            Some(Ok(limit)) => Ok(Self::after(limit)),
            Some(Err(_)) | None => Err(OpError::new(VARIABLE, EXPECTED, text)),
        }
    }
}

/// The error of a device that hangs.
impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "nothing was done for {limit:?} ({VARIABLE})"),
            None => write!(f, "no limit ({VARIABLE})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_none_are_deadlines() {
        for (text, limit) in [
            ("300", Some(Duration::from_secs(300))),
            ("0.05", Some(Duration::from_millis(50))),
            ("0", None),
            ("none", None),
        ] {
            assert_eq!(text.parse().map(Deadline::limit), Ok(limit), "{text}");
        }
    }

    #[test]
    fn what_is_no_deadline_is_named_with_what_is() {
        for text in ["5min", "-1", "nan", "inf", "1e30", "never", " 3"] {
            let error = text.parse::<Deadline>().unwrap_err().to_string();
            assert!(error.ends_with(&format!(", got {text}")), "{error}");
            assert!(error.contains("such as 300"), "{error}");
        }
    }

    #[test]
    fn a_call_that_returns_gives_what_it_gives() {
        let long = Deadline::after(Duration::from_secs(1000));
        assert_eq!(long.watch(|| 7), Some(7));
        assert_eq!(Deadline::NEVER.watch(|| 7), Some(7));
    }

    #[test]
    fn a_call_that_hangs_is_given_up_and_may_return_later() {
        let (release, released) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let call = move || {
            let _ = released.recv();
            tell.send(7)
        };
        assert_eq!(Deadline::after(Duration::from_millis(20)).watch(call), None);
        release.send(()).unwrap();
        assert_eq!(told.recv(), Ok(7));
    }

    #[test]
    #[should_panic(expected = "of the call")]
    fn a_panic_is_the_callers() {
        Deadline::after(Duration::from_secs(1000)).watch(|| panic!("of the call"));
    }
}
