//! Replays the answers of PyTorch, or of ONNX's node tests, and compares.
//!
//! Answers are files: those of `scripts/torch-goldens.py` and `scripts/module-goldens.py`, or the
//! folders of models and tensors that the package `onnx` brings. A registry maps names to calls of
//! RusTorch's tensors, in a user's style.
//!
//! A sample passes if the result has the same dtype, shape and, within the answer's tolerance,
//! elements. A sample that must be rejected passes if it is. A sample is not implemented if there
//! is no function for it, or no argument of its kind.

mod compare;
mod factors;
mod golden;
mod gradients;
mod modules;
mod onnx;
mod optimizers;
mod report;
mod samples;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use rustorch_ir::DeviceType;
use rustorch_tensor::with_device;

use crate::replay::golden::{Golden, Manifest};
use crate::replay::report::Report;

/// Replays PyTorch's or ONNX's answers on RusTorch. The last line is `N passed, N failed, N not
/// implemented`; the status is 0 if nothing failed, 1 if something did, 2 for bad usage.
#[derive(Parser)]
#[command(version)]
pub struct Options {
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

impl Options {
    /// The options of the program; invalid ones end it.
    pub fn of_the_program() -> Self {
        Self::parse()
    }

    /// The options of a call with these arguments.
    ///
    /// # Errors
    /// Fails for an unknown argument.
    pub fn of(arguments: &[&str]) -> Result<Self> {
        let arguments = ["replay"].iter().chain(arguments);
        Ok(Self::try_parse_from(arguments)?)
    }
}

/// Replays on the devices of [`rustorch_tensor::runtime`], writes the report, and returns the program's status.
pub fn run(options: &Options, out: &mut dyn Write) -> ExitCode {
    let report = replay(options).and_then(|report| {
        print(&report, options, out)?;
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
    samples::quiet_panics();
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
                    samples::gradients_of(&Golden::read(&options.folder, stem)?)?
                }
                (_, false, false) => samples::operation(&Golden::read(&options.folder, stem)?)?,
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

/// Returns whether it is the name, or one of the variants or functions behind it.
fn is_called(name: &str, wanted: &str) -> bool {
    let rest = name.strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn print(report: &Report, options: &Options, out: &mut dyn Write) -> Result<()> {
    match options.format {
        Format::Text => {
            report.print(out, options.verbose)?;
            writeln!(out, "{}", report.summary())?;
        }
        Format::Json => {
            serde_json::to_writer(&mut *out, report).context("standard output")?;
            writeln!(out)?;
            eprintln!("{}", report.summary());
        }
    }
    Ok(())
}
