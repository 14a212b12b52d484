//! The trace of a whole process, which `RUSTORCH_TRACE` enables.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use rustorch_runtime::{Observer, Runtime};

#[cfg(target_vendor = "apple")]
use crate::apple::Signposts;
use crate::nvtx::Nvtx;
use crate::profiler::{Profile, Profiler, ProfilerOptions};

/// Names the file of a trace of the process.
const VARIABLE: &str = "RUSTORCH_TRACE";

/// The trace of this process.
struct State {
    path: Option<PathBuf>,
    profiler: Option<Profiler>,
    /// Observer for a tool of NVIDIA's or Apple's; `None` within if there is none, or it cannot be reached.
    tool: Option<Option<Arc<dyn Observer>>>,
}

static STATE: Mutex<State> = Mutex::new(State {
    path: None,
    profiler: None,
    tool: None,
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes traces of this process to `path`, and ignores the variable `RUSTORCH_TRACE`.
pub fn set_trace_path(path: impl Into<PathBuf>) {
    state().path = Some(path.into());
}

/// The tool that observes this process, if there is one.
fn tool() -> Option<Arc<dyn Observer>> {
    #[cfg(target_vendor = "apple")]
    if let Some(signposts) = Signposts::wanted() {
        return Some(Arc::new(signposts));
    }
    if !Nvtx::is_wanted() {
        return None;
    }
    let loaded = Nvtx::load().map_err(|why| tracing::warn!("{why}"));
    Some(Arc::new(loaded.ok()?))
}

/// Adds this runtime to the process's trace, if [a path is set](set_trace_path) or `RUSTORCH_TRACE`
/// names a file. The trace is written while the process runs, and ends with it. If a tool of
/// NVIDIA's or Apple's observes the process, it gets the host's activity.
pub fn trace_runtime(runtime: &Runtime) {
    let mut state = state();
    let tool = state.tool.get_or_insert_with(tool);
    tool.iter()
        .for_each(|tool| runtime.add_observer(tool.clone()));
    let of_environment = || {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        path.map(PathBuf::from)
    };
    let path = state.path.clone().or_else(of_environment);
    match (&mut state.profiler, path) {
        (Some(profiler), _) => profiler.also(runtime),
        (None, Some(path)) => {
            state.profiler = Some(ProfilerOptions::new().trace(path).start(runtime));
            static AT_EXIT: Once = Once::new();
            AT_EXIT.call_once(|| {
                // SAFETY: the function takes nothing and does not unwind: panics of it abort.
                let _ = unsafe { libc::atexit(at_exit) };
            });
        }
        (None, None) => {}
    }
}

/// Ends the trace of the process, if there is one.
pub fn finish_trace() -> Option<Profile> {
    let profiler = state().profiler.take();
    profiler.map(Profiler::finish)
}

extern "C" fn at_exit() {
    drop(finish_trace());
}
