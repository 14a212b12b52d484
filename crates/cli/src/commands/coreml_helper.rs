//! `coreml-helper`: compiles and loads models for this very program, in a process that may end.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What to do, as `rustorch_coreml::Helper` says it
    args: Vec<OsString>,
}

pub(super) fn run(options: &Options) -> ExitCode {
    rustorch_coreml::help(&options.args)
}
