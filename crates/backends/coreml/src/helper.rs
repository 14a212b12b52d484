//! A process of its own for what may end a process: Apple's compilers abort on some models, which
//! nobody can catch.
//!
//! The program starts itself, or another one, with arguments that say what to do. What failed comes
//! back as one line of JSON, a crash as the status; whatever becomes of the child, this process goes
//! on.
//!
//! ```text
//! PROGRAM ARGS… compile PACKAGE TO
//! PROGRAM ARGS… load COMPILED UNITS
//! ```

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustorch_runtime::Deadline;
use serde_json::{Value, json};

use crate::api::{Api, ComputeUnits, ModelError};

/// What a program calls itself with: `PROGRAM coreml-helper …`.
pub const COMMAND: &str = "coreml-helper";

/// How often a child is looked after.
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
            .stderr(Stdio::null());
        let failed = |e: io::Error| {
            let program = self.program.display();
            ModelError::new(0, format!("{program} cannot be started: {e}"))
        };
        let mut child = command.spawn().map_err(failed)?;
        let status = wait(&mut child, deadline).map_err(failed)?;
        let mut told = String::new();
        if let Some(mut output) = child.stdout.take() {
            // What is not told is no different from nothing.
            let _ = output.read_to_string(&mut told);
        }
        result(status, &told)
    }
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

/// What a child that has ended says.
fn result(status: ExitStatus, told: &str) -> Result<(), ModelError> {
    if status.success() {
        return Ok(());
    }
    let last = told.lines().next_back().unwrap_or_default();
    let told: Option<ModelError> = serde_json::from_str(last).ok().and_then(|e| read(&e));
    Err(told.unwrap_or_else(|| {
        let message = format!("its process ended on this model ({status})");
        ModelError::new(0, message)
    }))
}

fn read(error: &Value) -> Option<ModelError> {
    Some(ModelError {
        code: error["code"].as_i64()? as isize,
        message: error["message"].as_str()?.to_owned(),
        is_out_of_memory: error["is_out_of_memory"].as_bool()?,
    })
}

/// Does what a [`Helper`] was asked for: the status to end with. `args` are those behind the
/// helper's own.
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
    // Without a reader nobody has to be told.
    let _ = writeln!(io::stdout(), "{error}");
    ExitCode::FAILURE
}
