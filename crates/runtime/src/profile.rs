//! How long the operations of a plan take.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustorch_ir::Op;

use crate::costs::work::traffic;
use crate::journal::lock;
use crate::segment::Segment;
use crate::{DeviceError, DeviceInfo, DeviceType, Probe};

/// Times of a plan's nodes over its runs.
#[derive(Default)]
pub(crate) struct Profile {
    /// By index in the plan's graph.
    times: HashMap<usize, Duration>,
    runs: u32,
}

impl Profile {
    /// Runs a segment with the clock on.
    ///
    /// On the CPU each kernel's time is its own. Other devices work behind the caller's back:
    /// the segment's time is shared out by the bytes that its operations read and write.
    pub(crate) fn run(
        &mut self,
        segment: &Segment,
        info: &DeviceInfo,
        run: impl FnOnce(&dyn Probe) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let timer = Timer {
            now: Mutex::new((None, Instant::now())),
            times: Mutex::new(&mut self.times),
            first: segment.first,
        };
        if matches!(info.device, DeviceType::Cpu | DeviceType::Reference) {
            run(&timer)?;
            timer.turn(None);
            return Ok(());
        }
        let start = Instant::now();
        run(&crate::NoProbe)?;
        let elapsed = start.elapsed();
        let bytes: Vec<usize> = (segment.graph.nodes().iter())
            .map(|node| traffic(&segment.graph, node))
            .collect();
        let all = bytes.iter().sum::<usize>().max(1) as f64;
        for (node, bytes) in segment.nodes().zip(bytes) {
            let share = elapsed.mul_f64(bytes as f64 / all);
            *self.times.entry(node).or_default() += share;
        }
        Ok(())
    }

    /// A run of all segments is over.
    pub(crate) fn count_run(&mut self) {
        self.runs += 1;
    }

    /// The mean time of a node; `None` if it was never timed.
    pub(crate) fn time(&self, node: usize) -> Option<Duration> {
        let time = self.times.get(&node)?;
        time.checked_div(self.runs)
    }
}

/// Gives the time from one kernel's start to the next one's to the former.
struct Timer<'a> {
    /// The node that runs, and since when.
    now: Mutex<(Option<usize>, Instant)>,
    times: Mutex<&'a mut HashMap<usize, Duration>>,
    /// Index of the segment's first node in the plan's graph.
    first: usize,
}

impl Timer<'_> {
    fn turn(&self, node: Option<usize>) {
        let mut now = lock(&self.now);
        let (last, start) = std::mem::replace(&mut *now, (node, Instant::now()));
        if let Some(last) = last {
            let time = now.1 - start;
            *lock(&self.times).entry(self.first + last).or_default() += time;
        }
    }
}

impl Probe for Timer<'_> {
    fn before(&self, node: usize, _op: &Op) -> Result<(), DeviceError> {
        self.turn(Some(node));
        Ok(())
    }
}
