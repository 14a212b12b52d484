//! Results of fuzzing, from one or several processes.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The name of the file with the counts, in the folder of found inputs.
const FILE: &str = "counts.json";

/// Results so far.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Processes that tried.
    pub(crate) processes: u64,
    /// Processes that ended early: an input took too long or too much memory, or ended the process otherwise.
    pub(crate) died: u64,
    /// Time of processors that was really used.
    pub(crate) processor_seconds: f64,
    pub(crate) targets: Vec<Count>,
}

/// Results of a target.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) target: String,
    /// Inputs.
    pub(crate) tried: u64,
    pub(crate) taken: u64,
    pub(crate) seconds: f64,
    /// Kinds of answers; of several processes, of that with the most.
    pub(crate) answers: usize,
    /// Kinds of panics in each process.
    pub(crate) found: usize,
}

impl Counts {
    /// Returns whether nothing was found.
    pub(crate) fn is_clean(&self) -> bool {
        self.died == 0 && self.targets.iter().all(|count| count.found == 0)
    }

    /// Adds another process's results.
    pub(crate) fn add(&mut self, other: Self) {
        self.processes += other.processes;
        self.died += other.died;
        self.processor_seconds += other.processor_seconds;
        for count in other.targets {
            let same = |known: &&mut Count| known.target == count.target;
            let Some(known) = self.targets.iter_mut().find(same) else {
                self.targets.push(count);
                continue;
            };
            known.tried += count.tried;
            known.taken += count.taken;
            known.seconds += count.seconds;
            known.answers = known.answers.max(count.answers);
            known.found += count.found;
        }
    }

    /// Reads a process's results from a folder; zeros if there are none.
    pub(crate) fn read(folder: &Path) -> Self {
        let read = File::open(folder.join(FILE)).ok();
        let read = read.and_then(|file| serde_json::from_reader(file).ok());
        read.unwrap_or_default()
    }

    /// Writes the results to a folder, whole, for readers meanwhile.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let unfinished = folder.join("counts.unfinished");
        fs::write(&unfinished, serde_json::to_vec(self)?)
            .and_then(|()| fs::rename(&unfinished, folder.join(FILE)))
            .with_context(|| folder.display().to_string())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for count in &self.targets {
            writeln!(
                f,
                "{:14} {:9} inputs in {:6.0} s, {:8} taken, {:4} kinds of answers, {} of panics",
                count.target, count.tried, count.seconds, count.taken, count.answers, count.found,
            )?;
        }
        let sum = |each: fn(&Count) -> u64| -> u64 { self.targets.iter().map(each).sum() };
        writeln!(
            f,
            "{} inputs, {:.0} s of processor time of {} processes; {} kinds of panics, {} processes ended early",
            sum(|count| count.tried),
            self.processor_seconds,
            self.processes,
            sum(|count| count.found as u64),
            self.died,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(target: &str, tried: u64, found: usize) -> Counts {
        Counts {
            processes: 1,
            processor_seconds: 1.5,
            targets: vec![Count {
                target: target.to_owned(),
                tried,
                taken: 1,
                seconds: 1.0,
                answers: tried as usize,
                found,
            }],
            ..Counts::default()
        }
    }

    #[test]
    fn counts_of_processes_add_up() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Counts::read(folder.path()).targets.is_empty());
        let mut all = Counts::default();
        for other in [one("a", 3, 0), one("b", 5, 0), one("a", 7, 0)] {
            other.write(folder.path()).unwrap();
            all.add(Counts::read(folder.path()));
        }
        assert_eq!((all.processes, all.processor_seconds), (3, 4.5));
        let tried: Vec<_> = all.targets.iter().map(|c| (c.tried, c.answers)).collect();
        assert_eq!(tried, [(10, 7), (5, 5)]);
        assert!(all.is_clean());
        all.add(one("b", 1, 1));
        assert!(!all.is_clean());
        assert!(all.to_string().contains("16 inputs, 6 s"), "{all}");
    }
}
