//! `logits`: the logits after each given token.

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use clap::Args;
use rustorch_llm::{Selection, Session};

use crate::args::{ContextArgs, DeviceArgs, ModelArgs};
use crate::devices::Devices;
use crate::failure::Usage;
use crate::model::{Source, load};

const FORMAT: &str =
    r#"The output is {"n_vocab":V,"logits":[[…],…]}, with a list of V logits for each id."#;

#[derive(Debug, Args)]
#[command(after_help = FORMAT)]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelArgs,

    /// Token ids, separated by commas
    #[arg(long, value_name = "ID,…", value_delimiter = ',', required = true)]
    ids: Vec<u32>,

    /// Print only the logits after the last token
    #[arg(long)]
    last: bool,

    #[command(flatten)]
    context: ContextArgs,

    #[command(flatten)]
    devices: DeviceArgs,
}

pub(super) fn run(options: &Options) -> Result<()> {
    if options.ids.is_empty() {
        return Err(Usage("--ids: give at least one token id".to_owned()).into());
    }
    let devices = Devices::open(&options.devices)?;
    let model = Source::from(&options.model).load()?;
    let settings = options.context.session(&model, &devices)?;
    let mut session = Session::new(&model, &devices.runtime, settings.session)?;
    load(&mut session, &Selection::default())?;
    let vocab = model.spec().vocab;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut begun = false;
    let mut row = |logits: &[f32]| -> io::Result<()> {
        match begun {
            false => write!(out, "{{\"n_vocab\":{vocab},\"logits\":[")?,
            true => write!(out, ",")?,
        }
        begun = true;
        Ok(serde_json::to_writer(&mut out, logits)?)
    };
    if options.last {
        let mut logits = Vec::new();
        session.feed(&options.ids, &mut logits)?;
        row(&logits)?;
    } else {
        session.feed_all(&options.ids, |_, logits| -> Result<()> {
            Ok(logits.chunks_exact(vocab).try_for_each(&mut row)?)
        })?;
    }
    writeln!(out, "]}}")?;
    out.flush()?;
    Ok(())
}
