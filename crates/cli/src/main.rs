//! `rustorch-cli`: runs GGUF language models from the command line.
//!
//! Each part uses the parts below it:
//!
//! ```text
//! cli       the command line as a whole
//! commands  one file each, with its own options: does the work by the libraries
//! changes   ┐
//! devices   │
//! model     ├ what it means: a runtime, an opened model, options of the libraries
//! sampling  │
//! settings  ┘
//! args      options that commands have in common: syntax only
//! machine   what it runs on
//! failure   how it ends when it does not end well
//! ```

mod args;
mod bundled;
mod changes;
mod cli;
mod commands;
mod devices;
mod document;
mod escape;
mod failure;
mod logging;
mod machine;
mod model;
mod output;
mod progress;
mod resume;
mod sampling;
mod settings;
mod speculation;
mod status;
mod subject;
mod table;
mod text;
mod variants;

use std::process::ExitCode;
use std::time::Instant;

use clap::CommandFactory;
use rustorch_runtime::Deadline;

use crate::cli::Cli;
use crate::failure::Usage;

fn main() -> ExitCode {
    let start = Instant::now();
    failure::install_panic_hook();
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    logging::init(cli.verbose);
    // An empty variable has no effect.
    if let Some(path) = cli.trace.as_deref().filter(|path| !path.is_empty()) {
        rustorch_profile::set_trace_path(path);
    }
    let status = match run(&cli, start) {
        Ok(status) => status,
        Err(error) => failure::report(&error),
    };
    rustorch_profile::finish_trace();
    status::end();
    status
}

fn run(cli: &Cli, start: Instant) -> anyhow::Result<ExitCode> {
    // Devices would take the default, with a line in the log.
    Deadline::of_environment().map_err(|error| Usage(error.to_string()))?;
    match &cli.command {
        Some(command) => commands::run(command, Cli::command()),
        None => commands::generate::run(&cli.generate, start),
    }
}
