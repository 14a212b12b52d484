//! An older report to compare with.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::models::Models;
use super::operations::Measurements;

/// The compared parts of it.
#[derive(Deserialize)]
pub(super) struct Before {
    pub(super) program: String,
    pub(super) machine: Value,
    pub(super) finished: String,
    pub(super) operations: Option<Measurements>,
    pub(super) models: Option<Models>,
}

impl Before {
    /// Reads a report that was written as JSON.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a report, or has no figures to compare.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = || format!("--before {}", path.display());
        let text = fs::read(path).with_context(file)?;
        Self::of(&text).with_context(file)
    }

    /// The report of a file with these bytes.
    ///
    /// # Errors
    /// Fails if the bytes are not a report, or have no figures to compare.
    fn of(text: &[u8]) -> Result<Self> {
        let before: Self = serde_json::from_slice(text).map_err(|e| {
            anyhow!(
                "not a JSON report, as `report -o FILE.json` writes it (line {}, column {})",
                e.line(),
                e.column()
            )
        })?;
        ensure!(
            before.operations.is_some() || before.models.is_some(),
            "the report has neither operations nor models"
        );
        let operations = before.operations.iter();
        let seconds =
            operations.flat_map(|it| it.operations.measured.iter().map(|row| row.seconds));
        let models = before.models.iter().flat_map(|models| &models.rows);
        let speeds = models.flat_map(|row| [row.prompt, row.generation]);
        // Figures are divided by these.
        let is_wrong = |figure: &f64| !figure.is_normal() || *figure < 0.0;
        if let Some(figure) = seconds.chain(speeds).find(is_wrong) {
            bail!("a time or a speed of {figure}: expected numbers above 0");
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use rustorch_fuzz::Target;

    use super::*;
    use crate::failure::told;

    /// A report of one operation and one model.
    fn seeds() -> Vec<Vec<u8>> {
        let operations = r#"{"measured": [{"case": "matmul", "device": "cpu", "dtype": "f32", "size": 64, "seconds": 1e-5,
            "bytes": 1e4, "flops": 1e6}], "failed": [], "roofs": []}"#;
        let models = r#"{"rows": [{"backend": "cpu", "file_type": "F16", "random_weights": false, "devices": ["cpu"],
            "prompt": 900.5, "generation": 50.0, "weight_bytes": 1, "cache_bytes": 2, "working_bytes": 3,
            "device_bytes": 0, "conversions": 0, "copied_bytes": 0}], "failed": ["x"]}"#;
        let report = |operations, models| {
            let report = r#"{"program": "p", "machine": {"processor": "x"}, "finished": "now","#;
            format!("{report} \"operations\": {operations}, \"models\": {models}}}").into_bytes()
        };
        vec![
            report(operations, models),
            report("null", models),
            report(operations, "null"),
        ]
    }

    fn read(bytes: &[u8]) -> Result<(), String> {
        let before = Before::of(bytes).map_err(|e| told(&e))?;
        let rows = before.models.iter().flat_map(|models| &models.rows);
        assert!(rows.map(|row| 1.0 / row.prompt).all(f64::is_finite));
        Ok(())
    }

    #[test]
    fn damaged_reports_are_refused_in_a_line() {
        static REPORT: Target = Target {
            name: "report",
            seeds,
            read,
            rounds: 2000,
        };
        REPORT.stand();
    }

    #[test]
    fn what_is_no_report_is_told_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.json");
        for (text, told) in [
            ("{\"pro\ngram\": 1}", "not a JSON report"),
            ("", "line 1, column 0"),
            (
                r#"{"program": "", "machine": {}, "finished": ""}"#,
                "neither operations nor models",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let Err(e) = Before::read(&path) else {
                panic!("{text} is a report");
            };
            let line = format!("{e:#}");
            assert!(line.contains(told) && !line.contains('\n'), "{line}");
        }
        assert!(Before::read(Path::new("/no/such.json")).is_err());
    }
}
