//! Results of the samples.

use std::io::{self, Write};

use serde::Serialize;

/// Result of one sample.
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    Missing(String),
}

/// Results of an operation's samples.
#[derive(Serialize)]
pub(crate) struct OpReport {
    op: String,
    family: &'static str,
    passed: usize,
    failed: usize,
    not_implemented: usize,
    failures: Vec<Reason>,
    /// The first reason for calls that are not implemented.
    missing: Option<Reason>,
}

#[derive(Serialize)]
struct Reason {
    sample: String,
    reason: String,
}

impl OpReport {
    pub(crate) fn new(op: impl Into<String>, family: &'static str) -> Self {
        Self {
            op: op.into(),
            family,
            passed: 0,
            failed: 0,
            not_implemented: 0,
            failures: Vec::new(),
            missing: None,
        }
    }

    pub(crate) fn add(&mut self, sample: String, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(reason) => {
                self.failed += 1;
                self.failures.push(Reason { sample, reason });
            }
            Verdict::Missing(reason) => {
                self.not_implemented += 1;
                self.missing.get_or_insert(Reason { sample, reason });
            }
        }
    }
}

/// Results of all operations.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Origin of the replayed answers.
    pub(crate) source: String,
    pub(crate) device: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) not_implemented: usize,
    ops: Vec<OpReport>,
}

impl Report {
    pub(crate) fn new(source: String, device: String) -> Self {
        Self {
            source,
            device,
            passed: 0,
            failed: 0,
            not_implemented: 0,
            ops: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, op: OpReport) {
        self.passed += op.passed;
        self.failed += op.failed;
        self.not_implemented += op.not_implemented;
        self.ops.push(op);
    }

    /// The line that everything ends with.
    pub(crate) fn summary(&self) -> String {
        let Self {
            passed,
            failed,
            not_implemented,
            ..
        } = self;
        format!("{passed} passed, {failed} failed, {not_implemented} not implemented")
    }

    /// A line for each operation; `verbose` adds first reasons, twice every failure.
    pub(crate) fn print(&self, out: &mut dyn Write, verbose: u8) -> io::Result<()> {
        writeln!(out, "{} on {}", self.source, self.device)?;
        let width = self.ops.iter().map(|op| op.op.len()).max().unwrap_or(0);
        for op in &self.ops {
            let OpReport {
                passed,
                failed,
                not_implemented,
                ..
            } = op;
            writeln!(
                out,
                "{:width$} {passed:5} passed {failed:5} failed {not_implemented:5} not implemented",
                op.op
            )?;
            let shown = match verbose {
                0 => 0,
                1 => 1,
                _ => usize::MAX,
            };
            for Reason { sample, reason } in op.failures.iter().take(shown) {
                writeln!(out, "    failed: {sample}: {reason}")?;
            }
            for Reason { sample, reason } in op.missing.iter().take(shown) {
                writeln!(out, "    not implemented: {sample}: {reason}")?;
            }
        }
        Ok(())
    }
}
