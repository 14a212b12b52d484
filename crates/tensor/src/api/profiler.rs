//! A record of times, durations and speeds, with PyTorch's names.

pub use rustorch_profile::{
    GpuBenchmarkMetrics, GpuMonitor, GpuSample, KeyAverage, KeyAverages, Kind, Limit,
    MultiGpuProfiler, Profile, Profiler, ProfilerOptions, Schedule, schedule,
};

use crate::device::devices::runtime;

/// Calls `f` and profiles this thread's [`runtime`] during the call.
///
/// Recorded work that is not computed does not appear. It is computed when its values are read, or
/// by [`Tensor::eval`](crate::Tensor::eval).
pub fn profile<R>(f: impl FnOnce() -> R) -> (R, Profile) {
    let profiler = ProfilerOptions::new().keep().start(&runtime());
    let result = f();
    (result, profiler.finish())
}

/// Calls `f` and gives it this name in traces and averages. Without observers it costs almost
/// nothing.
pub fn record_function<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let _span = runtime().span(name);
    f()
}
