//! Running the program.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The folder of compiled kernels. The user's folder has a calibration, which would decide the
/// devices of operations.
const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");

/// The program, with nothing on its standard input and no faults from outside.
pub(crate) fn program<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rustorch-cli"));
    command.args(args).stdin(Stdio::null());
    command.env_remove("RUSTORCH_INJECT");
    command.env("RUSTORCH_CACHE_DIR", CACHE);
    command
}

/// Sends the signal of Ctrl-C to a running program.
pub(crate) fn interrupt(child: &Child) {
    let mut kill = Command::new("kill");
    let status = kill.args(["-INT", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Result of a run.
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().expect("an exit status"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
        }
    }
}

pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    program(args).output().expect("the program runs").into()
}

/// A few tokens of a text, always the same.
pub(crate) const STORY: [&str; 8] = [
    "-p",
    "Once upon a time there was a king who",
    "-n",
    "4",
    "--temp",
    "0",
    "--format",
    "json",
];

/// The run of [`STORY`], with further arguments.
pub(crate) fn story(more: &[&str]) -> Value {
    run(STORY.iter().chain(more)).json()
}

/// Does the program find the first device of this type?
///
/// # Errors
/// Fails with the reason that the program gives for its absence.
pub(crate) fn find_device(name: &str) -> Result<(), String> {
    let found = run(["devices", "--format", "json"]).json();
    let first = format!("{name}:0");
    let mut devices = found["devices"].as_array().unwrap().iter();
    if devices.any(|d| d["device"] == first.as_str()) {
        return Ok(());
    }
    let mut missing = found["missing"].as_array().unwrap().iter();
    let why = missing.find(|m| m["device"] == name);
    Err(why.map_or(format!("no {name} device"), |why| why["reason"].to_string()))
}

/// Runs with this on standard input.
pub(crate) fn run_with_input(args: &[&str], input: &[u8]) -> Run {
    let mut command = program(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("the program reads");
    drop(stdin);
    child.wait_with_output().expect("the program ends").into()
}

impl Run {
    /// Standard output of a run that did what it was asked.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, 0, "{}", self.stderr);
        self.stdout
    }

    /// Standard output of such a run as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// The one line on standard error of a run that ended with `status`.
    #[track_caller]
    pub(crate) fn error(self, status: i32) -> String {
        assert_eq!(self.status, status, "{}{}", self.stdout, self.stderr);
        let line = self.stderr.strip_suffix('\n').expect("a line");
        assert!(
            line.starts_with("error: ") && !line.contains('\n'),
            "{line}"
        );
        line.to_owned()
    }
}

/// A file of the folder `models`.
pub(crate) fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../models")
        .join(name)
}

pub(crate) fn model_arg(name: &str) -> String {
    model(name).display().to_string()
}
