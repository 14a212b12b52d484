//! Long work that resumes: results are kept in a file beside the report until that is written.
//!
//! ```text
//! {"identity": "…"}              what has to be the same for the rest to count
//! {"begun": "metal:0 faults"}
//! {"done": "metal:0 faults", "result": …}
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::machine::{self, Machine, PROGRAM};

/// Number of times that work may be begun.
const ATTEMPTS: usize = 2;

/// The conditions under which results stay valid: the program, its arguments, and the machine.
pub(crate) fn identity() -> String {
    let args = machine::arguments();
    let facts = Machine::this().facts();
    let facts = facts.into_iter().map(|(_, value)| value);
    let parts = [PROGRAM.to_owned()].into_iter().chain(args).chain(facts);
    parts.collect::<Vec<_>>().join("\n")
}

/// The program ended as often as it may while it did this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended;

/// The results so far.
#[derive(Default)]
pub(crate) struct Progress {
    file: Option<(PathBuf, File)>,
    begun: BTreeMap<String, usize>,
    done: BTreeMap<String, Value>,
}

impl Progress {
    /// The results for this report by work of the same identity. Nothing is kept where there is no report's
    /// file, or none can be written beside it.
    pub(crate) fn open(report: Option<&Path>, identity: &str) -> Self {
        let Some(report) = report else {
            return Self::default();
        };
        let mut name = report.as_os_str().to_owned();
        name.push(".partial");
        let path = PathBuf::from(name);
        let known = fs::read_to_string(&path).unwrap_or_default();
        let mut lines = known
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut progress = Self::default();
        let is_same = lines
            .next()
            .is_some_and(|line| line["identity"] == identity);
        if is_same {
            lines.for_each(|line| progress.know(&line));
        }
        let mut options = File::options();
        let file = options
            .create(true)
            .append(is_same)
            .write(true)
            .truncate(!is_same)
            .open(&path);
        progress.file = file.ok().map(|file| (path, file));
        if is_same {
            let count = progress.done.len();
            tracing::warn!(
                "continuing an interrupted run: {count} finished parts are not repeated"
            );
        } else {
            progress.note(&json!({"identity": identity}));
        }
        progress
    }

    fn know(&mut self, line: &Value) {
        if let Some(key) = line["begun"].as_str() {
            *self.begun.entry(key.to_owned()).or_default() += 1;
        }
        if let Some(key) = line["done"].as_str() {
            self.done.insert(key.to_owned(), line["result"].clone());
        }
    }

    /// Its own line, whatever was cut before it. One that is lost costs time, and no more.
    fn note(&mut self, line: &Value) {
        if let Some((_, file)) = &mut self.file {
            let _ = write!(file, "\n{line}\n").and_then(|()| file.sync_data());
        }
    }

    /// The result of some work, which is done unless it was.
    ///
    /// # Errors
    /// Fails if the work began twice and ended the program both times.
    pub(crate) fn done<T: Serialize + DeserializeOwned>(
        &mut self,
        key: &str,
        work: impl FnOnce() -> T,
    ) -> Result<T, Ended> {
        let known = self.done.get(key).cloned();
        if let Some(result) = known.and_then(|known| serde_json::from_value(known).ok()) {
            return Ok(result);
        }
        if self.begun.get(key).is_some_and(|&begun| begun >= ATTEMPTS) {
            return Err(Ended);
        }
        self.note(&json!({"begun": key}));
        let result = work();
        self.note(&json!({"done": key, "result": result}));
        Ok(result)
    }

    /// [`Self::done`] of work that may fail, with the reason as text.
    ///
    /// # Errors
    /// The errors of the work. Also fails if the work ended the program twice.
    pub(crate) fn attempt<T: Serialize + DeserializeOwned>(
        &mut self,
        key: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> Result<T, String> {
        let result = self.done(key, || work().map_err(|e| format!("{e:#}")));
        result.unwrap_or_else(|Ended| {
            Err("skipped: the program ended twice during this part".to_owned())
        })
    }

    /// The report is there.
    pub(crate) fn finish(self) {
        if let Some((path, _)) = self.file {
            // One that stays is found, and says that all is done.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_not_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.md");
        let open = |identity: &str| Progress::open(Some(&report), identity);
        let mut first = open("a");
        assert_eq!(first.done("x", || 1.5), Ok(1.5));
        drop(first);
        let mut again = open("a");
        assert_eq!(again.done("x", || panic!("it was done")), Ok(1.5));
        assert_eq!(again.done("y", || 2.5), Ok(2.5));
        drop(again);
        // Another machine, or another question.
        let mut other = open("b");
        assert_eq!(other.done("x", || 3.5), Ok(3.5));
        other.finish();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(open("b").done("x", || 4.5), Ok(4.5));
        assert_eq!(Progress::open(None, "a").done("x", || 5.5), Ok(5.5));
    }

    #[test]
    fn what_ends_the_program_twice_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.md");
        for attempt in 0..3 {
            let mut progress = Progress::open(Some(&report), "a");
            let crash = || -> i32 { panic!("a crash") };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                progress.done("x", crash)
            }));
            match attempt {
                2 => assert_eq!(ended.ok(), Some(Err(Ended))),
                _ => assert!(ended.is_err()),
            }
        }
    }

    #[test]
    fn a_line_that_was_cut_is_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.md");
        let partial = folder.path().join("report.md.partial");
        fs::write(
            &partial,
            "{\"identity\":\"a\"}\n{\"done\":\"x\",\"result\":1}\n{\"do",
        )
        .unwrap();
        let mut progress = Progress::open(Some(&report), "a");
        assert_eq!(progress.done("x", || 2), Ok(1));
        assert_eq!(progress.done("y", || 3), Ok(3));
        assert_eq!(Progress::open(Some(&report), "a").done("y", || 4), Ok(3));
    }
}
