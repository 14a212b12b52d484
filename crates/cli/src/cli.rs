//! The command line as a whole.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};

use crate::commands::{Command, generate};
use crate::failure;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli                                      tell a story with the bundled model
  rustorch-cli -p \"Alice was beginning to\" -n 100   continue a text by 100 tokens
  rustorch-cli -m model.gguf -p \"Hello\" --temp 0    use another model, without randomness
  fortune | rustorch-cli -m model.gguf              read the prompt from standard input
  rustorch-cli -p Hello --format json               print one JSON object, for scripts
  rustorch-cli chat -m model.gguf -sys \"Be brief\"    chat with a model
  rustorch-cli serve -m model.gguf                  serve a model on http://127.0.0.1:8080
  rustorch-cli embed -m FOLDER \"A cat\" \"A dog\"     turn texts into vectors
  rustorch-cli -p \"Age: \" --regex \"[1-9][0-9]?\"      generate text that matches a pattern
  rustorch-cli -b cpu -t 4 -p Hello                 run on the CPU, with 4 threads
  rustorch-cli top                                  show the load of the devices
  rustorch-cli devices                              list this machine's devices
  rustorch-cli inspect -c 8192 model.gguf           show how much memory a model needs
  rustorch-cli explain -p Hello                     show which device runs what, and why
  rustorch-cli -p Hello --trace run.pftrace         write a trace for ui.perfetto.dev
  rustorch-cli bench --preset tinyllama-1.1b        measure speed
  rustorch-cli verify                               check that this machine computes correctly
  rustorch-cli report                               compare backends and types of models
  rustorch-cli train --text book.txt --out m.gguf   train a model of your own
  rustorch-cli convert FOLDER model.gguf            convert a model of Hugging Face's transformers
  rustorch-cli quantize big.gguf small.gguf Q4_K_M  make a model smaller
  rustorch-cli run model.onnx -i x.npy -o out       run an ONNX model
  rustorch-cli man                                  print the manual page

Options have llama.cpp's names. `rustorch-cli COMMAND --help` explains a command.
Exit status: 0 success, 1 failure, 2 wrong usage, 130 ended by Ctrl-C.";

/// Runs GGUF language models on the best device of this machine
///
/// Without a command, the program generates text. It streams the prompt and the generated text to standard
/// output; timings and devices go to standard error. Without -m it uses the bundled model.
#[derive(Debug, Parser)]
#[command(name = "rustorch-cli", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) generate: generate::Options,

    /// Print more messages on standard error; repeat for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Write a trace of device and host activity for ui.perfetto.dev: Perfetto's format, or Chrome's JSON if
    /// the name ends in .json
    #[arg(long, global = true, value_name = "FILE", help_heading = "Devices")]
    #[arg(env = "RUSTORCH_TRACE", hide_env_values = true)]
    pub(crate) trace: Option<OsString>,
}

/// Reads the program's arguments.
///
/// # Errors
/// Fails if nothing is left to do. The error is the exit status.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    // A number below 0 is a value, and the error is about it. The last one of an option that is given twice counts.
    let lenient = |command: clap::Command| {
        command
            .allow_negative_numbers(true)
            .args_override_self(true)
    };
    let command = lenient(Cli::command()).mut_subcommands(lenient);
    let words = ShortWords::of(&command);
    let args = args.into_iter().map(|arg| words.long_form(arg));
    command
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|e| failure::report_arguments(&e))
}

/// llama.cpp's names of several letters behind one dash, which to others mean several options. An option's help has its
/// name in parentheses: `(-ngl)`.
#[derive(Debug)]
struct ShortWords(Vec<(String, String)>);

impl ShortWords {
    /// The words of a command's options, and of its subcommands'.
    fn of(command: &clap::Command) -> Self {
        let mut words = Vec::new();
        for command in [command].into_iter().chain(command.get_subcommands()) {
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string);
                if let (Some(word), Some(long)) = (help.as_deref().and_then(word), arg.get_long()) {
                    words.push((word.to_owned(), format!("--{long}")));
                }
            }
        }
        Self(words)
    }

    /// The argument, with its long name in place of such a word.
    fn long_form(&self, arg: OsString) -> OsString {
        let mut words = self.0.iter();
        let found = words.find(|(word, _)| arg == OsStr::new(word));
        found.map_or(arg, |(_, long)| long.into())
    }
}

/// The first word of several letters behind a dash, in parentheses.
fn word(help: &str) -> Option<&str> {
    let mut inside = help
        .split('(')
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    inside.find(|text| {
        let letters = text.strip_prefix('-').unwrap_or_default();
        letters.len() > 1 && letters.bytes().all(|letter| letter.is_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_words_follow_from_the_help() {
        let words = ShortWords::of(&Cli::command());
        let long = |short: &str| words.long_form(short.into()).into_string().unwrap();
        let all = [
            ("-bf", "--binary-file"),
            ("-jf", "--json-schema-file"),
            ("-ub", "--ubatch-size"),
            ("-md", "--model-draft"),
            ("-devd", "--spec-draft-device"),
            ("-ctk", "--cache-type-k"),
            ("-ctv", "--cache-type-v"),
            ("-dev", "--backend"),
            ("-ngl", "--n-gpu-layers"),
            ("-ot", "--override-tensor"),
            ("-cmoe", "--cpu-moe"),
            ("-ncmoe", "--n-cpu-moe"),
            ("-sp", "--special"),
            ("-cnv", "--conversation"),
            ("-st", "--single-turn"),
            ("-sys", "--system-prompt"),
            ("-sysf", "--system-prompt-file"),
            ("-np", "--parallel"),
        ];
        for (short, expected) in all {
            assert_eq!(long(short), expected);
        }
        // A word means the same for all commands.
        for (word, expected) in &words.0 {
            assert_eq!(long(word), *expected);
        }
        for other in ["-p", "-bx", "--special"] {
            assert_eq!(long(other), other);
        }
    }

    #[test]
    fn a_help_has_its_word_in_parentheses() {
        assert_eq!(word("Layers (see `-ngl`), counted (-ngl): x"), Some("-ngl"));
        assert_eq!(word("The end (-h), 10 (MiB)"), None);
    }
}
