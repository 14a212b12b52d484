//! An older report, beside which this one is shown.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::models::Models;
use super::operations::Measurements;

/// What of it is compared.
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
    /// It cannot be read, is none, or has nothing that could be compared.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = || format!("--before {}", path.display());
        let text = fs::read(path).with_context(file)?;
        let what = "no report in JSON, as `report -o FILE.json` writes it";
        let before: Self = serde_json::from_slice(&text).map_err(|e| {
            anyhow::anyhow!(
                "{}: {what} (line {}, column {})",
                file(),
                e.line(),
                e.column()
            )
        })?;
        if before.operations.is_none() && before.models.is_none() {
            bail!("{}: neither operations nor models are in it", file());
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_is_told_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.json");
        for (text, told) in [
            ("{\"pro\ngram\": 1}", "no report in JSON"),
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
