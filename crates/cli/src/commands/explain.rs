//! `explain`: the device of each operation of a run, with the reason and the time.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustorch_ir::passes::Stages;
use rustorch_llm::{Scores, Selection, Session};
use rustorch_profile::{KeyAverages, ProfilerOptions};
use rustorch_runtime::{
    DeviceSelector, DeviceType, Explanation, PreferredUnits, Runtime, lowering_passes,
};
use serde_json::{Value, json};

use super::generate::Options;
use crate::args::Format;
use crate::output::{bytes, duration, json_line};
use crate::settings::{layer_lines, layer_runs, layers_json};

/// Tokens that are decoded to measure a step.
const STEPS: usize = 8;
/// Time for each size of an operation, if there is no calibration.
const EFFORT: Duration = Duration::from_millis(2);

/// The operations of one forward pass.
struct Pass {
    name: &'static str,
    tokens: usize,
    rows: Vec<Explanation>,
    /// The passes over the graph, by their stages.
    stages: Stages,
    /// The preferred units of devices with several units.
    preferred: Vec<PreferredUnits>,
    /// The wall time of such a pass, while its operations were timed.
    wall: Option<Duration>,
    /// The time by kind of launch, over all measured passes.
    averages: KeyAverages,
}

/// The measurements of a pass.
struct Measured {
    wall: Duration,
    averages: KeyAverages,
}

impl Pass {
    /// The times of all operations together.
    fn measured(&self) -> Duration {
        self.rows.iter().filter_map(|row| row.measured).sum()
    }

    /// The pass as JSON, times in microseconds.
    fn json(&self, layers: &[Value]) -> Value {
        let micros = |time: Option<Duration>| time.map(|t| t.as_secs_f64() * 1e6);
        let row = |row: &Explanation| {
            json!({
                "op": row.op,
                "count": row.count,
                "device": row.device.to_string(),
                "reason": row.reason,
                "replaces": row.replaces,
                "bytes": row.bytes,
                "moved_bytes": row.moved(),
                "expected_us": micros(row.expected),
                "measured_us": micros(row.measured),
            })
        };
        let preferred = self.preferred.iter().map(|preferred| {
            json!({
                "device": preferred.device.to_string(),
                "unit": preferred.unit,
                "operations": preferred.operations,
            })
        });
        json!({
            "pass": self.name,
            "tokens": self.tokens,
            "layers": layers,
            "operations": self.rows.iter().map(row).collect::<Vec<_>>(),
            "preferred_units": preferred.collect::<Vec<_>>(),
            "measured_us": micros(self.wall.map(|_| self.measured())),
            "wall_us": micros(self.wall),
            "key_averages": self.averages,
        })
    }
}

pub(super) fn run(options: &Options) -> Result<()> {
    let (devices, source) = (options.devices()?, options.source());
    let model = source.load()?;
    let settings = options.settings(&model, &devices)?;
    let layers = layer_runs(&settings.layers);
    let selection = options.selection(&model)?;
    let mut session = Session::new(&model, &devices.runtime, settings.session)?;
    // Without a vocabulary there is no prompt, and still a token to decode.
    let prompt = match model.tokenizer() {
        Ok(tokenizer) => options.prompt(&source, tokenizer)?.ids,
        Err(_) => vec![0],
    };
    let batch = &prompt[..prompt.len().min(session.batch())];
    let plan = |session: &Session| {
        [("prompt", batch.len().max(1)), ("decode", 1)]
            .into_iter()
            .map(|(name, tokens)| {
                let rows = session
                    .explain(tokens, &selection)
                    .with_context(|| source.to_string())?;
                let stages = session.passes(tokens, &selection)?;
                let wall = None;
                Ok(Pass {
                    name,
                    tokens,
                    rows,
                    stages,
                    preferred: session.preferred_units(tokens, &selection),
                    wall,
                    averages: KeyAverages::default(),
                })
            })
            .collect::<Result<Vec<_>>>()
    };
    // The plan shows where operations go once all is compiled.
    devices.runtime.set_background_compilation(false);
    // A device that fails while it is measured changes the plan, which is then shown.
    know_costs(&devices.runtime, &plan(&session)?);
    let measured = measure(&mut session, &devices.runtime, batch, &selection);
    let mut passes = plan(&session)?;
    match measured {
        Ok(measured) => {
            for (pass, measured) in passes.iter_mut().zip(measured) {
                pass.wall = Some(measured.wall);
                pass.averages = measured.averages;
            }
        }
        Err(e) => tracing::warn!("cannot measure times: {e:#}"),
    }

    let out = &mut io::stdout().lock();
    match options.format() {
        Format::Text => {
            for line in layers.iter().flat_map(layer_lines) {
                writeln!(out, "{line}")?;
            }
            passes.iter().try_for_each(|pass| table(pass, out))?;
        }
        Format::Json => {
            let layers = layers_json(&layers);
            let passes = passes.iter().map(|pass| pass.json(&layers));
            json_line(out, &passes.collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// Measures the devices in use, quickly, if there is no calibration for them. The choice of devices
/// stays that of a run, which has no such measurements.
fn know_costs(runtime: &Runtime, passes: &[Pass]) {
    let rows = passes.iter().flat_map(|pass| &pass.rows);
    let mut unknown: Vec<DeviceType> = rows.map(|row| row.device).collect();
    unknown.sort_by_key(DeviceType::to_string);
    unknown.dedup();
    unknown.retain(|&device| runtime.costs(device).is_none());
    if unknown.is_empty() {
        return;
    }
    runtime.set_selector(DeviceSelector {
        compares: false,
        ..DeviceSelector::default()
    });
    for device in unknown {
        match runtime.measure(&[device], EFFORT, |_, _| ()) {
            Ok(costs) => (costs.into_iter())
                .for_each(|(device, costs)| runtime.set_costs(device, Some(costs))),
            Err(e) => tracing::warn!("cannot measure {device}: {e}"),
        }
    }
}

/// Runs both passes with timing on, after one pass without. Returns the times.
fn measure(
    session: &mut Session,
    runtime: &Runtime,
    prompt: &[u32],
    selection: &Selection,
) -> Result<[Measured; 2]> {
    let steps = STEPS.min(session.context().saturating_sub(prompt.len()));
    let mut scores = Scores::default();
    // Once without, so that all is compiled.
    session.truncate(0);
    session.feed_and_select(prompt, selection, &mut scores)?;
    for _ in 0..steps {
        session.feed_and_select(&prompt[..1], selection, &mut scores)?;
    }
    session.truncate(0);
    runtime.set_profiling(true);
    let measured = [(prompt, 1), (&prompt[..1], steps)].map(|(batch, times)| {
        let profiler = ProfilerOptions::new().start(runtime);
        let start = Instant::now();
        let fed =
            (0..times).try_for_each(|_| session.feed_and_select(batch, selection, &mut scores));
        let wall = start.elapsed() / u32::try_from(times.max(1)).unwrap_or(u32::MAX);
        let averages = profiler.finish().key_averages().clone();
        fed.map(|()| Measured { wall, averages })
    });
    runtime.set_profiling(false);
    let [prompt, step] = measured;
    Ok([prompt?, step?])
}

fn table(pass: &Pass, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}: {} at a time", pass.name, pass.tokens)?;
    writeln!(
        out,
        "  {:<16} {:>6} {:<12} {:>10} {:>10} {:>10} {:>10}  why",
        "operation", "count", "device", "results", "moved", "expected", "measured"
    )?;
    for row in &pass.rows {
        let replaces = match row.replaces.as_str() {
            "" => String::new(),
            names => format!(" (for {names})"),
        };
        writeln!(
            out,
            "  {:<16} {:>6} {:<12} {:>10} {:>10} {:>10} {:>10}  {}{replaces}",
            row.op,
            row.count,
            row.device.to_string(),
            bytes(row.bytes as u64),
            bytes(row.moved() as u64),
            time(row.expected),
            match row.measured {
                None if pass.wall.is_some() => "unknown".to_owned(),
                measured => time(measured),
            },
            row.reason,
        )?;
    }
    if let Some(wall) = pass.wall {
        let (measured, wall) = (duration(pass.measured()), duration(wall));
        writeln!(out, "  sum of operations {measured}, whole pass {wall}")?;
    }
    if !pass.averages.0.is_empty() {
        writeln!(out, "\n  time by kind of launch, over all measured passes:")?;
        let lines = pass.averages.to_string();
        lines
            .lines()
            .try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    for preferred in &pass.preferred {
        writeln!(out, "  {preferred} (where they ran is not reported)")?;
    }
    writeln!(out)?;
    if tracing::enabled!(tracing::Level::INFO) {
        stages(pass, out)?;
    }
    Ok(())
}

/// The passes over the graph, in order, with the operations that they put in place of others.
fn stages(pass: &Pass, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "passes over the graph of {}:", pass.name)?;
    for (stage, changes) in &pass.stages {
        for changes in changes {
            let text = changes.to_string().replace('\n', "\n    ");
            writeln!(out, "  {stage}: {text}")?;
        }
    }
    let launches: usize = pass.rows.iter().map(|row| row.count).sum();
    let names: Vec<&str> = lowering_passes().collect();
    writeln!(out, "  lowered: {}: {launches} launches", names.join(", "))?;
    writeln!(out)
}

fn time(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), duration)
}
