//! `calibrate`: measures this machine's devices, and checks the choice that follows.

mod cases;
mod check;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rustorch_runtime::{Bound, Calibration, Costs, DeviceType, OpCost, Runtime};
use serde_json::json;

use crate::args::{BackendArg, CoreMlArgs, DeviceArgs, Format, ThreadArgs};
use crate::devices::Devices;
use crate::output::{bytes, count, duration, json_line};
use crate::progress;

/// Time for each size of each operation on each device.
const EFFORT: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
#[command(after_help = "Measurements are used by runs with the same number of threads (-t).")]
pub(crate) struct Options {
    /// Measure only this device; earlier measurements of other devices are kept
    #[arg(short, long, value_name = "BACKEND")]
    backend: Option<DeviceType>,

    #[command(flatten)]
    coreml: CoreMlArgs,

    #[command(flatten)]
    workers: ThreadArgs,

    /// Check the choice of devices: run 30 operations on each device and compare the fastest with the chosen
    #[arg(long, conflicts_with = "backend")]
    check: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let args = DeviceArgs {
        backend: options
            .backend
            .map(BackendArg::Device)
            .into_iter()
            .collect(),
        gpus: Default::default(),
        coreml: options.coreml,
        workers: options.workers,
        strict: false,
        inject: Default::default(),
        route: Vec::new(),
    };
    if options.check {
        let devices = Devices::open(&args)?;
        return check::run(&devices.runtime, options.format);
    }
    let Devices {
        runtime, routing, ..
    } = Devices::find(&args)?;
    let devices = match routing.device {
        DeviceType::Auto => comparable(&runtime),
        device => vec![device],
    };
    let bar = progress::steps("measuring", 0);
    let measured = Calibration::measure(&runtime, &devices, EFFORT, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let mut calibration = measured?;
    let path = Calibration::path()
        .context("no cache directory for the calibration; set RUSTORCH_CACHE_DIR")?;
    // A calibration that is no longer valid is replaced as a whole.
    if let Ok(Some(older)) = Calibration::load(&path)
        && older.check(runtime.devices()).is_ok()
    {
        calibration.complete(older);
    }
    calibration.save(&path)?;
    let out = &mut io::stdout().lock();
    match options.format {
        Format::Text => text(&calibration, &path, out)?,
        Format::Json => {
            let file = path.display().to_string();
            json_line(out, &json!({"file": file, "calibration": calibration}))?;
        }
    }
    Ok(())
}

/// All devices but the reference, which is never chosen for its speed.
fn comparable(runtime: &Runtime) -> Vec<DeviceType> {
    let devices = runtime.devices().map(|info| info.device);
    devices.filter(|&d| d != DeviceType::Reference).collect()
}

/// Are both of the same measurement?
fn same(a: &OpCost, b: &OpCost) -> bool {
    (&a.example, a.dtype, a.bound) == (&b.example, b.dtype, b.bound)
}

/// The parameters of an operation as Rust prints it.
fn parameters(example: &str) -> String {
    let braces = example.find('{').zip(example.find('}'));
    let inner = braces.and_then(|(start, end)| example.get(start + 1..end));
    inner.map_or_else(String::new, |inner| format!(", {}", inner.trim()))
}

/// A table: work of each device per second, at the largest size.
fn text(calibration: &Calibration, path: &Path, out: &mut impl Write) -> Result<()> {
    let devices: Vec<(DeviceType, &Costs)> = calibration.devices().collect();
    let mut line = |name: &str, cells: Vec<String>| -> io::Result<()> {
        let cells = cells.iter().map(|cell| format!(" {cell:>18}"));
        writeln!(out, "{name:<48}{}", cells.collect::<String>())
    };
    line("", devices.iter().map(|(d, _)| d.to_string()).collect())?;
    let all = |cell: &dyn Fn(&Costs) -> String| -> Vec<String> {
        devices.iter().map(|(_, costs)| cell(costs)).collect()
    };
    let rate = |points: &[(f64, f64)], bound: Bound| match (points.last(), bound) {
        (Some((work, seconds)), _) if *seconds <= 0.0 || *work <= 0.0 => "-".to_owned(),
        (Some((work, seconds)), Bound::Bytes) => format!("{}/s", bytes((work / seconds) as u64)),
        (Some((work, seconds)), Bound::Macs) => {
            format!("{} MAC/s", count((work / seconds) as u64))
        }
        (None, _) => "-".to_owned(),
    };
    line("start and end of a run", all(&|costs| duration(costs.sync)))?;
    line(
        "launch of an operation",
        all(&|costs| duration(costs.launch)),
    )?;
    let transfer = |points: &[(f64, f64)]| rate(points, Bound::Bytes);
    line(
        "from the host",
        all(&|costs| transfer(costs.upload.points())),
    )?;
    line(
        "to the host",
        all(&|costs| transfer(costs.download.points())),
    )?;
    let mut rows: Vec<&OpCost> = Vec::new();
    for cost in devices.iter().flat_map(|(_, costs)| &costs.operations) {
        if rows.iter().all(|row| !same(row, cost)) {
            rows.push(cost);
        }
    }
    for &row in &rows {
        let cells = all(&|costs| {
            let found = costs.operations.iter().find(|cost| same(cost, row));
            found.map_or("-".to_owned(), |c| rate(c.curve.points(), row.bound))
        });
        let alone = (rows.iter()).all(|other| other.op != row.op || other.example == row.example);
        let parameters = match alone {
            true => String::new(),
            false => parameters(&row.example),
        };
        line(
            &format!("{} {}{parameters}", row.op.name(), row.dtype),
            cells,
        )?;
    }
    writeln!(out, "\nwritten to {}", path.display())?;
    Ok(())
}
