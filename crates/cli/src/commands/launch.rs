//! `launch`: a program as several ranks.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::failure::INTERRUPTED;
use crate::output::note;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli launch --gpus 2 -- python train.py
  rustorch-cli launch -n 4 -- ./program --option

Each rank has torchrun's variables: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT. Its lines begin with its \
number. If a rank fails, the others are stopped, and launch exits with its status.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", required_unless_present = "gpus")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    ranks: Option<u16>,

    /// Number of GPUs: one rank for each
    #[arg(long, value_name = "N", conflicts_with = "ranks")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    gpus: Option<u16>,

    /// Port where ranks meet [default: a free one]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,

    /// Is rank 0's output that of this program?
    #[arg(skip)]
    is_own: bool,
}

/// The time between a request to end and the end by force.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time between two looks at the ranks.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let port = options.port.map_or_else(free_port, Ok)?;
    let signalled = signals()?;
    let mut ranks = Ranks::start(options, port)?;
    let mut first = None;
    while ranks.are_running()? {
        if first.is_none() {
            first = ranks.failure();
            if first.is_some() {
                ranks.end();
            }
        }
        if signalled.swap(false, Ordering::Relaxed) {
            ranks.end();
        }
        ranks.kill_those_late();
        thread::sleep(PAUSE);
    }
    let first = first.or_else(|| ranks.failure());
    ranks.finish(&signalled);
    Ok(first.map_or(ExitCode::SUCCESS, |(rank, status)| {
        let code = code(status);
        // Ranks of this program have said so when they were interrupted.
        if !options.is_own || code != INTERRUPTED {
            note(format_args!(
                "error: rank {rank} ended with {}",
                describe(status)
            ));
        }
        ExitCode::from(code)
    }))
}

/// Runs this command again, as several ranks. Rank 0 writes as this program does.
pub(super) fn again(ranks: u16) -> Result<ExitCode> {
    let mut program = vec![
        env::current_exe()
            .context("this program's file is gone")?
            .into(),
    ];
    program.extend(env::args_os().skip(1));
    run(&Options {
        ranks: Some(ranks),
        gpus: None,
        port: None,
        program,
        is_own: true,
    })
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// A flag that is set when this program is asked to end.
fn signals() -> Result<Arc<AtomicBool>> {
    let signalled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&signalled);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("signals cannot be handled")?;
    Ok(signalled)
}

/// The processes, and the threads that copy their output.
struct Ranks {
    processes: Vec<Process>,
    threads: Vec<JoinHandle<()>>,
    /// Time at which processes that still run are ended by force.
    patience: Option<Instant>,
}

struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

impl Ranks {
    fn start(options: &Options, port: u16) -> Result<Self> {
        let size = options.ranks.or(options.gpus).unwrap_or(1);
        let mut ranks = Self {
            processes: Vec::new(),
            threads: Vec::new(),
            patience: None,
        };
        for rank in 0..size {
            let mut command = command(options, rank, size, port);
            let child = command
                .spawn()
                .with_context(|| format!("cannot start {}", options.program[0].display()));
            match child {
                Ok(mut child) => {
                    let prefix = match (options.is_own, rank) {
                        (true, 0) => String::new(),
                        _ => format!("[{rank}] "),
                    };
                    let (out, errors) = (child.stdout.take(), child.stderr.take());
                    let threads = &mut ranks.threads;
                    threads.extend(out.map(|s| copy(prefix.clone(), s, io::stdout)));
                    threads.extend(errors.map(|s| copy(prefix, s, io::stderr)));
                    ranks.processes.push(Process {
                        child,
                        status: None,
                    });
                }
                Err(error) => {
                    ranks.kill();
                    return Err(error);
                }
            }
        }
        Ok(ranks)
    }

    /// The processes whose end was not seen yet.
    fn running(&mut self) -> impl Iterator<Item = &mut Process> {
        let processes = self.processes.iter_mut();
        processes.filter(|process| process.status.is_none())
    }

    fn are_running(&mut self) -> Result<bool> {
        for process in self.running() {
            process.status = process.child.try_wait().context("cannot wait for a rank")?;
        }
        Ok(self.running().next().is_some())
    }

    /// A rank that failed, with its status. A rank that a signal ended comes first: others end because it is missing.
    fn failure(&self) -> Option<(usize, ExitStatus)> {
        let statuses = self.processes.iter().map(|process| process.status);
        statuses
            .enumerate()
            .filter_map(|(rank, status)| Some((rank, status.filter(|s| !s.success())?)))
            .min_by_key(|(_, status)| status.code().is_some())
    }

    /// Asks all ranks to end.
    fn end(&mut self) {
        for process in self.running() {
            terminate(&mut process.child);
        }
        // A second request does not put the end by force off.
        self.patience.get_or_insert(Instant::now() + PATIENCE);
    }

    fn kill_those_late(&mut self) {
        if self
            .patience
            .is_some_and(|patience| Instant::now() >= patience)
        {
            self.kill();
        }
    }

    fn kill(&mut self) {
        for process in self.running() {
            // A process that ended meanwhile is seen by the next look.
            let _ = process.child.kill();
        }
    }

    /// Waits until all output is copied. Processes that ranks started may hold it open: after a request to end they
    /// are waited for a while only.
    fn finish(self, signalled: &AtomicBool) {
        let until = || Instant::now() + PATIENCE;
        let mut patience = self.patience.map(|_| until());
        let is_late = |patience: Option<Instant>| patience.is_some_and(|p| Instant::now() >= p);
        while self.threads.iter().any(|thread| !thread.is_finished()) && !is_late(patience) {
            if signalled.swap(false, Ordering::Relaxed) {
                patience.get_or_insert_with(until);
            }
            thread::sleep(PAUSE);
        }
    }
}

fn command(options: &Options, rank: u16, size: u16, port: u16) -> Command {
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]);
    let numbers = [
        ("RANK", rank),
        ("LOCAL_RANK", rank),
        ("GROUP_RANK", 0),
        ("WORLD_SIZE", size),
        ("LOCAL_WORLD_SIZE", size),
        ("GROUP_WORLD_SIZE", 1),
        ("MASTER_PORT", port),
    ];
    command.envs(numbers.map(|(name, number)| (name, number.to_string())));
    command.env("MASTER_ADDR", "127.0.0.1");
    if rank > 0 {
        command.stdin(Stdio::null());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Copies lines, with a prefix before each.
fn copy<W: Write>(
    prefix: String,
    from: impl Read + Send + 'static,
    to: impl Fn() -> W + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            let whole = [prefix.as_bytes(), &line].concat();
            let mut to = to();
            // If nobody reads it, the ranks go on.
            let _ = to.write_all(&whole).and_then(|()| to.flush());
            line.clear();
        }
    })
}

#[cfg(unix)]
fn terminate(child: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process};
    // A process that ended meanwhile needs no signal.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

#[cfg(not(unix))]
fn terminate(child: &mut Child) {
    let _ = child.kill();
}

/// The status for a shell: that of the process, or 128 and the number of the signal that ended it.
fn code(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(128 + signal(status)?));
    number
        .and_then(|number| u8::try_from(number).ok())
        .unwrap_or(1)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), signal(status)) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}
