//! What runs when, for how long and how fast, with PyTorch's names.

pub use rustorch_profile::{
    GpuBenchmarkMetrics, GpuMonitor, GpuSample, KeyAverage, KeyAverages, Kind, Limit,
    MultiGpuProfiler, Profile, Profiler, ProfilerOptions, Schedule, schedule,
};

use crate::devices::runtime;

/// Calls `f` and looks on at what this thread's [`runtime`] does meanwhile.
///
/// Work that was recorded but not computed is not seen: it is computed when its values are asked
/// for, or by [`Tensor::eval`](crate::Tensor::eval).
pub fn profile<R>(f: impl FnOnce() -> R) -> (R, Profile) {
    let profiler = ProfilerOptions::new().keep().start(&runtime());
    let result = f();
    (result, profiler.finish())
}

/// Calls `f`, which traces and averages show by this name. That costs next to nothing while nobody
/// looks on.
pub fn record_function<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let _span = runtime().span(name);
    f()
}
