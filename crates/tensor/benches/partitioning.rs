//! Thirty graphs where the planner puts them, once devices are measured, beside each device alone.
//!
//! `cargo bench -p rustorch-tensor --bench partitioning -- DEVICE DEVICE… [THREADS]`
//!
//! Measures the devices, then runs each graph on each of them and as it is planned. Turns have two runs,
//! of which the second one is timed; the median counts. The expected time of the graph stands beside it.
//! Inputs are new in every run, weights are not.

use std::time::{Duration, Instant};

use rustorch_ir::{DType, TensorType};
use rustorch_runtime::{DeviceType, Executable, HostBuffer, Routing, RunError, Runtime, Storage};
use rustorch_tensor::backends;

#[path = "../../runtime/tests/executor/graphs.rs"]
mod graphs;

/// Time for each size that is measured.
const EFFORT: Duration = Duration::from_millis(20);

/// Runs of a graph, of which the median counts.
const RUNS: usize = 31;

/// Time after which something has run often enough.
const ENOUGH: Duration = Duration::from_millis(400);

fn main() {
    // Cargo adds arguments of its own.
    let words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    let (threads, devices): (Vec<String>, Vec<String>) =
        words.partition(|word| word.parse::<usize>().is_ok());
    let threads = threads.first().map_or(0, |n| n.parse().expect("a number"));
    let devices = devices.iter().map(|name| name.parse().expect("a device"));
    let devices: Vec<DeviceType> = devices.collect();
    assert!(devices.len() > 1, "usage: DEVICE DEVICE… [THREADS]");
    let all = backends(threads).into_iter();
    let runtime = Runtime::new(all.filter(|backend| devices.contains(&backend.info().device)));
    let measured = runtime.measure(&devices, EFFORT, |_, _| ());
    for (device, costs) in measured.expect("devices that can be measured") {
        runtime.set_costs(device, Some(costs));
    }
    print!("{:<36}", "graph");
    for device in &devices {
        print!(" {:>12} {:>12}", device.to_string(), "expected");
    }
    println!(
        " {:>12} {:>12} {:>8} {:>6}",
        "planned", "expected", "segments", "ratio"
    );
    let mut totals = [Duration::ZERO; 2];
    for case in graphs::all() {
        let [planned, best] = row(&runtime, &devices, &case).expect(case.name);
        totals[0] += planned;
        totals[1] += best;
    }
    let [planned, best] = totals;
    println!(
        "together: planned {planned:?}, each on the best device alone {best:?}, ratio {:.3}",
        planned.as_secs_f64() / best.as_secs_f64()
    );
}

/// Runs a graph and prints how long it took; as planned, and on the best device alone.
fn row(
    runtime: &Runtime,
    devices: &[DeviceType],
    case: &graphs::Case,
) -> Result<[Duration; 2], RunError> {
    let buffers: Vec<HostBuffer> = case.graph.inputs().iter().map(filled).collect();
    let prepare = |routing| {
        let executable = runtime.prepare(case.graph.clone(), routing);
        executable.with_fresh_inputs(case.fresh)
    };
    let alone = devices.iter().map(|&device| Routing {
        device,
        ..Routing::AUTO
    });
    let mut runs: Vec<Contestant> = (alone.chain([Routing::AUTO]))
        .map(|routing| Contestant::new(prepare(routing), &buffers, case.fresh))
        .collect();
    // The first run compiles, and brings weights to devices.
    runs.iter_mut().try_for_each(|run| run.run().map(|_| ()))?;
    let count = runs.len();
    for round in 0..RUNS {
        // Each in turn is the first one: who comes behind another would else always be the same.
        for at in 0..count {
            let run = &mut runs[(round + at) % count];
            if run.times.iter().sum::<Duration>() < ENOUGH {
                // Whoever ran before has left caches and threads as it needs them.
                run.run()?;
                let time = run.run()?;
                run.times.push(time);
            }
        }
    }
    let estimate = runs[devices.len()].executable.estimate()?;
    let estimate = estimate.expect("devices that were measured");
    let times: Vec<Duration> = runs.iter_mut().map(Contestant::median).collect();
    let (planned, alone) = (times[devices.len()], &times[..devices.len()]);
    let best = alone.iter().min().copied().unwrap_or_default();
    print!("{:<36}", case.name);
    let micros = |time: Duration| format!("{:>9.1} µs", time.as_secs_f64() * 1e6);
    for (device, &time) in devices.iter().zip(alone) {
        let expected = estimate.alone.iter().find(|(known, _)| known == device);
        let expected = expected.map_or(Duration::ZERO, |(_, time)| *time);
        print!(" {} {}", micros(time), micros(expected));
    }
    println!(
        " {} {} {:>8} {:>6.2}",
        micros(planned),
        micros(estimate.planned),
        estimate.segments,
        planned.as_secs_f64() / best.as_secs_f64()
    );
    Ok([planned, best])
}

/// A graph on its devices.
struct Contestant<'a> {
    executable: Executable,
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

    fn median(&mut self) -> Duration {
        self.times.sort();
        self.times
            .get(self.times.len() / 2)
            .copied()
            .unwrap_or_default()
    }
}

/// Numbers from -1 to 1, or indices of rows.
fn filled(ty: &TensorType) -> HostBuffer {
    let elements = 0..ty.shape.elements();
    let bytes: Vec<u8> = match ty.dtype {
        DType::I32 => elements
            .flat_map(|i| (i as i32 * 17).to_ne_bytes())
            .collect(),
        _ => elements
            .flat_map(|i| (((i * 7919) % 2003) as f32 / 1001.0 - 1.0).to_ne_bytes())
            .collect(),
    };
    HostBuffer::copy_of(&bytes).expect("memory")
}
