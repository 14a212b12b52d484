//! `report`: compares operations, backends, model types, and f32 with f16; as text, as JSON, and as
//! a page with charts.

mod before;
#[cfg(feature = "coreml")]
mod coreml;
mod html;
mod hybrid;
mod memory;
mod models;
mod operations;
mod svg;

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use rustorch_llm::F32Workload;
use rustorch_llm::quantize::FileType;
use serde::Serialize;

use crate::args::{BackendArg, CoreMlArgs, DocumentArgs, ThreadArgs};
use crate::devices::discover;
use crate::document::{Document, check_writable};
use crate::machine::{Machine, PROGRAM, now};
use crate::output::note;
use crate::resume::{Progress, identity};
use crate::subject::Subject;
use crate::variants::Variants;
use before::Before;
#[cfg(feature = "coreml")]
use coreml::{CoreMl, Workload};
use hybrid::Hybrid;
use memory::Memory;
use models::Models;
use operations::Measurements;

const METHOD: &str = "\
Parts of the report:
  operations  speed of each operation on each device, and the device's own limits
  memory      memory use of each device during a short run
  models      the bundled model in several types on each backend: speed, memory, accuracy
  coreml      Core ML in f32 and f16 on its compute units, if the program has Core ML
  f32         runs in f32 on all devices, compared with runs that keep f16 or convert it

A type without a model file gets random weights: speed and memory are real, the text is not. Use -m \
models/classics-13m-f16.gguf for real weights. --html writes a self-contained page with charts. --before \
adds the changes since an earlier report. An interrupted run continues when the same command is run again.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    /// Compare only this backend with the CPU [default: all devices of this machine]
    #[arg(short, long, value_name = "BACKEND")]
    backend: Option<BackendArg>,

    /// The bundled model in another type; repeatable. The program makes missing types from the f16 file
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,

    /// Make only these parts
    #[arg(long, value_enum, value_name = "PART,…", value_delimiter = ',')]
    only: Vec<Part>,

    /// Also write an HTML page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Earlier JSON report to compare with, on the HTML page
    #[arg(long, value_name = "FILE", requires = "html")]
    before: Option<PathBuf>,

    /// Model types to compare
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    #[arg(default_value = "Q4_K_M,Q5_K_M,Q6_K,Q8_0,F16,F32")]
    types: Vec<FileType>,

    /// Text file for measuring perplexity
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Number of 512-token chunks of the text
    #[arg(long, value_name = "K", default_value_t = 4)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(2..))]
    chunks: usize,

    /// Number of repetitions of each speed measurement
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

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Operations on devices
    Operations,
    /// Memory over time
    Memory,
    /// Types of models on backends
    Models,
    /// Core ML in f32 and f16
    #[cfg(feature = "coreml")]
    Coreml,
    /// f32 on all devices
    F32,
}

impl Options {
    /// The result of `work`, if this part was requested.
    fn part<T>(&self, part: Part, work: impl FnOnce() -> T) -> Option<T> {
        (self.only.is_empty() || self.only.contains(&part)).then(work)
    }
}

pub(super) fn run(options: &Options) -> Result<()> {
    let start = Instant::now();
    let before = options.before.as_deref().map(Before::read).transpose()?;
    // Before the work, for what cannot be written is better told then.
    let page = match &options.html {
        Some(path) => {
            let failed = || format!("cannot write the page {}", path.display());
            check_writable(path).with_context(failed)?;
            Some(path)
        }
        None => None,
    };
    let found = discover(options.coreml.options(options.workers), &[]);
    let variants = Variants::open(&options.model)?;
    for (file, why) in &variants.useless {
        tracing::warn!("ignoring {file}: {why}");
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
        operations: options.part(Part::Operations, || {
            Measurements::measure(&subjects, progress)
        }),
        memory: options.part(Part::Memory, || {
            Memory::measure(&subjects, variants.bundled(), progress)
        }),
        models: options.part(Part::Models, || {
            Models::measure(&subjects, &variants, options, text.as_deref(), progress)
        }),
        #[cfg(feature = "coreml")]
        coreml: options.part(Part::Coreml, || {
            let workload = Workload::of(options.repetitions);
            let open = &rustorch_coreml::devices_with;
            CoreMl::measure(variants.bundled(), workload, open, progress)
        }),
        hybrid: options.part(Part::F32, || {
            Hybrid::measure(&found, &variants, F32Workload::default(), progress)
        }),
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
        writeln!(io::stdout().lock(), "Report: {file}")?;
    }
    if let Some(path) = page {
        let page = html::page(&report, before.as_ref());
        let name = path.display();
        fs::write(path, page).with_context(|| name.to_string())?;
        note(format_args!("Page: {name}"));
    }
    std::mem::take(progress).finish();
    Ok(())
}

/// The report of all comparisons.
#[derive(Serialize)]
struct Report {
    program: &'static str,
    machine: Machine,
    finished: String,
    seconds: f64,
    /// Names of devices, and their descriptions.
    devices: Vec<(String, String)>,
    /// Names, and why they are not there.
    missing: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operations: Option<Measurements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Models>,
    #[cfg(feature = "coreml")]
    #[serde(skip_serializing_if = "Option::is_none")]
    coreml: Option<CoreMl>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hybrid: Option<Hybrid>,
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
        let mut part = |title: &str, part: Option<&dyn fmt::Display>| match part {
            Some(part) => write!(f, "\n## {title}\n\n{part}"),
            None => Ok(()),
        };
        part("Operations", self.operations.as_ref().map(|p| p as _))?;
        part("Memory", self.memory.as_ref().map(|p| p as _))?;
        part("Backends and types", self.models.as_ref().map(|p| p as _))?;
        #[cfg(feature = "coreml")]
        part("Core ML", self.coreml.as_ref().map(|p| p as _))?;
        part("f32 on all devices", self.hybrid.as_ref().map(|p| p as _))
    }
}
