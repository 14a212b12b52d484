//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of a histogram's buckets, in seconds.
pub(crate) const BOUNDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

/// Counts of durations.
#[derive(Default)]
pub(crate) struct Histogram {
    /// By the first bound that is not below; the last has no bound.
    pub(crate) buckets: [AtomicU64; BOUNDS.len() + 1],
    pub(crate) micros: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS.iter().position(|&bound| seconds <= bound);
        self.buckets[bucket.unwrap_or(BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        self.micros
            .fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Durations of a model's answers.
#[derive(Default)]
pub(crate) struct ModelMetrics {
    pub(crate) first_token: Histogram,
    pub(crate) between_tokens: Histogram,
}
