//! Times of the launches of a step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustorch_runtime::{Event, LaunchInfo, Observer, Runtime};
use serde::Serialize;

/// Launches of one kind: of the same operations, bytes and multiplications.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Launch {
    /// The operations.
    pub name: String,
    /// Number of them in a step.
    pub calls: f64,
    /// Their time in a step.
    pub seconds: f64,
    /// Bytes that each reads and writes, about.
    pub bytes: u64,
    /// Multiplications and additions of each.
    pub flops: u64,
}

/// Counts and sums the times of the launches of a runtime until it is dropped.
pub(super) struct Launches {
    runtime: Runtime,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen(Mutex<HashMap<LaunchInfo, (u64, Duration)>>);

impl Seen {
    fn add(&self, launch: &LaunchInfo, time: Duration) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, total) = seen.entry(launch.clone()).or_default();
        *calls += 1;
        *total += time;
    }
}

impl Observer for Seen {
    fn saw(&self, event: Event<'_>) {
        if let Event::Launched(launched) = event {
            for (launch, _, time) in launched.iter() {
                self.add(launch, time);
            }
        }
    }
}

impl Launches {
    pub(super) fn watch(runtime: &Runtime) -> Self {
        let seen = Arc::new(Seen::default());
        runtime.add_observer(seen.clone());
        Self {
            runtime: runtime.clone(),
            seen,
        }
    }

    /// The launches of each of `steps` steps, the longest first.
    pub(super) fn of_each(self, steps: usize) -> Vec<Launch> {
        let seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        let launches = seen.iter().map(|(launch, &(calls, time))| Launch {
            name: launch.name.clone(),
            calls: calls as f64 / steps as f64,
            seconds: time.as_secs_f64() / steps as f64,
            bytes: launch.bytes,
            flops: launch.flops,
        });
        let mut launches: Vec<Launch> = launches.collect();
        launches.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.name.cmp(&b.name)));
        launches
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        let observer: Arc<dyn Observer> = self.seen.clone();
        self.runtime.remove_observer(&observer);
    }
}
