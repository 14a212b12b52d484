//! A command that runs for a model, and its output, up to limits.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes of standard output, and of standard error, that are kept.
const KEPT: usize = 16 * 1024;
/// Interval of checks whether a command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// End of a command.
#[derive(Debug)]
pub(super) enum End {
    Status(ExitStatus),
    Timeout,
    Interrupt,
}

/// A command that has ended, and its output.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: End,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a command with `input`. It has ended when it has, and all that it started have closed its output.
/// After `timeout`, or once `is_ended`, it is killed, with its process group.
///
/// # Errors
/// Fails if the command cannot be started.
pub(super) fn run(
    mut command: Command,
    input: Option<String>,
    timeout: Duration,
    is_ended: &dyn Fn() -> bool,
) -> io::Result<Ended> {
    let stdin = input.as_ref().map_or(Stdio::null(), |_| Stdio::piped());
    command.stdin(stdin);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // The command gets its own process group: Ctrl-C is for this program, which ends the group as a
    // whole.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let start = Instant::now();
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // A command need not read what it is given.
        thread::spawn(move || pipe.write_all(input.as_bytes()));
    }
    let stdout = child.stdout.take().map(Stream::read);
    let stderr = child.stderr.take().map(Stream::read);
    let streams = || [&stdout, &stderr].into_iter().flatten();
    let end = loop {
        if is_ended() {
            break End::Interrupt;
        }
        if start.elapsed() >= timeout {
            break End::Timeout;
        }
        // The status is read last: until then, the process and its group keep their number.
        if streams().all(Stream::is_closed)
            && let Some(status) = child.try_wait()?
        {
            break End::Status(status);
        }
        thread::sleep(LOOK);
    };
    if !matches!(end, End::Status(_)) {
        kill(&mut child)?;
    }
    let text = |stream: Option<Stream>| stream.map(|it| it.text()).unwrap_or_default();
    Ok(Ended {
        end,
        stdout: text(stdout),
        stderr: text(stderr),
    })
}

/// Kills a running command and the processes that it started.
fn kill(child: &mut Child) -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        kill_process_group(Pid::from_child(child), Signal::KILL)?;
    }
    #[cfg(windows)]
    {
        let id = child.id().to_string();
        let mut command = Command::new("taskkill");
        command.args(["/T", "/F", "/PID", &id]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // It fails where the command has ended meanwhile.
        if !command.status().is_ok_and(|status| status.success()) {
            child.kill()?;
        }
    }
    child.wait().map(drop)
}

/// A command's output, while it runs.
struct Stream {
    kept: Arc<Mutex<Kept>>,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Number of all bytes.
    count: usize,
}

impl Stream {
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let ours = kept.clone();
        let reader = thread::spawn(move || {
            let mut buffer = [0; 8192];
            // A pipe that fails has no more to say.
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                let mut kept = ours.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEPT - kept.bytes.len();
                kept.bytes.extend_from_slice(&buffer[..count.min(room)]);
                kept.count += count;
            }
        });
        Self { kept, reader }
    }

    fn is_closed(&self) -> bool {
        self.reader.is_finished()
    }

    /// The output so far, and whether it has ended.
    fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { bytes, count } = &*kept;
        let is_cut = *count > bytes.len();
        // A character that is cut is left out.
        let whole = match std::str::from_utf8(bytes) {
            Err(e) if is_cut && e.error_len().is_none() => e.valid_up_to(),
            _ => bytes.len(),
        };
        let text = String::from_utf8_lossy(&bytes[..whole]);
        match is_cut {
            true => format!("{text}\n[cut: {KEPT} of {count} bytes]"),
            false => text.into_owned(),
        }
    }
}
