//! `tokenize`: text to token ids.

use std::io;

use anyhow::Result;
use clap::Args;
use rustorch_tokenizer::EncodeOptions;

use crate::args::{FileArgs, TextArgs};
use crate::failure::Usage;
use crate::model::Source;
use crate::output::json_line;
use crate::text;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    model: FileArgs,

    #[command(flatten)]
    text: TextArgs,

    /// Do not add the model's special tokens around the text (BOS, EOS)
    #[arg(long)]
    no_bos: bool,

    /// Parse special tokens in the text
    #[arg(long)]
    special: bool,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let text = text::given(&options.text)?;
    let text =
        text.ok_or_else(|| Usage("no text; give one with -p or -f, or through a pipe".to_owned()))?;
    let tokenizer = Source::from(&options.model).tokenizer()?;
    let encode = EncodeOptions {
        add_special: !options.no_bos,
        parse_special: options.special,
    };
    json_line(&mut io::stdout().lock(), &tokenizer.encode(&text, encode))?;
    Ok(())
}
