//! `run-batch`: the requests of a file, answered into another.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use rustorch_server::{BatchRequest, Batches};
use serde::Deserialize;

use super::ServedArgs;
use crate::devices::Devices;
use crate::output::note;
use crate::progress;

const FORMS: &str = "\
Examples:
  rustorch-cli run-batch requests.jsonl -o answers.jsonl -m model.gguf -np 8

FILE and OUT have the lines of OpenAI's batches. A request is one line:
  {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"Hello\"}}
The paths are /v1/chat/completions, /v1/completions, /v1/responses and /v1/embeddings. Answers come in the order in which they end.

If OUT exists, requests that have an answer in it are not computed again. The exit status is 1 if an answer of this \
run is an error.";

/// Requests of each text that is computed at once. The next prompt is ready when a text ends.
const AHEAD: usize = 2;

#[derive(Debug, Args)]
#[command(after_help = FORMS)]
pub(crate) struct Options {
    /// Requests, one a line
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Answers, one a line
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    models: ServedArgs,
}

/// The part of an answer's line by which it is found again.
#[derive(Deserialize)]
struct Answered {
    custom_id: String,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.models.check()?;
    let requests = read(&options.file)?;
    let known = answered(&options.output)?;
    let left = requests.into_iter();
    let left: Vec<BatchRequest> = left
        .filter(|request| !known.contains(&request.custom_id))
        .collect();
    if !known.is_empty() {
        note(format_args!(
            "{}: {} answers are there, {} are left",
            options.output.display(),
            known.len(),
            left.len()
        ));
    }
    if left.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let devices = Devices::open(&options.models.devices)?;
    // The number of requests at once bounds the queue.
    let models = options.models.load(usize::MAX, &devices)?;
    let batches = Batches::new(models, devices.runtime.clone())?;
    let place = || options.output.display().to_string();
    let mut out = (OpenOptions::new().append(true).create(true))
        .open(&options.output)
        .with_context(place)?;
    let bar = progress::steps("answering", left.len());
    let (mut failed, count) = (0, left.len());
    let each = |line: serde_json::Value, status: u16| {
        failed += usize::from(status != 200);
        bar.inc(1);
        // In one piece: what an interrupted run leaves is whole lines, and at most one begun.
        out.write_all(format!("{line}\n").as_bytes())
    };
    batches
        .run(left, AHEAD * options.models.parallel(), each)
        .with_context(place)?;
    bar.finish_and_clear();
    note(format_args!("{count} answers, {failed} of them errors"));
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The requests of a file, whose names differ.
fn read(path: &Path) -> Result<Vec<BatchRequest>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let (mut requests, mut names) = (Vec::new(), HashSet::new());
    for (i, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| path.display().to_string())?;
        if line.trim().is_empty() {
            continue;
        }
        let place = || format!("{}: line {}", path.display(), i + 1);
        let request: BatchRequest = serde_json::from_str(&line).with_context(place)?;
        if !names.insert(request.custom_id.clone()) {
            bail!(
                "{}: custom_id {:?} is there twice",
                place(),
                request.custom_id
            );
        }
        requests.push(request);
    }
    Ok(requests)
}

/// The names of the requests that have an answer. A line that was not written to its end is cut off.
fn answered(path: &Path) -> Result<HashSet<String>> {
    let place = || path.display().to_string();
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashSet::new()),
        text => text.with_context(place)?,
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let names = text[..whole].lines().enumerate().map(|(i, line)| {
        let place = || format!("{}: line {} is no answer", path.display(), i + 1);
        let answered: Answered = serde_json::from_str(line).with_context(place)?;
        Ok(answered.custom_id)
    });
    let names = names.collect::<Result<_>>()?;
    if whole < text.len() {
        let cut = || -> io::Result<()> {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(whole as u64)
        };
        cut().with_context(place)?;
    }
    Ok(names)
}
