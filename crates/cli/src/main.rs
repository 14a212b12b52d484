//! `rustorch-cli`: runs GGUF language models from the command line.
//!
//! ```text
//! args      what was typed: syntax only
//! devices   ┐
//! model     ├ what it means: a runtime, an opened model, options of the libraries
//! settings  ┘
//! commands  one file each, with its own options: does the work by the libraries
//! machine   what it runs on
//! failure   how it ends when it does not end well
//! ```

mod args;
mod bundled;
mod commands;
mod devices;
mod document;
mod failure;
mod logging;
mod machine;
mod model;
mod output;
mod progress;
mod settings;
mod subject;
mod table;
mod variants;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let start = Instant::now();
    failure::install_panic_hook();
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    logging::init(cli.verbose);
    match commands::run(&cli, start) {
        Ok(status) => status,
        Err(error) => failure::report(&error),
    }
}
