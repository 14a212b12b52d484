//! The commands, one file each.

mod bench;
mod calibrate;
mod chat;
mod completions;
#[cfg(feature = "coreml")]
mod coreml_helper;
mod devices;
mod explain;
pub(crate) mod generate;
mod inspect;
mod logits;
mod man;
mod perplexity;
mod quantize;
mod report;
mod tokenize;
mod top;
mod train;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// What to do other than to generate text.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk with a model
    Chat(Box<chat::Options>),
    /// Turn text into token ids: a JSON array
    Tokenize(tokenize::Options),
    /// The model's scores of every token after the given ones: JSON
    Logits(logits::Options),
    /// How well a model predicts a text, measured as llama.cpp does
    Perplexity(perplexity::Options),
    /// Measure speed, of a file or of a well-known shape with random weights
    Bench(Box<bench::Options>),
    /// Train a language model on texts, and write it as a GGUF file
    Train(Box<train::Options>),
    /// Write a smaller file of a model
    Quantize(quantize::Options),
    /// What is in a model file: keys, tensors, types, sizes
    Inspect(inspect::Options),
    /// The devices of this machine, what they can do, and what is missing
    Devices(devices::Options),
    /// Measure this machine's devices, so that they are chosen by what they take
    Calibrate(calibrate::Options),
    /// Check that this machine's devices compute correctly, and write a report
    Verify(verify::Options),
    /// Compare backends and types of models, and write a report
    Report(report::Options),
    /// Where each operation of a run would go, and why; takes the options of the run
    Explain(Box<generate::Options>),
    /// Show the load of this machine's devices, and the RusTorch programs that run on them
    Top(top::Options),
    /// Write what a shell needs to complete this program's commands and options
    Completions(completions::Options),
    /// Write the program's manual pages
    Man(man::Options),
    /// What Core ML may end a process at, for this very program
    #[cfg(feature = "coreml")]
    #[command(name = rustorch_coreml::COMMAND, hide = true)]
    CoremlHelper(coreml_helper::Options),
}

/// Does what was asked for, of a program whose whole command line is `program`.
///
/// # Errors
/// It cannot be done.
pub(crate) fn run(command: &Command, program: clap::Command) -> Result<ExitCode> {
    let done = match command {
        Command::Chat(options) => return chat::run(options),
        Command::Train(options) => return train::run(options),
        Command::Quantize(options) => return quantize::run(options),
        Command::Verify(options) => return verify::run(options),
        #[cfg(feature = "coreml")]
        Command::CoremlHelper(options) => return Ok(coreml_helper::run(options)),
        Command::Tokenize(options) => tokenize::run(options),
        Command::Logits(options) => logits::run(options),
        Command::Perplexity(options) => perplexity::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Inspect(options) => inspect::run(options),
        Command::Devices(options) => devices::run(options),
        Command::Report(options) => report::run(options),
        Command::Calibrate(options) => calibrate::run(options),
        Command::Explain(options) => explain::run(options),
        Command::Top(options) => top::run(options),
        Command::Completions(options) => completions::run(options, program),
        Command::Man(options) => man::run(options, program),
    };
    done.map(|()| ExitCode::SUCCESS)
}
