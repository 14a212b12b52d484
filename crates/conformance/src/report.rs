//! What was checked, and how it went.

use std::collections::BTreeMap;
use std::fmt;

use rustorch_ir::OpKind;
use rustorch_runtime::DeviceType;

/// The checks of one device. Prints as a table of the operations, the failures, and the
/// reasons for what was skipped.
#[derive(Clone, Debug)]
pub struct Report {
    /// The device.
    pub device: DeviceType,
    /// The checks, operation by operation.
    pub checks: Vec<Check>,
}

/// One case, run in one way.
#[derive(Clone, Debug)]
pub struct Check {
    /// The operation.
    pub kind: OpKind,
    /// Its parameters and operands, and how it was run.
    pub case: String,
    /// How it went.
    pub outcome: Outcome,
    /// How near the result is to the reference's; `None` where the check did not pass, or
    /// compares no result.
    pub closeness: Option<Closeness>,
}

/// How near a result is. Both are squared errors, normalised by the squares of what is
/// expected; 0 is exact.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Closeness {
    /// The error of the result.
    pub error: f64,
    /// The largest that passes.
    pub allowed: f64,
}

/// How a check went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The result is the reference's.
    Passed,
    /// It is not, or there is none.
    Failed(String),
    /// The device has no kernel for it.
    Skipped(String),
}

impl Report {
    /// Number of checks that passed.
    pub fn passed(&self) -> usize {
        self.checks
            .iter()
            .filter(|c| c.outcome == Outcome::Passed)
            .count()
    }

    /// The checks that failed, with what is wrong.
    pub fn failed(&self) -> impl Iterator<Item = (&Check, &str)> {
        self.checks.iter().filter_map(|check| match &check.outcome {
            Outcome::Failed(why) => Some((check, why.as_str())),
            _ => None,
        })
    }

    /// The checks that were skipped, with the reason.
    pub fn skipped(&self) -> impl Iterator<Item = (&Check, &str)> {
        self.checks.iter().filter_map(|check| match &check.outcome {
            Outcome::Skipped(why) => Some((check, why.as_str())),
            _ => None,
        })
    }

    /// Those of the skipped checks whose case was not run decomposed either: what the device
    /// cannot do at all.
    pub fn left_out(&self) -> impl Iterator<Item = (&Check, &str)> {
        self.skipped().filter(|(skipped, _)| {
            let name = format!("{}, decomposed", skipped.case);
            let mut checks = self.checks.iter();
            !checks.any(|check| check.kind == skipped.kind && check.case == name)
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<18}{:>8}{:>8}{:>8}",
            self.device.to_string(),
            "passed",
            "failed",
            "skipped"
        )?;
        for checks in self.checks.chunk_by(|a, b| a.kind == b.kind) {
            let count = |of: fn(&Outcome) -> bool| checks.iter().filter(|c| of(&c.outcome)).count();
            writeln!(
                f,
                "{:<18}{:>8}{:>8}{:>8}",
                checks[0].kind.name(),
                count(|o| matches!(o, Outcome::Passed)),
                count(|o| matches!(o, Outcome::Failed(_))),
                count(|o| matches!(o, Outcome::Skipped(_))),
            )?;
        }
        for (check, why) in self.failed() {
            writeln!(f, "failed: {}: {why}", check.case)?;
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, why) in self.skipped() {
            *reasons.entry(why).or_default() += 1;
        }
        for (why, count) in reasons {
            writeln!(f, "skipped {count}: {why}")?;
        }
        Ok(())
    }
}
