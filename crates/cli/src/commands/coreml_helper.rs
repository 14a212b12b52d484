//! `coreml-helper`: compiles and loads models for this program, in a separate process that may
//! crash.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The action, by `rustorch_coreml::Helper`
    args: Vec<OsString>,
}

pub(super) fn run(options: &Options) -> ExitCode {
    rustorch_coreml::help(&options.args)
}
