//! `rerank`: a query and documents to scores.

use std::io;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rustorch_llm::spec::Pooling;
use rustorch_llm::{Encoder, EncoderOptions};

use crate::args::EncoderArgs;
use crate::devices::Devices;
use crate::model::Source;
use crate::output::json_line;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli rerank -m FOLDER -p \"What do cats eat?\" \"Cats eat fish.\" \"It rains.\"
  rustorch-cli rerank -m model.gguf -p \"What do cats eat?\" -f documents.txt

The output is an array with a score for each document, in their order. A larger score is a better match.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Documents
    #[arg(value_name = "DOCUMENT")]
    documents: Vec<String>,

    /// Query
    #[arg(short, long, visible_alias = "query", value_name = "TEXT")]
    #[arg(allow_hyphen_values = true)]
    prompt: String,

    /// File of documents, one per line, in UTF-8; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    encoder: EncoderArgs,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let file = options.file.as_deref();
    let documents = text::listed(options.documents.clone(), file, "documents")?;
    let devices = Devices::open(&options.encoder.devices)?;
    let model = Source::from(&options.encoder.model).load()?;
    let settings = EncoderOptions {
        pooling: Some(Pooling::Rank),
        ..options.encoder.options(&devices)
    };
    let mut encoder = Encoder::new(&model, &devices.runtime, settings)?;
    let scores = encoder.rerank(&options.prompt, &documents)?;
    Ok(json_line(&mut io::stdout().lock(), &scores)?)
}
