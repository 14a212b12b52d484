//! One process: targets in turns.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustorch_fuzz::{Fuzzer, Target};

use crate::counts::{Count, Counts};
use crate::watch::{self, ProcessorTime};

/// Time that a target has before the next one's turn.
const TURN: Duration = Duration::from_secs(5);

/// Output folders.
#[derive(clap::Args)]
pub(crate) struct Folders {
    /// Folder for inputs that are found, and counts.json
    #[arg(long, value_name = "FOLDER", default_value = "target/fuzz")]
    pub(crate) found: PathBuf,

    /// Folder for inputs with new answers, from which the next run continues [default: none]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) corpus: Option<PathBuf>,
}

/// Tries damaged input on targets, which have turns, for so long.
pub(crate) fn go_on(
    targets: &[&'static Target],
    seed: u64,
    time: Duration,
    folders: &Folders,
) -> Result<Counts> {
    let end = Instant::now() + time;
    watch::begin();
    let mut runs: Vec<Run> = targets
        .iter()
        .map(|target| Run::new(target, seed, folders))
        .collect::<Result<_>>()?;
    let mut processor_time = ProcessorTime::default();
    // Processes that end before every target had a turn begin with others.
    let first = (seed % runs.len() as u64) as usize;
    loop {
        for turn in 0..runs.len() {
            let turn = (first + turn) % runs.len();
            let end_of_turn = end.min(Instant::now() + TURN);
            runs[turn].go_on(end_of_turn)?;
            let counts = Counts {
                processes: 1,
                died: 0,
                processor_seconds: processor_time.used().as_secs_f64(),
                targets: runs.iter().map(Run::count).collect(),
            };
            counts.write(&folders.found)?;
            if Instant::now() >= end {
                return Ok(counts);
            }
        }
    }
}

/// A target, and its results.
struct Run {
    fuzzer: Fuzzer,
    folder: PathBuf,
    /// Folder for inputs with answers of new kinds.
    corpus: Option<PathBuf>,
    /// The last input, for the case that the program ends with it.
    last: PathBuf,
    tried: u64,
    taken: u64,
    time: Duration,
    /// Files with inputs that readers panicked on, by the panic.
    found: HashMap<String, PathBuf>,
}

impl Run {
    fn new(target: &'static Target, seed: u64, folders: &Folders) -> Result<Self> {
        let last = folders.found.join(format!("{}.input", target.name));
        File::create(&last).with_context(|| last.display().to_string())?;
        let mut fuzzer = Fuzzer::new(target, seed);
        let corpus = folders.corpus.as_ref().map(|all| all.join(target.name));
        if let Some(corpus) = &corpus {
            let unreadable = || corpus.display().to_string();
            fs::create_dir_all(corpus).with_context(unreadable)?;
            for entry in fs::read_dir(corpus).with_context(unreadable)? {
                fuzzer.go_on_from(fs::read(entry?.path()).with_context(unreadable)?);
            }
        }
        Ok(Self {
            fuzzer,
            folder: folders.found.clone(),
            corpus,
            last,
            tried: 0,
            taken: 0,
            time: Duration::ZERO,
            found: HashMap::new(),
        })
    }

    fn go_on(&mut self, end: Instant) -> Result<()> {
        let start = Instant::now();
        while Instant::now() < end {
            let input = self.fuzzer.input();
            fs::write(&self.last, &input)?;
            let target = self.fuzzer.target();
            match catch_unwind(AssertUnwindSafe(|| target.try_input(&input))) {
                Ok(answer) => {
                    self.taken += u64::from(answer.is_ok());
                    if let (Some(new), Some(corpus)) =
                        (self.fuzzer.answered(input, &answer), &self.corpus)
                    {
                        fs::write(corpus.join(name_of(new)), new)?;
                    }
                }
                Err(panic) => self.keep(&input, &*panic)?,
            }
            self.tried += 1;
            watch::tried();
        }
        self.time += start.elapsed();
        Ok(())
    }

    /// Keeps an input that a reader panicked on, one for each panic.
    fn keep(&mut self, input: &[u8], panic: &(dyn std::any::Any + Send)) -> Result<()> {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let kind: String = text.unwrap_or_default();
        let kind: String = kind.chars().filter(char::is_ascii_alphabetic).collect();
        if self.found.contains_key(&kind) {
            return Ok(());
        }
        let name = format!("{}-{}", self.fuzzer.target().name, name_of(input));
        let path = self.folder.join(name);
        fs::write(&path, input)?;
        eprintln!("found {}", path.display());
        self.found.insert(kind, path);
        Ok(())
    }

    fn count(&self) -> Count {
        Count {
            target: self.fuzzer.target().name.to_owned(),
            tried: self.tried,
            taken: self.taken,
            seconds: self.time.as_secs_f64(),
            answers: self.fuzzer.answers(),
            found: self.found.len(),
        }
    }
}

/// A name for the file of an input, the same whenever it is found.
fn name_of(input: &[u8]) -> String {
    let mut hash = DefaultHasher::new();
    input.hash(&mut hash);
    format!("{:016x}", hash.finish())
}
