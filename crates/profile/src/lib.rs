//! A record of a runtime's activity: times, durations and speeds.
//!
//! ```text
//! Runtime ─ Event ─► Recorder ─ Record ─► a thread: KeyAverages, and
//!                                         Timeline (tracks) ─► Perfetto's protobuf or Chrome's JSON
//! ```
//!
//! | file | contents |
//! | --- | --- |
//! | `process.rs` | the trace of a whole process |
//! | `multi_gpu.rs`, `metrics.rs`, `metrics/` | figures from GPU drivers, sampled |
//! | `profiler.rs` | profiling a part of a program, steps of a loop |
//! | `recorder.rs` | events to files and averages, on a thread of its own |
//! | `perfetto.rs`, `chrome.rs` | formats of files |
//! | `timeline.rs` | the contents of tracks |
//! | `averages.rs` | times by kind of activity |
//! | `launches.rs` | facts of launches that are reported together |
//! | `names.rs` | names with numbers |
//! | `limits.rs` | measured limits of devices |
//! | `nvtx.rs`, `apple.rs` | ranges for tools of NVIDIA's, signposts for Apple's |
//! | `record.rs` | the recorded events |

#[cfg(target_vendor = "apple")]
mod apple;
mod averages;
mod chrome;
mod launches;
mod limits;
mod metrics;
mod multi_gpu;
mod names;
mod nvtx;
mod perfetto;
mod process;
mod profiler;
mod record;
mod recorder;
mod timeline;

/// A map that is asked for every event: by a hash that is quick, as its keys are the program's own.
type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

pub use averages::{KeyAverage, KeyAverages, Kind};
pub use limits::Limit;
pub use metrics::{GpuBenchmarkMetrics, GpuLink, GpuMonitor, GpuPath};
pub use multi_gpu::{GpuSample, MultiGpuProfiler};
pub use nvtx::Nvtx;
pub use process::{finish_trace, set_trace_path, trace_runtime};
pub use profiler::{Profile, Profiler, ProfilerOptions, Schedule, schedule};
