//! A separate process for calls that may end a process: Apple's compilers abort on some models,
//! which cannot be caught.
//!
//! The program starts itself, or another one, with arguments that say what to do. A failure comes
//! back as one line of JSON, a crash as the status. Whatever happens to the child, this process goes
//! on.
//!
//! ```text
//! PROGRAM ARGS… compile PACKAGE TO
//! PROGRAM ARGS… load COMPILED UNITS
//! ```

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustorch_runtime::Deadline;
use serde_json::{Value, json};

use crate::api::{Api, ComputeUnits, ModelError};

/// Argument with which a program calls itself: `PROGRAM coreml-helper …`.
pub const COMMAND: &str = "coreml-helper";

/// Interval of checks on a child.
const PAUSE: Duration = Duration::from_millis(5);

/// A program that compiles and loads models for others, by [`help_with`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Helper {
    program: PathBuf,
    args: Vec<OsString>,
}

impl Helper {
    /// A program, with the arguments that come before those of [`help_with`].
    pub fn new(program: impl Into<PathBuf>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().collect(),
        }
    }

    /// This program, which takes [`COMMAND`]; `None` if it does not know where it is.
    pub fn this_program() -> Option<Self> {
        let program = std::env::current_exe().ok()?;
        Some(Self::new(program, [COMMAND.into()]))
    }

    pub(crate) fn compile(
        &self,
        package: &Path,
        to: &Path,
        deadline: Deadline,
    ) -> Result<(), ModelError> {
        self.run(
            ["compile".as_ref(), package.as_ref(), to.as_ref()],
            deadline,
        )
    }

    pub(crate) fn load(
        &self,
        compiled: &Path,
        units: ComputeUnits,
        deadline: Deadline,
    ) -> Result<(), ModelError> {
        let units = units.to_string();
        self.run(
            ["load".as_ref(), compiled.as_ref(), units.as_ref()],
            deadline,
        )
    }

    fn run(&self, args: [&std::ffi::OsStr; 3], deadline: Deadline) -> Result<(), ModelError> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).args(args);
        // The child ends when its standard input does: with this process.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let failed = |e: io::Error| {
            let program = self.program.display();
            ModelError::new(0, format!("{program} cannot be started: {e}"))
        };
        let mut child = command.spawn().map_err(failed)?;
        let answer = last_line(child.stdout.take(), answer).map_err(failed)?;
        let said = last_line(child.stderr.take(), said).map_err(failed)?;
        let status = wait(&mut child, deadline).map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        let answer = answer.join().ok().flatten();
        Err(answer.unwrap_or_else(|| {
            let said = said.join().ok().flatten();
            let said = said.map_or_else(String::new, |said| format!(": {said}"));
            ModelError::new(
                0,
                format!("its process ended on this model ({status}){said}"),
            )
        }))
    }
}

/// The last non-empty line of a child's output.
fn last_line<T: Send + 'static>(
    output: Option<impl Read + Send + 'static>,
    something: fn(&[u8]) -> Option<T>,
) -> io::Result<JoinHandle<Option<T>>> {
    thread::Builder::new().spawn(move || {
        let lines = BufReader::new(output?).split(b'\n').map_while(Result::ok);
        lines.filter_map(|line| something(&line)).last()
    })
}

/// Error that a child reports, among the output of Apple's compiler before it and behind it.
fn answer(line: &[u8]) -> Option<ModelError> {
    let error: Value = serde_json::from_slice(line).ok()?;
    Some(ModelError {
        code: error["code"].as_i64()? as isize,
        message: error["message"].as_str()?.to_owned(),
        is_out_of_memory: error["is_out_of_memory"].as_bool()?,
    })
}

/// A line with a text.
fn said(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line.trim_ascii());
    (!text.is_empty()).then(|| text.into_owned())
}

/// Waits for a child, which is ended at the deadline.
fn wait(child: &mut Child, deadline: Deadline) -> io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if deadline
            .limit()
            .is_some_and(|limit| start.elapsed() > limit)
        {
            child.kill()?;
            return child.wait();
        }
        thread::sleep(PAUSE);
    }
}

/// Does a [`Helper`]'s work, and returns the exit status.
pub fn help_with<A: Api>(api: &A, args: &[OsString]) -> ExitCode {
    thread::spawn(|| {
        // Whoever asked has ended when there is no more to read.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    });
    let done = match args {
        [what, package, to] if what == "compile" => api.compile(package.as_ref(), to.as_ref()),
        [what, compiled, units] if what == "load" => (units.to_string_lossy().parse())
            .map_err(|e| ModelError::new(0, e))
            .and_then(|units| api.load(compiled.as_ref(), units).map(drop)),
        _ => Err(ModelError::new(
            0,
            "expected compile PACKAGE TO, or load COMPILED UNITS",
        )),
    };
    let Err(e) = done else {
        return ExitCode::SUCCESS;
    };
    let error = json!({
        "code": e.code as i64,
        "message": e.message,
        "is_out_of_memory": e.is_out_of_memory,
    });
    // On a line of its own, whatever was written before. Without a reader nobody has to be told.
    let _ = writeln!(io::stdout(), "\n{error}");
    ExitCode::FAILURE
}
