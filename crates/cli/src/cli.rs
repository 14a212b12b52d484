//! The command line: what was typed, as a whole.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};

use crate::commands::{Command, generate};
use crate::failure;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli                                      a story, told by the bundled model
  rustorch-cli -p \"Alice was beginning to\" -n 100   its next 100 tokens
  rustorch-cli -m model.gguf -p \"Hello\" --temp 0    another model, always its likeliest token
  fortune | rustorch-cli -m model.gguf              a prompt from standard input
  rustorch-cli -p Hello --format json               one JSON object, for scripts
  rustorch-cli chat -m model.gguf -sys \"Be brief\"    a conversation
  rustorch-cli -p \"Age: \" --regex \"[1-9][0-9]?\"      a text in a given form
  rustorch-cli -b cpu -t 4 -p Hello                 on the CPU, with 4 threads
  rustorch-cli top                                  how busy it is, and with what
  rustorch-cli devices                              what this machine can compute with
  rustorch-cli explain -p Hello                     what would run where, and why
  rustorch-cli -p Hello --trace run.pftrace         what ran when: for ui.perfetto.dev
  rustorch-cli bench --preset tinyllama-1.1b        how fast it is
  rustorch-cli verify                               does this machine compute right?
  rustorch-cli report                               its backends and the types of models, compared
  rustorch-cli train --text book.txt --out m.gguf   a model of your own
  rustorch-cli quantize big.gguf small.gguf Q4_K_M  a smaller file of a model
  rustorch-cli man                                  this, as a manual page

Options have llama.cpp's names. `rustorch-cli COMMAND --help` tells more of each command.
Exit status: 0 done, 1 failed, 2 bad usage, 130 ended by Ctrl-C.";

/// Runs GGUF language models on the best device of this machine
///
/// Without a command it generates text: the prompt and what the model makes of it go to standard
/// output as they come, timings and devices to standard error. Without -m it uses the model that is
/// part of the program.
#[derive(Debug, Parser)]
#[command(name = "rustorch-cli", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) generate: generate::Options,

    /// Say more on standard error; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Write a trace of what devices and the host do, and when, for ui.perfetto.dev: Perfetto's
    /// protobuf, or Chrome's JSON where the name ends in .json
    #[arg(long, global = true, value_name = "FILE", help_heading = "Devices")]
    #[arg(env = "RUSTORCH_TRACE", hide_env_values = true)]
    pub(crate) trace: Option<OsString>,
}

/// Reads the program's arguments.
///
/// # Errors
/// There is nothing to be done: the status to end with.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    // A number below 0 is a value, and the error is about it. The last one of an option that is given twice counts.
    let lenient = |command: clap::Command| {
        command
            .allow_negative_numbers(true)
            .args_override_self(true)
    };
    let command = lenient(Cli::command()).mut_subcommands(lenient);
    command
        .try_get_matches_from(args.into_iter().map(long_form))
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|e| failure::report_arguments(&e))
}

/// llama.cpp's names of several letters behind one dash, which to others mean several options.
const SHORT_WORDS: [(&str, &str); 14] = [
    ("-bf", "--binary-file"),
    ("-jf", "--json-schema-file"),
    ("-ub", "--ubatch-size"),
    ("-md", "--model-draft"),
    ("-devd", "--device-draft"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-dev", "--device"),
    ("-ngl", "--n-gpu-layers"),
    ("-sp", "--special"),
    ("-cnv", "--conversation"),
    ("-st", "--single-turn"),
    ("-sys", "--system-prompt"),
    ("-sysf", "--system-prompt-file"),
];

fn long_form(arg: OsString) -> OsString {
    let long = SHORT_WORDS
        .iter()
        .find(|(short, _)| arg == OsStr::new(short));
    long.map_or(arg, |(_, long)| long.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_words_are_options_of_the_program() {
        for (short, long) in SHORT_WORDS {
            assert_eq!(long_form(short.into()), long);
            let command = Cli::command();
            let known = command.get_arguments().any(|arg| {
                let names = arg.get_long_and_visible_aliases().unwrap_or_default();
                names.contains(&&long[2..])
            });
            assert!(known, "{long}");
        }
        assert_eq!(long_form("-p".into()), "-p");
    }
}
