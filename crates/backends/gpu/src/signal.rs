//! Sleeping until a driver calls back.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A report of a driver's own thread: some work is over.
#[derive(Debug, Default)]
pub struct Signal {
    is_told: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Says it, once and for all.
    pub fn tell(&self) {
        *self.is_told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Sleeps until it is said, but no longer than `longest`: was it said?
    pub fn sleep(&self, longest: Option<Duration>) -> bool {
        let is_told = self.is_told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = |is_told: &mut bool| !*is_told;
        match longest {
            Some(longest) => {
                let slept = (self.changed).wait_timeout_while(is_told, longest, is_silent);
                *slept.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let slept = self.changed.wait_while(is_told, is_silent);
                *slept.unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_sleeps_is_woken() {
        let signal = Signal::default();
        assert!(!signal.sleep(Some(Duration::from_millis(1))));
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| signal.sleep(None));
            signal.tell();
            assert!(sleeper.join().unwrap());
        });
        assert!(signal.sleep(Some(Duration::ZERO)));
    }
}
