//! `convert`: a folder of Hugging Face's `transformers` as a GGUF file.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use rustorch_llm::hugging_face;

use super::generate::interrupts;
use crate::failure::{INTERRUPTED, Usage};
use crate::output::{bytes, note};
use crate::progress;

const METHOD: &str = "Keys, names and types are those of llama.cpp's convert_hf_to_gguf.py. `quantize` takes a \
folder, too.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    /// Folder of the model: config.json, safetensors files and a tokenizer
    #[arg(value_name = "FOLDER")]
    input: PathBuf,

    /// Output file
    #[arg(value_name = "OUT")]
    output: PathBuf,
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let Some(folder) = hugging_face::folder(&options.input) else {
        let problem = format!(
            "{} is not a folder; give the folder that config.json is in",
            options.input.display()
        );
        return Err(Usage(problem).into());
    };
    let interrupted = interrupts()?;
    let bar = progress::steps("converting", 0);
    let mut count = 0;
    let result = hugging_face::convert(&folder, &options.output, |index, of| {
        count = of;
        bar.set_length(of as u64);
        bar.set_position(index as u64);
        match interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();
    let output = options.output.display();
    if result?.is_break() {
        note(format_args!("stopped; {output} was not written"));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let size = options.output.metadata().map_or(0, |file| file.len());
    note(format_args!("{output}: {count} tensors, {}", bytes(size)));
    Ok(ExitCode::SUCCESS)
}
