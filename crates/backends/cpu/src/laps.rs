//! Times of the launches of a run: a launch begins when the one before is over.
//!
//! Between two launches only the processor's counter is read. The clock takes longer than many launches of a small
//! model. The clock is read when the run begins and when its times are reported. The counter divides the time
//! between these two.

use std::sync::Arc;
use std::time::Duration;

use rustorch_runtime::platform::Instant;
use rustorch_runtime::{LaunchTime, Nodes, Probe};

/// Counts after which times are reported for a run that is not over: 8 to 34 ms.
const LATE: u64 = 1 << 25;

/// Binary places of the nanoseconds that are a step of the counter.
const FRACTION: u32 = 32;

/// The clock and the counter at one moment.
#[derive(Clone, Copy)]
struct Reading {
    /// Time since the run began.
    since: Duration,
    count: u64,
}

/// Notes when launches are over. Tells of them when it is dropped, if not before.
pub(crate) struct Laps<'a> {
    /// Start of the run.
    begin: Instant,
    launches: &'a Arc<[Nodes]>,
    probe: &'a dyn Probe,
    /// Number of reported launches.
    told: usize,
    /// End of the last reported launch.
    last: Reading,
    /// The counter at the end of each launch behind them.
    counts: Vec<u64>,
}

impl<'a> Laps<'a> {
    /// Laps of a run of `launches` that began then, and whose next launch is the first one.
    pub(crate) fn new(begin: Instant, launches: &'a Arc<[Nodes]>, probe: &'a dyn Probe) -> Self {
        Self {
            begin,
            launches,
            probe,
            told: 0,
            last: read(begin),
            counts: Vec::with_capacity(launches.len()),
        }
    }

    /// A launch is over.
    pub(crate) fn lap(&mut self) {
        let count = counter(self.begin);
        self.counts.push(count);
        if count.wrapping_sub(self.last.count) > LATE {
            self.tell();
        }
    }

    /// Reports the launches that were not reported yet.
    #[cold]
    fn tell(&mut self) {
        let now = read(self.begin);
        let times = times(self.last, now, &self.counts);
        self.probe.took(self.launches, self.told, &times);
        self.told += times.len();
        self.last = now;
        self.counts.clear();
    }
}

impl Drop for Laps<'_> {
    fn drop(&mut self) {
        if !self.counts.is_empty() {
            self.tell();
        }
    }
}

/// The times of launches that began at `first`, and each when the one before was over.
fn times(first: Reading, last: Reading, counts: &[u64]) -> Vec<LaunchTime> {
    let time = last.since.saturating_sub(first.since);
    // A counter may stand still, or be another one's on another core.
    let counted = last.count.saturating_sub(first.count);
    let each = (time.as_nanos() << FRACTION).div_ceil(counted.max(1).into());
    let mut before = first.since.as_nanos() as u64;
    let begin = before;
    let times = counts.iter().map(|count| {
        let part = count.saturating_sub(first.count).min(counted);
        let end = begin + ((u128::from(part) * each) >> FRACTION) as u64;
        let end = end.max(before);
        let launch = LaunchTime {
            since: before,
            time: end - before,
        };
        before = end;
        launch
    });
    times.collect()
}

fn read(begin: Instant) -> Reading {
    Reading {
        since: begin.elapsed(),
        count: counter(begin),
    }
}

/// A counter of constant pace, at 1 to 4 GHz.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn counter(_: Instant) -> u64 {
    // SAFETY: every processor of this kind has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A counter of constant pace: the clock's nanoseconds.
#[cfg(any(not(target_arch = "x86_64"), miri))]
fn counter(begin: Instant) -> u64 {
    begin.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::thread::sleep;

    use rustorch_ir::Op;
    use rustorch_runtime::DeviceError;
    use smallvec::smallvec;

    use super::*;

    /// The number of the first launch, and the times, of each call.
    #[derive(Default)]
    struct Told(RefCell<Vec<(usize, Vec<LaunchTime>)>>);

    impl Probe for Told {
        fn before(&self, _: usize, _: &Op) -> Result<(), DeviceError> {
            Ok(())
        }

        fn took(&self, _: &Arc<[Nodes]>, first: usize, times: &[LaunchTime]) {
            self.0.borrow_mut().push((first, times.to_vec()));
        }
    }

    #[test]
    fn launches_are_told_of_before_a_long_run_is_over() {
        let launches: Arc<[Nodes]> = (0..3).map(|node| smallvec![node]).collect();
        let (told, begin) = (Told::default(), Instant::now());
        let mut laps = Laps::new(begin, &launches, &told);
        laps.lap();
        sleep(Duration::from_millis(50));
        laps.lap();
        assert!(!told.0.borrow().is_empty());
        laps.lap();
        drop(laps);
        let whole = begin.elapsed();
        let told = told.0.into_inner();
        assert!(told.len() > 1, "{told:?}");
        let mut all = Vec::new();
        for (first, times) in told {
            assert_eq!(first, all.len());
            all.extend(times);
        }
        assert_eq!(all.len(), launches.len());
        assert!(all[1].time >= 25_000_000, "{all:?}");
        for pair in all.windows(2) {
            let end = pair[0].since + pair[0].time;
            assert!(end <= pair[1].since, "{all:?}");
        }
        let end = Duration::from_nanos(all[2].since + all[2].time);
        assert!(end <= whole, "{all:?}");
    }

    fn at(since: u64, count: u64) -> Reading {
        Reading {
            since: Duration::from_nanos(since),
            count,
        }
    }

    #[test]
    fn times_are_parts_of_what_the_clock_says() {
        // The counter goes on by three in a nanosecond.
        let told = times(at(50, 1000), at(150, 1300), &[1030, 1030, 1240]);
        let expected =
            [(50, 10), (60, 0), (60, 70)].map(|(since, time)| LaunchTime { since, time });
        assert_eq!(told, expected);
    }

    #[test]
    fn a_counter_that_jumps_stays_inside_of_the_run() {
        for counts in [[900, 2000, 1100], [u64::MAX, 0, 1300], [1000; 3]] {
            let told = times(at(50, 1000), at(150, 1300), &counts);
            let mut end = 50;
            for LaunchTime { since, time } in told {
                assert_eq!(since, end, "{counts:?}");
                end += time;
            }
            assert!(end <= 150, "{counts:?}");
        }
        // It went back.
        let told = times(at(50, 1000), at(150, 10), &[1030, 5]);
        assert_eq!(told, [LaunchTime { since: 50, time: 0 }; 2]);
    }
}
