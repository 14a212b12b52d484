//! Measuring devices: the times of the operations of `probes.rs`.

pub(crate) mod calibration;
mod probes;

use std::time::Duration;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{DType, Graph, TensorType};

use self::probes::{Probe, TABLE};
use crate::devices::costs::work::Work;
use crate::platform::Instant;
use crate::{
    Bound, Costs, Curve, DeviceType, Executable, HostBuffer, OpCost, Routing, RunError, Runtime,
    Storage,
};

/// Launches that follow each other.
const CHAIN: usize = 64;
/// Runs of each measurement, at least and at most.
const RUNS: [usize; 2] = [5, 50];
/// So many times the intended time ends the runs of a size, even if they were few.
const PATIENCE: u32 = 4;
/// Bytes that are brought from memory to memory.
const TRANSFERS: [usize; 3] = [4 << 10, 1 << 20, 32 << 20];
/// The contents of memory for measurements: small numbers of all types. Untouched pages would all be one.
const FILLING: u8 = 0x11;

/// A device that is measured.
struct Candidate {
    device: DeviceType,
    costs: Costs,
}

impl Runtime {
    /// Measures the speed of devices: launches, transfers, and operations at several sizes. Each
    /// size gets about the time of `effort` on each device. `progress` gets the numbers of done and
    /// of all operations.
    ///
    /// Work that a device does not support is not measured on it. Nothing else changes; see
    /// [`Runtime::set_costs`].
    ///
    /// # Errors
    /// Fails if the device does not exist, or cannot even multiply matrices.
    pub fn measure(
        &self,
        devices: &[DeviceType],
        effort: Duration,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Vec<(DeviceType, Costs)>, RunError> {
        let mut operands = Operands::default();
        let mut candidates = (devices.iter())
            .map(|&device| {
                Ok(Candidate {
                    device,
                    costs: self.bare(device, effort, &mut operands)?,
                })
            })
            .collect::<Result<Vec<_>, RunError>>()?;
        for candidate in &mut candidates {
            self.transfers(candidate, effort, &mut operands)?;
        }
        let probes = probes::all();
        for (done, probe) in probes.iter().enumerate() {
            progress(done, probes.len());
            self.operation(&mut candidates, probe, effort, &mut operands)?;
        }
        progress(probes.len(), probes.len());
        Ok(candidates
            .into_iter()
            .map(|s| (s.device, s.costs))
            .collect())
    }

    /// The times of an operation at its sizes.
    fn operation(
        &self,
        candidates: &mut [Candidate],
        probe: &Probe,
        effort: Duration,
        operands: &mut Operands,
    ) -> Result<(), RunError> {
        let mut points: Vec<Vec<(f64, f64)>> = vec![Vec::new(); candidates.len()];
        let mut measured = None;
        for graph in probe.graphs() {
            let graph = graph?;
            let node = &graph.nodes()[graph.nodes().len() - 1];
            let work = Work::of(&graph, node);
            let amount = match probe.bound {
                Bound::Bytes => work.bytes,
                Bound::Macs => work.macs,
            };
            measured = Some((work.kind, work.example));
            let willing: Vec<bool> = (points.iter())
                .map(|points| is_quick(points, effort))
                .collect();
            let times = self.one_size(candidates, &willing, &graph, effort, operands)?;
            for ((candidate, points), time) in candidates.iter().zip(&mut points).zip(times) {
                let bare = candidate.costs.sync + candidate.costs.launch;
                if let Some(time) = time {
                    points.push((amount, time.saturating_sub(bare).as_secs_f64()));
                }
            }
        }
        for (candidate, points) in candidates.iter_mut().zip(points) {
            let curve = increasing(points);
            if let Some((op, example)) = &measured
                && !curve.points().is_empty()
            {
                let (dtype, bound) = (probe.dtype, probe.bound);
                candidate.costs.operations.push(OpCost {
                    op: *op,
                    example: example.clone(),
                    dtype,
                    bound,
                    curve,
                });
            }
        }
        Ok(())
    }

    /// The cost of empty runs and launches.
    fn bare(
        &self,
        device: DeviceType,
        effort: Duration,
        operands: &mut Operands,
    ) -> Result<Costs, RunError> {
        let mut chain = |n: usize| -> Result<Duration, RunError> {
            let mut graph = Graph::new();
            let x = graph.input(TensorType::new([1, 1], DType::F32))?;
            let y = (0..n).try_fold(x, |y, _| graph.matmul(y, x))?;
            graph.output(y);
            let mut run = self.prepared(device, graph, operands)?;
            usual(&mut [Some(&mut || run())], effort)?[0].ok_or_else(|| absent(device))
        };
        let (one, many) = (chain(1)?, chain(1 + CHAIN)?);
        let launch = many.saturating_sub(one) / CHAIN as u32;
        Ok(Costs {
            sync: one.saturating_sub(launch),
            launch,
            ..Costs::default()
        })
    }

    /// The cost of copies to a device and back.
    fn transfers(
        &self,
        candidate: &mut Candidate,
        effort: Duration,
        operands: &mut Operands,
    ) -> Result<(), RunError> {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for bytes in TRANSFERS {
            let host = operands.memory(0, bytes)?;
            let mut upload = || -> Result<Duration, RunError> {
                let storage = Storage::from_host(host.clone());
                let start = Instant::now();
                self.place(&storage, candidate.device)?;
                Ok(start.elapsed())
            };
            if let Some(time) = usual(&mut [Some(&mut upload)], effort)?[0] {
                up.push((bytes as f64, time.as_secs_f64()));
            }
            let mut graph = Graph::new();
            let x = graph.input(TensorType::new([bytes / 4], DType::F32))?;
            let y = graph.add(x, x)?;
            graph.output(y);
            let (routing, inputs) = (only(candidate.device), [Storage::from_host(host.clone())]);
            let mut download = || -> Result<Duration, RunError> {
                let results = self.run(&graph, &inputs, routing)?;
                let start = Instant::now();
                self.place(&results[0], DeviceType::Cpu)?;
                Ok(start.elapsed())
            };
            // Without a backend of the host, nothing is ever brought to it.
            if self.devices().any(|info| info.device == DeviceType::Cpu)
                && let Some(time) = usual(&mut [Some(&mut download)], effort)?[0]
            {
                down.push((bytes as f64, time.as_secs_f64()));
            }
        }
        candidate.costs.upload = increasing(up);
        candidate.costs.download = increasing(down);
        Ok(())
    }

    /// The times of a graph on those of the devices that are willing and able.
    fn one_size(
        &self,
        candidates: &[Candidate],
        willing: &[bool],
        graph: &Graph,
        effort: Duration,
        operands: &mut Operands,
    ) -> Result<Vec<Option<Duration>>, RunError> {
        let mut runs: Vec<_> = (candidates.iter().zip(willing))
            .map(|(candidate, willing)| {
                let mut prepare = || self.prepared(candidate.device, graph.clone(), operands);
                willing.then(&mut prepare)?.ok()
            })
            .collect();
        let mut runs: Vec<Option<Run>> = (runs.iter_mut())
            .map(|run| run.as_mut().map(|run| run as Run))
            .collect();
        usual(&mut runs, effort)
    }

    /// A graph that has run once on a device, so that everything is compiled and in place. It runs again and
    /// returns the time.
    fn prepared(
        &self,
        device: DeviceType,
        graph: Graph,
        operands: &mut Operands,
    ) -> Result<impl FnMut() -> Result<Duration, RunError> + use<>, RunError> {
        let inputs = operands.storages(graph.inputs())?;
        let executable: Executable = self.prepare(graph, only(device));
        let mut outputs = Vec::new();
        let mut run = move || {
            let start = Instant::now();
            executable.run_into(&[&inputs], &mut outputs)?;
            Ok(start.elapsed())
        };
        run()?;
        Ok(run)
    }
}

/// Something that runs, and says how long it took.
type Run<'a> = &'a mut dyn FnMut() -> Result<Duration, RunError>;

/// The median of each one's times, in turns, so that other work of the machine affects all.
fn usual(runs: &mut [Option<Run>], effort: Duration) -> Result<Vec<Option<Duration>>, RunError> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); runs.len()];
    let [least, most] = RUNS;
    for _ in 0..most {
        for (run, times) in runs.iter_mut().zip(&mut times) {
            let spent: Duration = times.iter().sum();
            if let Some(run) = run
                && (spent < effort || times.len() < least && spent < PATIENCE * effort)
            {
                times.push(run()?);
            }
        }
    }
    let medians = times.into_iter().map(|mut times| {
        sort_by_key(&mut times, |time| *time);
        times.get(times.len() / 2).copied()
    });
    Ok(medians.collect())
}

/// Was the last size quick enough for the next one?
fn is_quick(points: &[(f64, f64)], effort: Duration) -> bool {
    let last = points.last();
    last.is_none_or(|(_, seconds)| *seconds < effort.as_secs_f64())
}

/// A curve through the points, without those stalls that less work seems to take longer for.
fn increasing(mut points: Vec<(f64, f64)>) -> Curve {
    let mut least = f64::INFINITY;
    for (_, seconds) in points.iter_mut().rev() {
        least = least.min(*seconds);
        *seconds = least;
    }
    Curve::try_from(points).unwrap_or_default()
}

fn only(device: DeviceType) -> Routing {
    Routing {
        device,
        strict: true,
        ..Routing::AUTO
    }
}

fn absent(device: DeviceType) -> RunError {
    RunError::NoDevice {
        op: "calibration".to_owned(),
        node: None,
        call: None,
        tried: format!("{device}: not on this machine"),
    }
}

/// Memory that graphs read: a piece for each of their inputs, used again for the next graph. Filling memory
/// takes longer than most measurements.
#[derive(Default)]
struct Operands(Vec<HostBuffer>);

impl Operands {
    /// Storages of these types; indices lie all over the tables.
    fn storages(&mut self, types: &[TensorType]) -> Result<Vec<Storage>, RunError> {
        let storage = |(at, ty): (usize, &TensorType)| {
            Ok(Storage::from_host(match ty.dtype {
                DType::I32 => {
                    let index = |i: usize| (i * 37 % TABLE) as i32;
                    let indices = (0..ty.shape.elements()).flat_map(|i| index(i).to_ne_bytes());
                    host(&indices.collect::<Vec<u8>>())?
                }
                _ => self.memory(at, ty.bytes())?,
            }))
        };
        types.iter().enumerate().map(storage).collect()
    }

    /// So many bytes of the piece with this number.
    fn memory(&mut self, at: usize, bytes: usize) -> Result<HostBuffer, RunError> {
        while self.0.len() <= at {
            self.0.push(host(&[])?);
        }
        if self.0[at].bytes() < bytes {
            self.0[at] = host(&vec![FILLING; bytes])?;
        }
        Ok(self.0[at].first(bytes))
    }
}

fn host(bytes: &[u8]) -> Result<HostBuffer, RunError> {
    HostBuffer::copy_of(bytes).ok_or_else(|| RunError::NoDevice {
        op: "calibration".to_owned(),
        node: None,
        call: None,
        tried: format!("the host has no {} bytes", bytes.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_of_small_work_are_left_out() {
        let curve = increasing(vec![(1.0, 5.0), (2.0, 1.0), (3.0, 4.0)]);
        assert_eq!(curve.points(), [(1.0, 1.0), (2.0, 1.0), (3.0, 4.0)]);
        assert!(increasing(Vec::new()).points().is_empty());
    }

    #[test]
    fn the_median_counts_and_slow_runs_are_few() {
        let mut times = [9, 3, 5].into_iter().cycle();
        let mut quick = || Ok(Duration::from_millis(times.next().unwrap_or(0)));
        let mut runs = 0;
        let mut slow = || {
            runs += 1;
            Ok(Duration::from_secs(1))
        };
        let mut both: [Option<Run>; 3] = [Some(&mut quick), Some(&mut slow), None];
        let found = usual(&mut both, Duration::from_millis(30)).unwrap();
        let expected = [
            Some(Duration::from_millis(5)),
            Some(Duration::from_secs(1)),
            None,
        ];
        assert_eq!((&found[..], runs), (&expected[..], 1));
    }
}
