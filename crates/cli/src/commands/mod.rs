//! The commands, one file each.

mod bench;
mod calibrate;
mod chat;
mod completions;
mod convert;
#[cfg(feature = "coreml")]
mod coreml_helper;
mod devices;
mod embed;
mod explain;
pub(crate) mod generate;
mod inspect;
mod launch;
mod logits;
mod man;
mod perplexity;
mod quantize;
mod ranks;
mod report;
mod rerank;
mod run;
mod serve;
mod tokenize;
mod top;
mod train;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// The commands besides generating text.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Chat with a model
    Chat(Box<chat::Options>),
    /// Serve models over HTTP, for programs of OpenAI's, Anthropic's, ollama's and llama-server's interfaces
    Serve(Box<serve::Options>),
    /// Answer the requests of a file, which has the lines of OpenAI's batches
    RunBatch(Box<serve::run_batch::Options>),
    /// Embed texts: print a vector for each, or their similarity
    Embed(Box<embed::Options>),
    /// Score documents for a query by a reranker
    Rerank(Box<rerank::Options>),
    /// Tokenize a text: print its token ids as a JSON array
    Tokenize(tokenize::Options),
    /// Print the logits after each given token, as JSON
    Logits(logits::Options),
    /// Measure the perplexity of a model on a text, as llama.cpp does
    Perplexity(perplexity::Options),
    /// Benchmark a model file, or a model shape with random weights
    Bench(Box<bench::Options>),
    /// Measure the speed of several texts at once, as llama-batched-bench does
    BatchedBench(Box<bench::batched::Options>),
    /// Train a language model on texts and write it as a GGUF file
    Train(Box<train::Options>),
    /// Run an ONNX model on tensors of .npy files
    Run(run::Options),
    /// Start a program as several ranks, with torchrun's variables
    Launch(launch::Options),
    /// Convert a folder of Hugging Face's transformers to a GGUF file
    Convert(convert::Options),
    /// Quantize a model to a smaller file
    Quantize(quantize::Options),
    /// Show a model file: metadata, tensors, types, sizes, memory it needs
    Inspect(inspect::Options),
    /// List the devices of this machine, their operations, and how to enable missing devices
    Devices(devices::Options),
    /// Measure the speed of this machine's devices; later runs choose devices by it
    Calibrate(calibrate::Options),
    /// Check that this machine's devices compute correctly, and write a report
    Verify(verify::Options),
    /// Compare the speed and memory of backends and model types, and write a report
    Report(report::Options),
    /// Show the device of each operation of a run, and why; takes the run's options
    Explain(Box<generate::Options>),
    /// Show the load of this machine's devices and the RusTorch programs that use them
    Top(top::Options),
    /// Write a shell completion script
    Completions(completions::Options),
    /// Write the program's manual pages
    Man(man::Options),
    /// Run Core ML's compiler in a separate process, for this program only
    #[cfg(feature = "coreml")]
    #[command(name = rustorch_coreml::COMMAND, hide = true)]
    CoremlHelper(coreml_helper::Options),
}

/// Runs a command of a program whose whole command line is `program`.
///
/// # Errors
/// Fails if the command fails.
pub(crate) fn run(command: &Command, program: clap::Command) -> Result<ExitCode> {
    let done = match command {
        Command::Chat(options) => return chat::run(options),
        Command::Serve(options) => return serve::run(options),
        Command::RunBatch(options) => return serve::run_batch::run(options),
        Command::Train(options) => return train::run(options),
        Command::Launch(options) => return launch::run(options),
        Command::Convert(options) => return convert::run(options),
        Command::Quantize(options) => return quantize::run(options),
        Command::Verify(options) => return verify::run(options),
        #[cfg(feature = "coreml")]
        Command::CoremlHelper(options) => return Ok(coreml_helper::run(options)),
        Command::Embed(options) => embed::run(options),
        Command::Rerank(options) => rerank::run(options),
        Command::Tokenize(options) => tokenize::run(options),
        Command::Logits(options) => logits::run(options),
        Command::Perplexity(options) => perplexity::run(options),
        Command::Bench(options) => bench::run(options),
        Command::BatchedBench(options) => bench::batched::run(options),
        Command::Inspect(options) => inspect::run(options),
        Command::Devices(options) => devices::run(options),
        Command::Report(options) => report::run(options),
        Command::Run(options) => run::run(options),
        Command::Calibrate(options) => calibrate::run(options),
        Command::Explain(options) => explain::run(options),
        Command::Top(options) => top::run(options),
        Command::Completions(options) => completions::run(options, program),
        Command::Man(options) => man::run(options, program),
    };
    done.map(|()| ExitCode::SUCCESS)
}
