//! `quantize`: a smaller file of a model.

use std::fs;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use clap::Args;
use rustorch_llm::LlmError;
use rustorch_llm::quantize::{FileType, Progress, QuantizeOptions, quantize};

use super::generate::interrupts;
use crate::failure::{INTERRUPTED, Usage};
use crate::model::Source;
use crate::output::{bytes, note};
use crate::progress;

const METHOD: &str = "The output is byte for byte the file that llama.cpp's llama-quantize writes.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    /// Input model, preferably in F16, BF16 or F32
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// Output file
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Output type: Q4_K_M, Q5_K_M, Q6_K, Q8_0, F16, …
    #[arg(value_name = "TYPE")]
    file_type: FileType,

    /// Allow quantized inputs; their errors add to the new ones
    #[arg(long)]
    allow_requantize: bool,

    /// Number of threads [default: all]
    #[arg(short, long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let place = |path| fs::canonicalize(path).ok();
    if let Some(input) = place(&options.input)
        && place(&options.output).is_some_and(|output| output == input)
    {
        let problem = "IN and OUT are the same file; give another OUT";
        return Err(Usage(problem.to_owned()).into());
    }
    let interrupted = interrupts()?;
    let source = Source::new(Some(options.input.clone()));
    let input = source.open()?;
    let settings = QuantizeOptions {
        allow_requantize: options.allow_requantize,
        threads: options.threads,
    };
    let bar = progress::steps("quantising", input.tensors().len());
    let mut show = |progress: Progress| {
        bar.set_position(progress.index as u64);
        match interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let result = quantize(
        &input,
        &options.output,
        options.file_type,
        &settings,
        &mut show,
    );
    bar.finish_and_clear();
    if matches!(result, Err(LlmError::Stopped(_))) {
        note(format_args!(
            "stopped; {} was not written",
            options.output.display()
        ));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let summary = result.with_context(|| format!("{source} to {}", options.file_type))?;
    let fallbacks = match summary.fallbacks {
        0 => String::new(),
        n => format!("; {n} tensors got another type, because their rows do not fill whole blocks"),
    };
    note(format_args!(
        "{}: {} tensors, {} became {}{fallbacks}",
        options.output.display(),
        summary.tensors,
        bytes(summary.input_bytes),
        bytes(summary.output_bytes),
    ));
    Ok(ExitCode::SUCCESS)
}
