//! `report`: backends and types of models beside each other, and f32 beside f16.

#[cfg(feature = "coreml")]
mod coreml;
mod hybrid;
mod models;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use rustorch_llm::F32Workload;
use rustorch_llm::quantize::FileType;
use serde::Serialize;

use crate::args::{BackendArg, CoreMlArgs, DocumentArgs, ThreadArgs};
use crate::devices::discover;
use crate::document::Document;
use crate::machine::{Machine, PROGRAM, now};
use crate::resume::{Progress, identity};
use crate::subject::Subject;
use crate::variants::Variants;
#[cfg(feature = "coreml")]
use coreml::{CoreMl, Workload};
use hybrid::Hybrid;
use models::Models;

const METHOD: &str = "\
Compared are the bundled model's types on every backend: speed as `bench` measures it, agreement
with llama.cpp, memory; Core ML in f32 and in f16 on each set of its units, and what its cache saves;
and runs in f32 on all devices with runs that keep halves, or convert what
goes from one device to another. Types of which there is no file are made with random weights, which
take the same time and memory and answer nothing: -m models/classics-13m-f16.gguf gives real ones. If
the program ends before the report is there, the same command goes on where it ended.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    /// This backend, beside the CPU, only [default: all devices that are here]
    #[arg(short, long, value_name = "BACKEND")]
    backend: Option<BackendArg>,

    /// A file of the bundled model in another type; of the f16 file, the other types are made.
    /// May be given often
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,

    /// Types to be compared
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    #[arg(default_value = "Q4_K_M,Q5_K_M,Q6_K,Q8_0,F16,F32")]
    types: Vec<FileType>,

    /// A text, of which the perplexity is measured too
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Pieces of 512 tokens of that text
    #[arg(long, value_name = "K", default_value_t = 4)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(2..))]
    chunks: usize,

    /// How often each speed is measured
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,

    #[command(flatten)]
    coreml: CoreMlArgs,

    #[command(flatten)]
    workers: ThreadArgs,

    #[command(flatten)]
    document: DocumentArgs,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let start = Instant::now();
    let found = discover(options.coreml.options(options.workers), &[]);
    let variants = Variants::open(&options.model)?;
    for (file, why) in &variants.useless {
        tracing::warn!("{file} is left out: {why}");
    }
    let mut subjects = Subject::find(options.backend, &found)?;
    if !subjects.iter().any(Subject::is_cpu) {
        subjects.splice(0..0, Subject::cpu(&found)?);
    }
    let text = options
        .file
        .as_deref()
        .map(crate::text::from_file)
        .transpose()?;
    let document = Document::open(&options.document, "rustorch-report")?;
    let progress = &mut Progress::open(document.path(), &identity());
    let report = Report {
        models: Models::measure(&subjects, &variants, options, text.as_deref(), progress),
        #[cfg(feature = "coreml")]
        coreml: CoreMl::measure(
            variants.bundled(),
            Workload::of(options.repetitions),
            &rustorch_coreml::devices_with,
            progress,
        ),
        hybrid: Hybrid::measure(&found, &variants, F32Workload::default(), progress),
        program: PROGRAM,
        machine: Machine::this(),
        finished: now(),
        seconds: start.elapsed().as_secs_f64().round(),
        devices: (found.backends.iter())
            .map(|b| (b.info().device.to_string(), b.info().name.clone()))
            .collect(),
        missing: (found.absent.iter())
            .map(|absent| (absent.device.clone(), absent.reason.clone()))
            .collect(),
    };
    if let Some(file) = document.write(&report)? {
        writeln!(io::stdout().lock(), "The report: {file}")?;
    }
    std::mem::take(progress).finish();
    Ok(())
}

/// All comparisons.
#[derive(Serialize)]
struct Report {
    program: &'static str,
    machine: Machine,
    finished: String,
    seconds: f64,
    /// Names, and what they are.
    devices: Vec<(String, String)>,
    /// Names, and why they are not there.
    missing: Vec<(String, String)>,
    models: Models,
    #[cfg(feature = "coreml")]
    coreml: CoreMl,
    hybrid: Hybrid,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# RusTorch: backends and types compared\n")?;
        writeln!(f, "- program: {}", self.program)?;
        writeln!(f, "- finished: {}, after {} s", self.finished, self.seconds)?;
        for (name, value) in self.machine.facts() {
            writeln!(f, "- {name}: {value}")?;
        }
        for (device, name) in &self.devices {
            writeln!(f, "- {device}: {name}")?;
        }
        for (device, reason) in &self.missing {
            writeln!(f, "- {device}: missing, {reason}")?;
        }
        writeln!(f, "\n## Backends and types\n\n{}", self.models)?;
        #[cfg(feature = "coreml")]
        writeln!(f, "## Core ML\n\n{}", self.coreml)?;
        write!(f, "## f32 on all devices\n\n{}", self.hybrid)
    }
}
