//! Damages inputs of readers for as long as it is let; `scripts/fuzz.sh` builds and starts it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, abort};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Parser;
use rustorch_fuzz::{Fuzzer, TARGETS, Target};
use rustorch_testing::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Time that a target has before the next one's turn.
const TURN: Duration = Duration::from_secs(5);
/// Time that no input takes.
const HANG: Duration = Duration::from_secs(60);

/// Tries damaged input on everything that reads some
#[derive(Parser)]
struct Options {
    /// Targets [default: all, in turns]
    targets: Vec<String>,

    /// Seconds to go on for
    #[arg(short, long, default_value_t = 60)]
    seconds: u64,

    /// What follows the same way in each run with it [default: the time]
    #[arg(long)]
    seed: Option<u64>,

    /// Tries this file alone
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Where inputs that are found are kept
    #[arg(long, value_name = "FOLDER", default_value = "target/fuzz")]
    found: PathBuf,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let named = |name: &String| match Target::named(name) {
        Some(target) => Ok(target),
        None => {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            bail!("no target {name}; there are {}", names.join(", "))
        }
    };
    let mut targets: Vec<&Target> = options.targets.iter().map(named).collect::<Result<_>>()?;
    if targets.is_empty() {
        targets = TARGETS.iter().collect();
    }
    if let Some(path) = &options.input {
        let input = fs::read(path).with_context(|| path.display().to_string())?;
        for target in targets {
            println!("{}: {:?}", target.name, target.try_input(&input));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = options.seed.unwrap_or(now?.as_nanos() as u64);
    println!("seed {seed}");
    fs::create_dir_all(&options.found).with_context(|| options.found.display().to_string())?;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    watch();
    let mut runs: Vec<Run> = targets
        .iter()
        .map(|target| Run::new(target, seed, &options.found))
        .collect::<Result<_>>()?;
    'all: loop {
        for run in &mut runs {
            let turn = end.min(Instant::now() + TURN);
            run.go_on(turn)?;
            if Instant::now() >= end {
                break 'all;
            }
        }
    }
    for run in &runs {
        println!("{run}");
    }
    let found: usize = runs.iter().map(|run| run.found.len()).sum();
    println!("{found} kinds of panics");
    Ok(match found {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
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
        println!("found {}", path.display());
        self.found.insert(kind, path);
        Ok(())
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:14} {:9} inputs in {:6.0} s, {:8} taken, {:4} kinds of answers, {} of panics",
            self.fuzzer.target().name,
            self.tried,
            self.time.as_secs_f64(),
            self.taken,
            self.fuzzer.answers(),
            self.found.len(),
        )
    }
}
