//! Read bandwidth of the processor's threads. It is measured here, since this crate is compiled to be fast.

use std::hint::black_box;
use std::time::Duration;

use rustorch_runtime::platform::Instant;

use crate::pool::Pool;

/// Beyond the caches of most processors.
const BYTES: usize = 512 << 20;
const PART: usize = 1 << 20;
const PASSES: usize = 5;

/// Bytes a second of the best of several passes, by as many threads as compute. `None` if there
/// is no memory for the test.
pub fn measure(threads: usize) -> Option<f64> {
    let words = BYTES / size_of::<u64>();
    let mut memory: Vec<u64> = Vec::new();
    memory.try_reserve_exact(words).ok()?;
    // Every page of its own: the system maps zeros to a single one.
    memory.extend(0..words as u64);
    let pool = Pool::new(threads);
    let parts: Vec<&[u64]> = memory.chunks(PART / size_of::<u64>()).collect();
    let pass = |_| {
        let start = Instant::now();
        pool.run(parts.len(), &|part| {
            black_box(sum(parts[part]));
        });
        start.elapsed()
    };
    let best: Duration = (0..PASSES).map(pass).min()?;
    Some(BYTES as f64 / best.as_secs_f64())
}

/// A sum in lanes, so that memory and not the adding takes the time.
fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0_u64; 16];
    for group in words.chunks_exact(lanes.len()) {
        for (lane, word) in lanes.iter_mut().zip(group) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.into_iter().fold(0, u64::wrapping_add)
}
