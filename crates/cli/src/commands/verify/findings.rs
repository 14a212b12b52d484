//! The results of a part of the verification, in the report's form.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The results of a part of the verification on one device.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Findings {
    /// A description of the checks.
    pub(super) did: String,
    /// Duration in seconds.
    pub(super) seconds: f64,
    /// The skipped checks, and how to run them.
    pub(super) left_out: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) figures: Vec<Figure>,
    /// The problems, each by itself; else a remark.
    pub(super) remarks: Vec<String>,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Passed,
    Failed,
    Skipped,
    /// Slower than the CPU: worth knowing, and no failure.
    Slower,
}

/// A number, and its limit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) what: Cow<'static, str>,
    pub(super) value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_most: Option<f64>,
}

impl Figure {
    pub(super) fn new(what: &'static str, value: f64) -> Self {
        Self {
            what: what.into(),
            value,
            at_most: None,
        }
    }

    pub(super) fn count(what: &'static str, value: usize) -> Self {
        Self::new(what, value as f64)
    }

    pub(super) fn at_most(self, limit: f64) -> Self {
        Self {
            at_most: Some(limit),
            ..self
        }
    }
}

impl Row {
    /// Passed, with nothing to say.
    pub(super) fn passed(name: impl Into<String>, figures: Vec<Figure>) -> Self {
        Self {
            name: name.into(),
            outcome: Outcome::Passed,
            figures,
            remarks: Vec::new(),
        }
    }

    /// Nothing was measured, since something else failed.
    pub(super) fn failed(name: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            outcome: Outcome::Failed,
            ..Self::passed(name, Vec::new()).remark(why)
        }
    }

    /// A check that was skipped, with the reason.
    pub(super) fn skipped(name: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            outcome: Outcome::Skipped,
            ..Self::passed(name, Vec::new()).remark(why)
        }
    }

    pub(super) fn remark(mut self, text: impl fmt::Display) -> Self {
        self.remarks.push(text.to_string());
        self
    }

    /// Failed, if there is a problem.
    pub(super) fn judged(mut self, problems: impl IntoIterator<Item = String>) -> Self {
        let before = self.remarks.len();
        self.remarks.extend(problems);
        if self.remarks.len() > before {
            self.outcome = Outcome::Failed;
        }
        self
    }
}

impl Findings {
    /// Findings of a check that was skipped for the reason `why`.
    pub(super) fn skipped(name: &str, why: &str) -> Self {
        Self {
            did: "Nothing.".to_owned(),
            rows: vec![Row::skipped(name, why)],
            ..Self::default()
        }
    }

    pub(super) fn count(&self, outcome: Outcome) -> usize {
        self.rows
            .iter()
            .filter(|row| row.outcome == outcome)
            .count()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
            Self::Slower => "slower",
        })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&number(self.value))?;
        match self.at_most {
            Some(limit) => write!(f, " ≤ {}", number(limit)),
            None => Ok(()),
        }
    }
}

/// A number with three digits that say something.
pub(super) fn number(x: f64) -> String {
    match x.abs() {
        _ if x == x.trunc() && x.abs() < 1e15 => format!("{x}"),
        size if size < 1e-3 => format!("{x:.1e}"),
        size if size < 1.0 => format!("{x:.3}"),
        size if size < 10.0 => format!("{x:.2}"),
        size if size < 100.0 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (x, text) in [
            (0.0, "0"),
            (41.0, "41"),
            (3.21e-9, "3.2e-9"),
            (0.066_4, "0.066"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (12_345.6, "12346"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(x), text);
        }
        let figure = Figure::new("mean", 0.0664).at_most(0.075);
        assert_eq!(figure.to_string(), "0.066 ≤ 0.075");
    }

    #[test]
    fn problems_are_failures() {
        let row = || Row::passed("x", Vec::new());
        assert_eq!(row().judged(None).outcome, Outcome::Passed);
        assert_eq!(row().remark("a").judged(None).outcome, Outcome::Passed);
        let failed = row().judged(["a".to_owned(), "b".to_owned()]);
        assert_eq!((failed.outcome, failed.remarks.len()), (Outcome::Failed, 2));
    }
}
