//! Tools for tests of several crates: [adapters merged into weights](adapters), [damaged files](damage),
//! [fetched files](fetched), [instructions counted](instructions), [memory counted](memory),
//! [models of every architecture](models), [numbers at random](random). Others are [a device that works behind
//! the caller's back](queued), [the compiler's messages](compiler) and [warnings](warnings()). It also runs tests that
//! need a device which not every machine has.
//!
//! Rust's own harness cannot skip a test that runs: one that finds no device and returns counts as
//! passed. So those tests are in programs (`harness = false`), whose `main` looks for the device:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use rustorch_testing::{Suite, tests};
//!
//! fn it_has_a_name(device: &String) {
//!     assert!(!device.is_empty());
//! }
//!
//! fn main() -> ExitCode {
//!     let device = std::fs::read_to_string("/dev/device");
//!     Suite::new()
//!         .on(device, "RUSTORCH_TEST_DEVICE", tests![it_has_a_name])
//!         .run()
//! }
//! ```

pub mod adapters;
pub mod compiler;
pub mod damage;
pub mod fetched;
pub mod instructions;
pub mod memory;
pub mod models;
pub mod queued;
pub mod random;
mod warnings;

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
pub use warnings::warnings;

/// A test: its name and its function.
pub type Test<D> = (&'static str, fn(&D));

/// Functions as [`Test`]s. A test's name has the modules of its function.
#[macro_export]
macro_rules! tests {
    ($($test:path),+ $(,)?) => {
        &[$((stringify!($test), $test as fn(&_))),+]
    };
}

/// Functions without a device as tests of their names, with their modules'.
#[macro_export]
macro_rules! always {
    ($($test:path),+ $(,)?) => {
        &[$((stringify!($test), $test as fn())),+]
    };
}

/// The tests of a program.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
    /// Missing things, a line each.
    missing: Vec<String>,
}

impl Suite {
    /// A suite without tests.
    pub fn new() -> Self {
        Self::default()
    }

    /// With tests that every machine can run.
    #[must_use]
    pub fn always(mut self, tests: &[(&'static str, fn())]) -> Self {
        let trial = |&(name, test): &(&'static str, fn())| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        };
        self.trials.extend(tests.iter().map(trial));
        self
    }

    /// Adds tests of a device.
    #[must_use]
    pub fn on<D: Send + Sync + 'static>(
        self,
        device: Result<D, impl Display>,
        promise: &str,
        tests: &[Test<D>],
    ) -> Self {
        let promised = std::env::var_os(promise).is_some();
        self.on_promised(device, promised.then_some(promise), tests)
    }

    fn on_promised<D: Send + Sync + 'static>(
        mut self,
        device: Result<D, impl Display>,
        promised: Option<&str>,
        tests: &[Test<D>],
    ) -> Self {
        match device {
            Ok(device) => {
                let device = Arc::new(device);
                let trial = |&(name, test): &Test<D>| {
                    let device = device.clone();
                    Trial::test(name, move || {
                        test(&device);
                        Ok(())
                    })
                };
                self.trials.extend(tests.iter().map(trial));
            }
            Err(why) => {
                let problem = match promised {
                    Some(promise) => format!("{promise} promises a device: {why}"),
                    None => format!("{} ignored: {why}", tests.len()),
                };
                let trial = |&(name, _): &Test<D>| {
                    let failed = Failed::from(&problem);
                    Trial::test(name, || Err(failed)).with_ignored_flag(promised.is_none())
                };
                self.trials.extend(tests.iter().map(trial));
                self.missing.push(problem);
            }
        }
        self
    }

    /// Runs the tests, with the arguments that `cargo test` gives.
    pub fn run(self) -> ExitCode {
        self.conclude(&Arguments::from_args()).exit_code()
    }

    fn conclude(self, arguments: &Arguments) -> Conclusion {
        for problem in &self.missing {
            eprintln!("{problem}");
        }
        libtest_mimic::run(arguments, self.trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_even(device: &usize) {
        assert!(device.is_multiple_of(2));
    }

    fn is_small(device: &usize) {
        assert!(*device < 100);
    }

    fn nothing() {}

    /// Numbers of tests that passed, failed and were ignored.
    fn counts(device: Result<usize, &str>, promised: Option<&str>) -> [u64; 3] {
        let suite = Suite::new().always(always![nothing]).on_promised(
            device,
            promised,
            tests![is_even, is_small],
        );
        let conclusion = suite.conclude(&Arguments {
            quiet: true,
            ..Arguments::default()
        });
        let Conclusion {
            num_passed,
            num_failed,
            num_ignored,
            ..
        } = conclusion;
        [num_passed, num_failed, num_ignored]
    }

    #[test]
    fn with_a_device_tests_pass_or_fail() {
        assert_eq!(counts(Ok(2), Some("PROMISE")), [3, 0, 0]);
        assert_eq!(counts(Ok(3), None), [2, 1, 0]);
    }

    #[test]
    fn without_one_they_are_ignored_unless_it_was_promised() {
        assert_eq!(counts(Err("none"), None), [1, 0, 2]);
        assert_eq!(counts(Err("none"), Some("PROMISE")), [1, 2, 0]);
    }
}
