//! The status of a running program, published for `top`: a file for each process in the folder
//! `running` of the cache, rewritten twice a second.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustorch_runtime::{DeviceType, Runtime, cache_folder};
use serde::{Deserialize, Serialize};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::machine;

/// Interval of the reports; programs that end sooner report nothing.
const PERIOD: Duration = Duration::from_millis(500);

/// Number of reported fallbacks, the latest.
const FALLBACKS: usize = 8;

/// A process and its activity.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) pid: u32,
    /// The command, and the model if one was named.
    pub(crate) command: String,
    /// Start of its computation, in seconds of Unix time.
    pub(crate) started: u64,
    /// Tokens that went through the model so far.
    pub(crate) tokens: u64,
    /// The same a second, of the last moment.
    pub(crate) tokens_per_second: f64,
    /// The devices that have computed something.
    pub(crate) devices: Vec<Used>,
    /// Number of times that a device failed and the run went on.
    pub(crate) fallback_count: usize,
    /// The latest of that, with the reasons.
    pub(crate) fallbacks: Vec<String>,
}

/// A device that a process uses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) device: String,
    /// Segments of graphs that it ran.
    pub(crate) runs: u64,
    /// Bytes that tensors have of its memory. If that is the host's, all memory of the process: such a device mostly
    /// computes with other memory, such as the pages of a model's file.
    pub(crate) memory_bytes: u64,
}

/// The publisher of this process.
static TELLER: Mutex<Option<Teller>> = Mutex::new(None);

struct Teller {
    /// Dropped to end it.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// The folder of all files; `None` where the system has no place for such.
pub(crate) fn folder() -> Option<PathBuf> {
    cache_folder().map(|cache| cache.join("running"))
}

/// Publishes the activity of `runtime` from now on, if it lasts for a while.
pub(crate) fn publish(runtime: &Runtime) {
    let mut teller = TELLER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(folder) = folder().filter(|_| teller.is_none()) else {
        return;
    };
    let runtime = runtime.clone();
    let (stop, stopped) = mpsc::channel();
    let named = thread::Builder::new().name("rustorch-status".to_owned());
    // Without a thread nothing is told, and nobody misses it.
    let thread = named.spawn(move || tell(&runtime, &folder, &stopped));
    *teller = thread.ok().map(|thread| Teller { stop, thread });
}

/// Ends the reports.
pub(crate) fn end() {
    let mut teller = TELLER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Teller { stop, thread }) = teller.take() {
        drop(stop);
        let _ = thread.join();
    }
}

/// Reports the activity of `runtime` until it is stopped.
fn tell(runtime: &Runtime, folder: &Path, stopped: &Receiver<()>) {
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let started = started.map_or(0, |since| since.as_secs());
    let command = command(&machine::arguments());
    let path = folder.join(format!("{}.json", std::process::id()));
    let (mut last, mut before) = (Instant::now(), 0);
    let mut system = System::new().ok();
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let tokens = rustorch_llm::tokens_processed();
        let seconds = last.elapsed().as_secs_f64();
        last = Instant::now();
        let status = Status {
            pid: std::process::id(),
            command: command.clone(),
            started,
            tokens,
            tokens_per_second: (tokens - before) as f64 / seconds,
            devices: used(runtime, system.as_mut().and_then(resident).unwrap_or(0)),
            fallback_count: runtime.fallbacks().len(),
            fallbacks: latest(runtime),
        };
        before = tokens;
        // A folder that takes no file is no reason to disturb a run.
        if write(folder, &path, &status).is_err() {
            return;
        }
    }
    // A killed program leaves its file. Readers remove such files.
    let _ = fs::remove_file(path);
}

fn used(runtime: &Runtime, resident: u64) -> Vec<Used> {
    let pools = runtime.memory().pools();
    let shares = |device: DeviceType| {
        let mut infos = runtime.devices().filter(|info| info.device == device);
        infos.any(|info| info.shares_host_memory)
    };
    let used = runtime.used_devices().into_iter();
    used.map(|(device, runs)| Used {
        device: device.to_string(),
        runs,
        memory_bytes: match pools.iter().find(|pool| pool.device == device) {
            _ if shares(device) => resident,
            Some(pool) => pool.in_use,
            None => 0,
        },
    })
    .collect()
}

/// Bytes that this process has in memory, if the system reports them.
fn resident(system: &mut System) -> Option<u64> {
    let pid = Pid::from_u32(std::process::id());
    let what = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
    system.process(pid).map(sysinfo::Process::memory)
}

fn latest(runtime: &Runtime) -> Vec<String> {
    let all = runtime.fallbacks();
    let first = all.len().saturating_sub(FALLBACKS);
    all[first..].iter().map(ToString::to_string).collect()
}

/// The command that the arguments name, and the model, if they name one.
fn command(args: &[String]) -> String {
    let first = args.first().filter(|first| !first.starts_with('-'));
    let command = first.map_or("generate", String::as_str);
    let mut pairs = args.windows(2);
    let model = pairs.find(|pair| ["-m", "--model", "--preset"].contains(&pair[0].as_str()));
    match model {
        Some(pair) => {
            let name = Path::new(&pair[1]).file_name();
            let name = name.unwrap_or_default().to_string_lossy();
            format!("{command} {name}")
        }
        None => command.to_owned(),
    }
}

/// Writes the file so that no reader sees half of it.
fn write(folder: &Path, path: &Path, status: &Status) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(status)?)?;
    fs::rename(new, path)
}

/// The status of processes that are `alive`; files of others are removed.
pub(crate) fn read(folder: &Path, mut alive: impl FnMut(u32) -> bool) -> Vec<Status> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let pid = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        match pid {
            Some(pid) if !alive(pid) => {
                let _ = fs::remove_file(&path);
            }
            Some(_) if path.extension().is_some_and(|ending| ending == "json") => {
                // A process may end meanwhile.
                let read = fs::read(&path).ok();
                all.extend(read.and_then(|bytes| serde_json::from_slice::<Status>(&bytes).ok()));
            }
            _ => {}
        }
    }
    all.sort_by_key(|status| (status.started, status.pid));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_without_their_texts() {
        let told =
            |args: &[&str]| command(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        assert_eq!(
            told(&["-m", "a/b.gguf", "-p", "a secret"]),
            "generate b.gguf"
        );
        assert_eq!(
            told(&["bench", "--preset", "tinyllama-1.1b"]),
            "bench tinyllama-1.1b"
        );
        assert_eq!(told(&[]), "generate");
    }

    #[test]
    fn only_those_alive_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let status = |pid| Status {
            pid,
            command: "generate".to_owned(),
            started: 7,
            tokens: 3,
            tokens_per_second: 1.5,
            devices: Vec::new(),
            fallback_count: 0,
            fallbacks: Vec::new(),
        };
        for pid in [12, 11, 13] {
            let path = folder.path().join(format!("{pid}.json"));
            write(folder.path(), &path, &status(pid)).unwrap();
        }
        fs::write(folder.path().join("14.json"), "{").unwrap();
        let alive = |pid| pid != 13;
        assert_eq!(read(folder.path(), alive), [status(11), status(12)]);
        assert!(!folder.path().join("13.json").exists());
        assert!(read(&folder.path().join("none"), alive).is_empty());
    }
}
