//! `calibrate --check`: compares the chosen device with the best one in hindsight.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustorch_ir::{DType, TensorType};
use rustorch_runtime::{DeviceType, Executable, HostBuffer, Routing, RunError, Runtime, Storage};
use serde_json::json;

use super::cases::{self, Case};
use super::comparable;
use crate::args::Format;
use crate::output::{duration, json_line};
use crate::progress;

/// Runs of each case on each device; the median counts.
const RUNS: usize = 15;
/// Time after which a device has run a case often enough.
const ENOUGH: Duration = Duration::from_millis(400);
/// The contents of memory without indices: small numbers of all types.
const FILLING: u8 = 0x11;

/// The result of a case.
struct Row {
    name: &'static str,
    /// The median time on each device; `None` where it cannot be run.
    times: Vec<Option<Duration>>,
    chosen: usize,
    reason: String,
}

impl Row {
    /// The device that was fastest.
    fn best(&self) -> usize {
        let times = self.times.iter().enumerate();
        let known = times.filter_map(|(i, time)| Some(((*time)?, i)));
        known.min().map_or(self.chosen, |(_, i)| i)
    }

    fn time(&self, device: usize) -> Duration {
        self.times[device].unwrap_or_default()
    }
}

pub(super) fn run(runtime: &Runtime, format: Format) -> Result<()> {
    let devices = comparable(runtime);
    let cases = cases::all()?;
    let bar = progress::steps("checking", cases.len());
    let mut rows = Vec::with_capacity(cases.len());
    for case in cases {
        let name = case.name;
        rows.push(measure(runtime, &devices, case).context(name)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let total = |device: fn(&Row) -> usize| -> Duration {
        rows.iter().map(|row| row.time(device(row))).sum()
    };
    let (chosen, best) = (total(|row| row.chosen), total(Row::best));
    let ratio = chosen.as_secs_f64() / best.as_secs_f64();
    let out = &mut io::stdout().lock();
    match format {
        Format::Text => {
            text(&rows, &devices, out)?;
            let (chosen, best) = (duration(chosen), duration(best));
            writeln!(
                out,
                "\nchosen {chosen}, best by hindsight {best}: ratio {ratio:.3}"
            )?;
        }
        Format::Json => {
            let seconds = |time: Option<Duration>| time.map(|t| t.as_secs_f64());
            let row = |row: &Row| {
                let times = devices.iter().zip(&row.times);
                let times = times.map(|(d, time)| (d.to_string(), json!(seconds(*time))));
                json!({
                    "case": row.name,
                    "seconds": times.collect::<serde_json::Map<_, _>>(),
                    "chosen": devices[row.chosen].to_string(),
                    "reason": row.reason,
                    "best": devices[row.best()].to_string(),
                })
            };
            let value = json!({
                "cases": rows.iter().map(row).collect::<Vec<_>>(),
                "chosen_seconds": chosen.as_secs_f64(),
                "best_seconds": best.as_secs_f64(),
                "ratio": ratio,
            });
            json_line(out, &value)?;
        }
    }
    Ok(())
}

fn text(rows: &[Row], devices: &[DeviceType], out: &mut impl Write) -> io::Result<()> {
    write!(out, "{:<32}", "case")?;
    for device in devices {
        write!(out, " {:>12}", device.to_string())?;
    }
    writeln!(out, "  {:<12} {:<12} why", "chosen", "best")?;
    for row in rows {
        write!(out, "{:<32}", row.name)?;
        for time in &row.times {
            let time = time.map_or_else(|| "-".to_owned(), duration);
            write!(out, " {time:>12}")?;
        }
        let [chosen, best] = [row.chosen, row.best()].map(|i| devices[i].to_string());
        writeln!(out, "  {chosen:<12} {best:<12} {}", row.reason)?;
    }
    Ok(())
}

/// Runs a case on each device in turns, and asks where it would go.
fn measure(runtime: &Runtime, devices: &[DeviceType], case: Case) -> Result<Row> {
    let Case { name, graph, fresh } = case;
    let buffers = (graph.inputs().iter())
        .map(|ty| filled(ty).context("the host has no memory left"))
        .collect::<Result<Vec<_>>>()?;
    let prepare = |routing| {
        let executable = runtime.prepare(graph.clone(), routing);
        executable.with_fresh_inputs(fresh)
    };
    let plan = prepare(Routing::AUTO).explain()?;
    // Constants, which come first, go where they are read.
    let last = plan.last().context("a graph that computes nothing")?;
    let chosen = devices.iter().position(|d| *d == last.device);
    let mut runs: Vec<Option<Contestant>> = (devices.iter())
        .map(|&device| {
            let routing = Routing {
                device,
                strict: true,
                ..Routing::AUTO
            };
            let mut run = Contestant::new(prepare(routing), &buffers, fresh);
            // The first run compiles, and brings weights to the device.
            run.run().ok().map(|_| run)
        })
        .collect();
    for _ in 0..RUNS {
        for run in runs.iter_mut().flatten() {
            if run.times.iter().sum::<Duration>() < ENOUGH {
                let time = run.run()?;
                run.times.push(time);
            }
        }
    }
    let times = runs.into_iter().map(|run| {
        let mut times = run?.times;
        times.sort();
        times.get(times.len() / 2).copied()
    });
    Ok(Row {
        name,
        times: times.collect(),
        chosen: chosen.context("the reference is chosen")?,
        reason: last.reason.clone(),
    })
}

/// A case on one device.
struct Contestant<'a> {
    executable: Executable,
    /// New in every run.
    fresh: &'a [HostBuffer],
    weights: Vec<Storage>,
    outputs: Vec<Storage>,
    times: Vec<Duration>,
}

impl<'a> Contestant<'a> {
    fn new(executable: Executable, buffers: &'a [HostBuffer], fresh: usize) -> Self {
        let (fresh, weights) = buffers.split_at(fresh);
        Self {
            executable,
            fresh,
            weights: weights.iter().cloned().map(Storage::from_host).collect(),
            outputs: Vec::new(),
            times: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<Duration, RunError> {
        let fresh: Vec<Storage> = self.fresh.iter().cloned().map(Storage::from_host).collect();
        let start = Instant::now();
        (self.executable).run_into(&[&fresh, &self.weights], &mut self.outputs)?;
        Ok(start.elapsed())
    }
}

/// Operands: numbers from -1 to 1, indices of all rows, blocks of anything.
fn filled(ty: &TensorType) -> Option<HostBuffer> {
    let n = ty.shape.elements();
    let bytes: Vec<u8> = match ty.dtype {
        DType::F32 => (0..n)
            .flat_map(|i| (((i * 7919) % 2003) as f32 / 1001.0 - 1.0).to_ne_bytes())
            .collect(),
        DType::I32 => (0..n).flat_map(|i| (i as i32 * 17).to_ne_bytes()).collect(),
        _ => vec![FILLING; ty.bytes()],
    };
    HostBuffer::copy_of(&bytes)
}
