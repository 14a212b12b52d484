//! `explain`: where each operation of a run would go, and why.

use std::io::{self, Write};

use anyhow::{Context, Result};
use rustorch_runtime::Explanation;
use serde_json::json;

use super::generate::Options;
use crate::args::Format;
use crate::output::{bytes, json_line};

pub(super) fn run(options: &Options) -> Result<()> {
    let (devices, source) = (options.devices()?, options.source());
    let model = source.load()?;
    let session = options.session(&model, &devices)?;
    // Without a vocabulary there is no prompt, and still a token to decode.
    let prompt = match model.tokenizer() {
        Ok(tokenizer) => options.prompt(&source, tokenizer)?.ids.len(),
        Err(_) => 1,
    };
    let batch = prompt.clamp(1, session.batch());
    let passes = [("prompt", batch), ("decode", 1)]
        .into_iter()
        .map(|(name, tokens)| {
            let rows = session
                .explain(tokens)
                .with_context(|| source.to_string())?;
            Ok((name, tokens, rows))
        })
        .collect::<Result<Vec<_>>>()?;

    let out = &mut io::stdout().lock();
    match options.format() {
        Format::Text => {
            for (name, tokens, rows) in &passes {
                writeln!(out, "{name}: {tokens} at a time")?;
                table(rows, out)?;
            }
        }
        Format::Json => {
            let row = |row: &Explanation| {
                json!({
                    "op": row.op,
                    "count": row.count,
                    "device": row.device.to_string(),
                    "reason": row.reason,
                    "bytes": row.bytes,
                })
            };
            let pass = |(name, tokens, rows): &(&str, usize, Vec<Explanation>)| {
                let rows: Vec<_> = rows.iter().map(row).collect();
                json!({"pass": name, "tokens": tokens, "operations": rows})
            };
            json_line(out, &passes.iter().map(pass).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

fn table(rows: &[Explanation], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "  {:<16} {:>6} {:<12} {:>10}  why",
        "operation", "count", "device", "results"
    )?;
    for row in rows {
        writeln!(
            out,
            "  {:<16} {:>6} {:<12} {:>10}  {}",
            row.op,
            row.count,
            row.device.to_string(),
            bytes(row.bytes as u64),
            row.reason,
        )?;
    }
    writeln!(out)
}
