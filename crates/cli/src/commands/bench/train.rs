//! Steps of training: `bench --train`.

use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::Args;
use rustorch_bench::{Launch, RECIPES, Recipe, Trained};
use rustorch_ir::DType;
use rustorch_tensor::with_runtime;
use serde::Serialize;

use crate::args::{ByteCount, DeviceArgs, DocumentFormat};
use crate::devices::Devices;
use crate::machine::{Machine, PROGRAM, now};
use crate::table::Table;

/// The training recipes, and their amount.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(super) struct TrainArgs {
    /// Benchmark training steps: gpt2-124m, gpt2-1.5b, gpt2-20m, resnet-50, resnet-18
    #[arg(long = "train", value_name = "NAME,…", value_delimiter = ',', value_parser = recipe)]
    #[arg(conflicts_with_all = ["model", "preset", "ops", "n_prompt", "n_gen", "n_depth", "repetitions"])]
    pub(super) recipes: Vec<Recipe>,

    /// Batch size [default: PyTorch's usual benchmark size]
    #[arg(long, value_name = "N", requires = "recipes", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,

    /// Sequence length in tokens, or width and height of images
    #[arg(long, value_name = "N", requires = "recipes", value_parser = clap::value_parser!(u32).range(1..))]
    length: Option<u32>,

    /// Precision of matrix products: f32, or bf16 and f16 by autocast
    #[arg(long, value_name = "TYPE", requires = "recipes", value_parser = precision)]
    precision: Option<DType>,

    /// Memory limit of a step, such as 20G (see train --memory)
    #[arg(long, value_name = "SIZE", requires = "recipes")]
    memory: Option<ByteCount>,

    /// Offload activations to host memory (see train --offload-activations)
    #[arg(long, requires = "recipes")]
    offload_activations: bool,

    /// Number of measured steps
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,

    /// List the N kinds of launches that take most time in a step
    #[arg(long, value_name = "N", default_value_t = 0, requires = "recipes")]
    hottest: usize,
}

fn recipe(name: &str) -> Result<Recipe, String> {
    let known = || {
        let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        format!("expected one of {}", names.join(", "))
    };
    Recipe::named(name).copied().ok_or_else(known)
}

fn precision(name: &str) -> Result<DType, String> {
    let known = [DType::F32, DType::BF16, DType::F16];
    let found = known.into_iter().find(|dtype| dtype.to_string() == name);
    found.ok_or_else(|| "expected f32, bf16 or f16".to_owned())
}

/// All measurements.
#[derive(Serialize)]
pub(super) struct Trainings {
    program: &'static str,
    finished: String,
    /// Facts of the machine, as names and values.
    machine: Vec<(&'static str, String)>,
    device: String,
    measured: Vec<Trained>,
    #[serde(skip)]
    hottest: usize,
}

impl Trainings {
    /// Makes steps of the chosen networks on the chosen devices.
    pub(super) fn measure(options: &TrainArgs, devices: &DeviceArgs) -> Result<Self> {
        let size = |size: Option<u32>, default| size.map_or(default, |size| size as usize);
        let devices = Devices::open(devices)?;
        let mut measured = Vec::new();
        for mut recipe in options.recipes.iter().copied() {
            recipe.batch = size(options.batch, recipe.batch);
            recipe.length = size(options.length, recipe.length);
            recipe.precision = options.precision.unwrap_or(recipe.precision);
            let bytes = |ByteCount(bytes)| usize::try_from(bytes).unwrap_or(usize::MAX);
            recipe.memory = options.memory.map(bytes);
            recipe.offloads = options.offload_activations;
            let steps = options.steps as usize;
            let trained = with_runtime(&devices.runtime, devices.routing, || {
                recipe.measure(steps, options.hottest > 0)
            });
            measured.push(trained.context(recipe.name)?);
        }
        Ok(Self {
            program: PROGRAM,
            finished: now(),
            machine: Machine::this().facts(),
            device: devices.name,
            measured,
            hottest: options.hottest,
        })
    }

    /// Writes it as tables, or as JSON.
    pub(super) fn write(&self, format: DocumentFormat) -> Result<()> {
        let mut out = io::stdout().lock();
        match format {
            DocumentFormat::Json => {
                serde_json::to_writer_pretty(&mut out, self)?;
                writeln!(out)?;
            }
            DocumentFormat::Md => {
                write!(out, "{}", self.table())?;
                let watched = self.measured.iter().filter(|row| !row.launches.is_empty());
                for row in watched {
                    let launches = launches(&row.launches, self.hottest);
                    writeln!(out, "\n{}:\n\n{launches}", row.name)?;
                }
            }
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let header = [
            "training",
            "device",
            "batch",
            "type",
            "parameters",
            "first steps, s",
            "ms/step",
            "per second",
            "peak GiB",
            "losses",
        ];
        let cells = self.measured.iter().map(|row| {
            let losses: Vec<String> = row.losses.iter().map(|loss| format!("{loss:.4}")).collect();
            vec![
                row.name.to_owned(),
                self.device.clone(),
                format!("{} × {}", row.batch, row.length),
                row.precision.clone(),
                format!("{:.1} M", row.parameters as f64 / 1e6),
                format!("{:.1}", row.first_seconds),
                format!("{:.2}", 1e3 * row.seconds),
                format!("{:.0} {}", row.per_second, row.unit),
                format!("{:.2}", row.peak_bytes as f64 / f64::from(1 << 30)),
                losses.join(" "),
            ]
        });
        Table::new(header, cells).right()
    }
}

/// So many kinds of launches of a step, and the others together.
fn launches(launches: &[Launch], hottest: usize) -> Table {
    let header = ["launch", "calls", "ms", "%", "MB each", "GB/s", "GFLOP/s"];
    let sum = |launches: &[Launch]| launches.iter().map(|l| l.seconds).sum::<f64>();
    let all = sum(launches);
    let (first, others) = launches.split_at(hottest.min(launches.len()));
    let share = |seconds: f64| {
        [
            format!("{:.3}", 1e3 * seconds),
            format!("{:.1}", 100.0 * seconds / all),
        ]
    };
    let row = |launch: &Launch| {
        let rate = |each: u64| format!("{:.0}", each as f64 * launch.calls / launch.seconds / 1e9);
        let [ms, percent] = share(launch.seconds);
        let bytes = format!("{:.2}", launch.bytes as f64 / 1e6);
        let calls = launch.calls.to_string();
        vec![
            launch.name.clone(),
            calls,
            ms,
            percent,
            bytes,
            rate(launch.bytes),
            rate(launch.flops),
        ]
    };
    let [ms, percent] = share(sum(others));
    let calls: f64 = others.iter().map(|launch| launch.calls).sum();
    let of_others = vec![
        format!("{} other kinds", others.len()),
        calls.to_string(),
        ms,
        percent,
        String::new(),
        String::new(),
        String::new(),
    ];
    Table::new(header, first.iter().map(row).chain([of_others]))
}
