//! A profiler that also samples the drivers of all GPUs.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustorch_runtime::{DeviceInfo, DeviceType, Runtime};

use crate::metrics::{GpuBenchmarkMetrics, GpuMonitor};
use crate::profiler::{Profile, Profiler, ProfilerOptions};

/// A [`Profiler`] whose traces show each GPU's load, memory, temperature, power and clocks beside the work on
/// it. The figures are the driver's.
pub struct MultiGpuProfiler {
    profiler: Profiler,
    sampler: Option<Sampler>,
}

/// The thread that asks the drivers.
struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<GpuSample>>,
}

/// The state of the GPUs at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct GpuSample {
    /// Time since profiling began.
    pub at: Duration,
    /// The runtime's device of each GPU, if known, and the figures.
    pub gpus: Vec<(Option<DeviceType>, GpuBenchmarkMetrics)>,
}

impl MultiGpuProfiler {
    /// Begins to profile a runtime. Samples the drivers at once, and then every `period`.
    pub fn start(options: ProfilerOptions, runtime: &Runtime, period: Duration) -> Self {
        let profiler = options.start(runtime);
        let recorder = profiler.recorder();
        let infos: Vec<DeviceInfo> = runtime.devices().cloned().collect();
        let (stop, stopped) = mpsc::channel();
        let sample = move || {
            let monitor = GpuMonitor::open();
            let mut samples = Vec::new();
            loop {
                let gpus = monitor.sample().into_iter();
                let gpus: Vec<_> = gpus.map(|gpu| (gpu.device(&infos), gpu)).collect();
                let at = recorder.elapsed();
                for (device, gpu) in &gpus {
                    recorder.figures(*device, gpu);
                }
                samples.push(GpuSample { at, gpus });
                match stopped.recv_timeout(period) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return samples,
                }
            }
        };
        let named = thread::Builder::new().name("rustorch-gpus".to_owned());
        let sampler = match named.spawn(sample) {
            Ok(thread) => Some(Sampler { stop, thread }),
            Err(e) => {
                tracing::warn!("device load is not measured: cannot start a thread: {e}");
                None
            }
        };
        Self { profiler, sampler }
    }

    /// The same as [`Profiler::step`].
    pub fn step(&mut self) {
        self.profiler.step();
    }

    /// Stops profiling. Returns the profile and the drivers' samples, oldest first.
    pub fn finish(self) -> (Profile, Vec<GpuSample>) {
        let samples = self.sampler.map(|Sampler { stop, thread }| {
            drop(stop);
            thread.join().unwrap_or_default()
        });
        (self.profiler.finish(), samples.unwrap_or_default())
    }
}
