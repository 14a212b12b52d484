//! Failures of the program: one line, and an exit status.

use std::error::Error;
use std::fmt;
use std::io;
use std::panic;
use std::process::{self, ExitCode};

use crate::output::failure;

/// Bad usage.
const USAGE: u8 = 2;

/// Ended by Ctrl-C: 128 and the signal's number, as shells report it.
pub(crate) const INTERRUPTED: u8 = 130;

/// A command line that is well-formed and makes no sense.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (--help explains the options)", self.0)
    }
}

impl Error for Usage {}

/// Prints the error, and returns the program's exit status.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let is_broken_pipe = |cause: &(dyn Error + 'static)| {
        let io: Option<&io::Error> = cause.downcast_ref();
        io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    // Whoever read the output has enough.
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    // All other failures of the system say where they happened.
    let is_bare = error.chain().next().is_some_and(|e| e.is::<io::Error>());
    let place = if is_bare {
        "cannot write the output: "
    } else {
        ""
    };
    failure(format_args!("error: {place}{}", told(error)));
    match error.downcast_ref() {
        Some(Usage(_)) => ExitCode::from(USAGE),
        None => ExitCode::FAILURE,
    }
}

/// The error, on one line.
pub(crate) fn told(error: &anyhow::Error) -> String {
    one_line(&format!("{error:#}"))
}

/// Prints the error in the arguments, or the help or version that was asked for.
pub(crate) fn report_arguments(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(&error.into()),
        };
    }
    let text = error.to_string();
    // Behind the first paragraph come tips, and the usage that the help explains better.
    let told = (text.split("\n\n").map(one_line))
        .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    let told: Vec<String> = told.collect();
    failure(format_args!(
        "{} (--help explains the options)",
        told.join("; ")
    ));
    ExitCode::from(USAGE)
}

/// A panic is a bug; it still ends with one line and status 1.
pub(crate) fn install_panic_hook() {
    panic::set_hook(Box::new(|info| {
        let message = one_line(info.payload_as_str().unwrap_or("no message"));
        let place = info
            .location()
            .map(|at| format!(" at {at}"))
            .unwrap_or_default();
        failure(format_args!(
            "error: a bug in rustorch-cli: {message}{place}; please report it, with the command \
             that led to it"
        ));
        process::exit(1);
    }));
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
