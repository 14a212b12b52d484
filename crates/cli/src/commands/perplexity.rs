//! `perplexity`: how well a model predicts a text.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rustorch_llm::{Selection, Session, perplexity};
use rustorch_tokenizer::EncodeOptions;

use crate::args::{ContextArgs, DeviceArgs, ModelArgs, TextArgs};
use crate::devices::Devices;
use crate::model::{Source, load};
use crate::progress;
use crate::text;

const METHOD: &str = "\
The text is split into chunks of the context size, 512 tokens by default. Each chunk is scored on its second \
half, with the first half as context. llama.cpp uses the same method, so results are comparable. The last \
line is the result.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelArgs,

    /// File of the text, in UTF-8
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,

    /// Evaluate only the first K chunks
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,

    #[command(flatten)]
    context: ContextArgs,

    #[command(flatten)]
    devices: DeviceArgs,
}

/// llama.cpp's size of a piece.
const DEFAULT_CONTEXT: usize = 512;

pub(super) fn run(options: &Options) -> Result<()> {
    let devices = Devices::open(&options.devices)?;
    let model = Source::from(&options.model).load()?;
    let tokenizer = model.tokenizer()?;
    let text = text::prompt(&TextArgs {
        file: Some(options.file.clone()),
        ..TextArgs::default()
    })?;
    let encode = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokens = tokenizer.encode(&text.unwrap_or_default(), encode);
    let mut session_options = options.context.session(&model, &devices)?.session;
    if options.context.ctx_size.is_none() {
        session_options.context = DEFAULT_CONTEXT;
    }
    let mut session = Session::new(&model, &devices.runtime, session_options)?;
    load(&mut session, &Selection::default())?;
    let size = session.context();
    let limit = options.chunks.map(|n| n as usize);
    let chunks = limit.unwrap_or(usize::MAX).min(tokens.len() / size);
    let bar = progress::steps("perplexity", chunks);
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let mut out = io::stdout().lock();
    let mut written = Ok(());
    let result = perplexity(&mut session, &tokens, bos, limit, |so_far| {
        bar.inc(1);
        let line = bar.suspend(|| {
            writeln!(
                out,
                "[{}] {:.4} ± {:.4}",
                so_far.chunks, so_far.value, so_far.error
            )
        });
        if written.is_ok() {
            written = line.and_then(|()| out.flush());
        }
    })?;
    bar.finish_and_clear();
    written?;
    writeln!(out, "PPL = {:.4}", result.value)?;
    Ok(())
}
