//! Replays the answers of PyTorch, or of ONNX's node tests, and compares.
//!
//! Answers are files: those of `scripts/torch-goldens.py` and `scripts/module-goldens.py`, or the folders of models and tensors
//! that the package `onnx` brings. A registry maps names to calls of RusTorch's tensors, as a user
//! would write them.
//!
//! A sample passes if the result has the same dtype, shape and, within the answer's tolerance,
//! elements; one that has to be refused passes if it is. What has no function here, or a function
//! without an argument of the sample's kind, is not implemented.

#[macro_use]
mod call;
mod compare;
mod factors;
mod golden;
mod gradients;
mod modules;
mod onnx;
mod ops;
mod optimizers;
mod report;
mod run;
mod value;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use rustorch_ir::DeviceType;
use rustorch_tensor::with_device;

use crate::golden::{Golden, Manifest};
use crate::report::Report;

/// Replays PyTorch's or ONNX's answers on RusTorch. The last line is `N passed, N failed, N not
/// implemented`; the status is 0 if nothing failed, 1 if something did, 2 for bad usage.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// A folder that scripts/torch-goldens.py or scripts/module-goldens.py made, or one of ONNX's tests
    folder: PathBuf,
    /// The folder holds ONNX's node tests (of the package: onnx/backend/test/data/node)
    #[arg(long)]
    onnx: bool,
    /// Compares gradients, not results: the folder was made with --grad
    #[arg(long, conflicts_with = "onnx")]
    grad: bool,
    /// The folder is one of scripts/module-goldens.py: its modules
    #[arg(long, conflicts_with_all = ["onnx", "grad"])]
    modules: bool,
    /// The folder is one of scripts/module-goldens.py: its optimisers
    #[arg(long, conflicts_with_all = ["onnx", "grad"])]
    optimizers: bool,
    /// The device that computes: cpu, opencl, cuda, metal; by itself the best one each time
    #[arg(short, long, default_value = "auto")]
    backend: DeviceType,
    /// Names of operations by commas; `max` is all its variants, `fft` a whole module
    #[arg(long, value_delimiter = ',')]
    ops: Vec<String>,
    /// `json`: one object on standard output, the last line on standard error
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Says of each operation why the first sample failed; twice: why each one did
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let report = replay(&options).and_then(|report| {
        print(&report, &options)?;
        Ok(report)
    });
    match report {
        Ok(report) if report.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("replay: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn replay(options: &Options) -> Result<Report> {
    run::quiet_panics();
    with_device(options.backend, || match options.onnx {
        true => replay_onnx(options),
        false => replay_torch(options),
    })?
}

fn replay_onnx(options: &Options) -> Result<Report> {
    let mut report = Report::new("ONNX".to_owned(), options.backend.to_string());
    let ops = onnx::replay(&options.folder, &options.ops)?;
    ops.into_iter().for_each(|op| report.add(op));
    Ok(report)
}

fn replay_torch(options: &Options) -> Result<Report> {
    let manifest = Manifest::read(&options.folder)?;
    let source = format!("PyTorch {}, seed {}", manifest.torch, manifest.seed);
    let mut report = Report::new(source, options.backend.to_string());
    for (name, stem) in &manifest.files {
        if options.ops.is_empty() || options.ops.iter().any(|wanted| is_called(name, wanted)) {
            let kinds = (
                name.starts_with("optim."),
                options.modules,
                options.optimizers,
            );
            report.add(match kinds {
                (true, _, true) => optimizers::replay(&options.folder, stem)?,
                (false, true, _) => modules::replay(&options.folder, stem)?,
                (_, false, false) if options.grad => {
                    run::gradients_of(&Golden::read(&options.folder, stem)?)?
                }
                (_, false, false) => run::operation(&Golden::read(&options.folder, stem)?)?,
                _ => continue,
            });
        }
    }
    let is_there = |wanted: &&String| manifest.files.keys().any(|name| is_called(name, wanted));
    match options.ops.iter().find(|wanted| !is_there(wanted)) {
        Some(name) => bail!("--ops: {} has no {name}", options.folder.display()),
        None => Ok(report),
    }
}

/// Is it the name, or one of the variants or functions behind it?
fn is_called(name: &str, wanted: &str) -> bool {
    let rest = name.strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn print(report: &Report, options: &Options) -> Result<()> {
    let mut out = io::stdout().lock();
    match options.format {
        Format::Text => {
            report.print(&mut out, options.verbose)?;
            writeln!(out, "{}", report.summary())?;
        }
        Format::Json => {
            serde_json::to_writer(&mut out, report).context("standard output")?;
            writeln!(out)?;
            eprintln!("{}", report.summary());
        }
    }
    Ok(())
}
