//! One process: targets in turns.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{self, abort};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustorch_fuzz::{Fuzzer, Target};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::counts::{Count, Counts};

/// Time that a target has before the next one's turn.
const TURN: Duration = Duration::from_secs(5);
/// Time that no input takes.
const HANG: Duration = Duration::from_secs(60);

/// Tries damaged input on targets, which have turns, for so long.
pub(crate) fn go_on(
    targets: &[&'static Target],
    seed: u64,
    time: Duration,
    folder: &Path,
) -> Result<Counts> {
    let end = Instant::now() + time;
    watch();
    let mut runs: Vec<Run> = targets
        .iter()
        .map(|target| Run::new(target, seed, folder))
        .collect::<Result<_>>()?;
    // Where the system does not tell, that is 0.
    let mut system = System::new().ok();
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
                processor_seconds: system.as_mut().map_or(0.0, processor_seconds),
                targets: runs.iter().map(Run::count).collect(),
            };
            counts.write(folder)?;
            if Instant::now() >= end {
                return Ok(counts);
            }
        }
    }
}

/// What this process used of processors, in seconds.
fn processor_seconds(system: &mut System) -> f64 {
    let pid = Pid::from_u32(process::id());
    let what = ProcessRefreshKind::nothing().with_cpu();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
    let used = system
        .process(pid)
        .map(sysinfo::Process::accumulated_cpu_time);
    used.unwrap_or(0) as f64 / 1e3
}

/// Inputs that were tried, of all targets.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Ends the program if an input takes too long.
fn watch() {
    thread::spawn(|| {
        let mut before = u64::MAX;
        loop {
            let tried = TRIED.load(Ordering::Relaxed);
            if tried == before {
                eprintln!(
                    "an input takes longer than {HANG:?}: it is the file that ends in .input"
                );
                abort();
            }
            before = tried;
            thread::sleep(HANG);
        }
    });
}

/// A target, and what came of it.
struct Run {
    fuzzer: Fuzzer,
    folder: PathBuf,
    /// The last input, for the case that the program ends with it.
    last: PathBuf,
    tried: u64,
    taken: u64,
    time: Duration,
    /// Files with inputs that readers panicked on, by the panic.
    found: HashMap<String, PathBuf>,
}

impl Run {
    fn new(target: &'static Target, seed: u64, folder: &Path) -> Result<Self> {
        let last = folder.join(format!("{}.input", target.name));
        File::create(&last).with_context(|| last.display().to_string())?;
        Ok(Self {
            fuzzer: Fuzzer::new(target, seed),
            folder: folder.to_owned(),
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
                    self.fuzzer.answered(input, &answer);
                }
                Err(panic) => self.keep(&input, &*panic)?,
            }
            self.tried += 1;
            TRIED.fetch_add(1, Ordering::Relaxed);
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
        let mut hash = DefaultHasher::new();
        input.hash(&mut hash);
        let name = format!("{}-{:016x}", self.fuzzer.target().name, hash.finish());
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
