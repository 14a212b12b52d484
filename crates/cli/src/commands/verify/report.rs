//! All findings, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rustorch_runtime::{Absent, DeviceInfo};
use serde::Serialize;

use super::Part;
use super::findings::{Findings, Outcome, Row};
use crate::machine::{Machine, PROGRAM, arguments, now};
use crate::output::bytes;
use crate::subject::Subject;
use crate::table::Table;

/// Advice for a report.
pub(super) const SEND_TO: &str = "to share it, attach it to an issue of the project";

/// Failures of one row that are written out; JSON has all.
const SHOWN: usize = 20;

/// A verification.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    passed: bool,
    program: &'static str,
    command: Vec<String>,
    finished: String,
    seconds: f64,
    machine: Machine,
    devices: Vec<DeviceReport>,
    /// Devices that are not here, with the reason.
    missing: BTreeMap<String, String>,
}

/// The findings on one device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceReport {
    device: String,
    name: String,
    memory_bytes: Option<u64>,
    shares_host_memory: bool,
    /// Driver and versions, among others.
    details: BTreeMap<String, String>,
    parts: BTreeMap<Part, Findings>,
}

impl DeviceReport {
    pub(super) fn new(subject: &Subject, parts: impl Iterator<Item = (Part, Findings)>) -> Self {
        let infos: Vec<&DeviceInfo> = subject.backends.iter().map(|b| b.info()).collect();
        let one = subject.device().map(|b| b.info());
        let libraries = || subject.device().map(|b| b.libraries()).unwrap_or_default();
        let names: Vec<String> = infos.iter().map(|info| info.device.to_string()).collect();
        let details = one.map(|info| info.details.iter().cloned().chain(libraries()).collect());
        Self {
            device: subject.name.clone(),
            name: one.map_or_else(|| names.join(", "), |info| info.name.clone()),
            memory_bytes: one.and_then(|info| info.memory_bytes),
            shares_host_memory: subject.shares_host_memory(),
            details: details.unwrap_or_default(),
            parts: parts.collect(),
        }
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.parts.values().map(|f| f.count(outcome)).sum()
    }

    /// The device's description.
    fn facts(&self) -> String {
        let memory = self.memory_bytes.map(|memory| {
            let place = match self.shares_host_memory {
                true => " shared with the host",
                false => "",
            };
            format!("memory {}{place}", bytes(memory))
        });
        let details = self
            .details
            .iter()
            .map(|(key, value)| format!("{key} {value}"));
        let facts = [self.name.clone()].into_iter().chain(details).chain(memory);
        facts.collect::<Vec<_>>().join(", ")
    }
}

impl Report {
    /// A report of the findings, with time and machine.
    pub(super) fn new(devices: Vec<DeviceReport>, absent: Vec<Absent>, time: Duration) -> Self {
        Self {
            passed: devices.iter().all(|d| d.count(Outcome::Failed) == 0),
            program: PROGRAM,
            command: arguments(),
            finished: now(),
            seconds: (time.as_secs_f64() * 10.0).round() / 10.0,
            machine: Machine::this(),
            devices,
            missing: (absent.into_iter()).map(|a| (a.device, a.reason)).collect(),
        }
    }

    /// Returns whether nothing is wrong.
    pub(super) fn passed(&self) -> bool {
        self.passed
    }

    /// A line for each part of each device, and the failures.
    pub(super) fn summary(&self) -> String {
        let mut lines = Vec::new();
        for device in &self.devices {
            for (part, findings) in &device.parts {
                let name = format!("{:<11}{:<13}", device.device, part.name());
                lines.push(format!("{name}{}", verdict(findings)));
                let failed = findings
                    .rows
                    .iter()
                    .filter(|r| r.outcome == Outcome::Failed);
                lines.extend(failed.map(|row| format!("  {}: {}", row.name, first(row))));
            }
        }
        lines.join("\n") + "\n"
    }
}

/// The first thing that is wrong, and how much more is.
fn first(row: &Row) -> String {
    match &row.remarks[..] {
        [] => String::new(),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} (and {} more)", rest.len()),
    }
}

/// `passed`, `FAILED` …, with the numbers of rows.
fn verdict(findings: &Findings) -> String {
    use Outcome::{Failed, Passed, Skipped, Slower};
    let counts: Vec<String> = [Passed, Failed, Skipped, Slower]
        .into_iter()
        .map(|outcome| (outcome, findings.count(outcome)))
        .filter(|(_, n)| *n > 0)
        .map(|(outcome, n)| match outcome {
            Slower => format!("{n} slower than the CPU"),
            _ => format!("{n} {outcome}"),
        })
        .collect();
    counts.join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = match self.passed {
            true => "passed",
            false => "FAILED",
        };
        writeln!(f, "# Verification of RusTorch: {result}\n")?;
        writeln!(
            f,
            "To share this report, attach it to an issue of the project.\n"
        )?;
        let facts = [
            ("program", self.program.to_owned()),
            (
                "command",
                format!("rustorch-cli {}", self.command.join(" ")),
            ),
            (
                "finished",
                format!("{}, after {} s", self.finished, self.seconds),
            ),
        ];
        for (name, value) in facts.into_iter().chain(self.machine.facts()) {
            writeln!(f, "- {name}: {value}")?;
        }
        for device in &self.devices {
            writeln!(f, "- {}: {}", device.device, device.facts())?;
        }
        for (device, reason) in &self.missing {
            writeln!(f, "- {device}: missing, {reason}")?;
        }
        let verdicts = self.devices.iter().flat_map(|device| {
            device.parts.iter().map(|(part, findings)| {
                vec![
                    device.device.clone(),
                    part.name().to_owned(),
                    verdict(findings),
                    findings.seconds.to_string(),
                ]
            })
        });
        write!(
            f,
            "\n{}",
            Table::new(["device", "part", "verdict", "seconds"], verdicts)
        )?;
        for device in &self.devices {
            for (part, findings) in &device.parts {
                writeln!(f, "\n## {}: {}\n", device.device, part.name())?;
                findings.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.did)?;
        for left_out in &self.left_out {
            writeln!(f, "Not done: {left_out}.\n")?;
        }
        // Rows that have no figures have nothing to say of the columns.
        let columns = self.rows.iter().max_by_key(|row| row.figures.len());
        let columns: Vec<&str> = columns.map_or(Vec::new(), |row| {
            row.figures.iter().map(|x| &*x.what).collect()
        });
        let header = [&["what"], &columns[..], &["verdict", "remark"]].concat();
        let rows = self.rows.iter().map(|row| {
            let figure = |what: &&str| row.figures.iter().find(|x| x.what == *what);
            let figures = columns
                .iter()
                .map(|c| figure(c).map_or(String::new(), |x| x.to_string()));
            let mut cells = vec![row.name.clone()];
            cells.extend(figures);
            cells.extend([row.outcome.to_string(), first(row)]);
            cells
        });
        write!(f, "{}", Table::new(header, rows))?;
        for row in self
            .rows
            .iter()
            .filter(|row| row.outcome == Outcome::Failed)
        {
            writeln!(f, "\n{} failed:\n", row.name)?;
            for remark in row.remarks.iter().take(SHOWN) {
                writeln!(f, "- {remark}")?;
            }
            if row.remarks.len() > SHOWN {
                writeln!(f, "- and {} more", row.remarks.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}
