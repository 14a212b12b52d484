//! `tokenize`: text to token ids.

use std::io;

use anyhow::Result;
use clap::Args;
use rustorch_tokenizer::EncodeOptions;

use super::text;
use crate::args::{ModelArgs, TextArgs};
use crate::model::Source;
use crate::output::json_line;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    #[group(required = true)]
    text: TextArgs,

    /// Leave out the tokens that the model puts around a text (BOS)
    #[arg(long)]
    no_bos: bool,

    /// Take the texts of special tokens, such as <s>, for these tokens
    #[arg(long)]
    special: bool,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let tokenizer = Source::from(&options.model).tokenizer()?;
    let text = text::given(&options.text)?.unwrap_or_default();
    let encode = EncodeOptions {
        add_special: !options.no_bos,
        parse_special: options.special,
    };
    json_line(&mut io::stdout().lock(), &tokenizer.encode(&text, encode))?;
    Ok(())
}
