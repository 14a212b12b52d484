//! Damages inputs of readers for as long as it is let; `scripts/fuzz.sh` builds and starts it.

mod counts;
mod processes;
mod run;
mod watch;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Parser;
use rustorch_fuzz::{TARGETS, Target};
use rustorch_testing::memory::Counting;

use crate::run::Folders;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tries damaged input on everything that reads some
#[derive(Parser)]
struct Options {
    /// Targets [default: all, in turns]
    targets: Vec<String>,

    /// Seconds to go on for
    #[arg(short, long, default_value_t = 60)]
    seconds: u64,

    /// Processes that do so at once, each with its own seed
    #[arg(short, long, default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    processes: u64,

    /// Seed of the run: the same seed repeats a run [default: the time]
    #[arg(long)]
    seed: Option<u64>,

    /// Tries this file alone
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    #[command(flatten)]
    folders: Folders,
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
    let found = &options.folders.found;
    fs::create_dir_all(found).with_context(|| found.display().to_string())?;
    let time = Duration::from_secs(options.seconds);
    let counts = match options.processes {
        1 => run::go_on(&targets, seed, time, &options.folders)?,
        several => processes::go_on(&targets, seed, time, &options.folders, several)?,
    };
    print!("{counts}");
    Ok(match counts.is_clean() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
