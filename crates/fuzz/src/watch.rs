//! Ends the process when an input takes too long, in CPU time, since the machine may be busy.

use std::process::{self, abort};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Longest processor time of an input.
const MOST: Duration = Duration::from_secs(20);
/// Longest time of an input by the clock, even on a busy machine. It ends inputs that wait for ever.
const STILL: Duration = Duration::from_secs(3600);
/// Time between two looks at the input.
const PERIOD: Duration = Duration::from_secs(1);

/// Inputs that were tried, of all targets.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Another input was tried.
pub(crate) fn tried() {
    TRIED.fetch_add(1, Ordering::Relaxed);
}

/// Begins to look, from now on.
pub(crate) fn begin() {
    thread::spawn(|| {
        let begin = Instant::now();
        let mut processor_time = ProcessorTime::default();
        let mut since = Since::default();
        loop {
            let now = Since {
                tried: TRIED.load(Ordering::Relaxed),
                processors: processor_time.used(),
                clock: begin.elapsed(),
            };
            if let Some(reason) = since.look(now) {
                eprintln!("{reason}: it is the file that ends in .input");
                abort();
            }
            thread::sleep(PERIOD);
        }
    });
}

/// When the last input began, as far as was seen.
#[derive(Clone, Copy, Default)]
struct Since {
    tried: u64,
    processors: Duration,
    clock: Duration,
}

impl Since {
    /// Why the input takes too long now, if it does.
    fn look(&mut self, now: Self) -> Option<String> {
        if now.tried != self.tried {
            *self = now;
        }
        if now.processors.saturating_sub(self.processors) > MOST {
            return Some(format!("an input takes more than {MOST:?} of processors"));
        }
        (now.clock.saturating_sub(self.clock) > STILL)
            .then(|| format!("an input takes more than {STILL:?}"))
    }
}

/// Processor time of this process.
pub(crate) struct ProcessorTime {
    /// None where the system does not tell.
    system: Option<System>,
}

impl Default for ProcessorTime {
    fn default() -> Self {
        Self {
            system: System::new().ok(),
        }
    }
}

impl ProcessorTime {
    /// From the process's begin to now; nothing where the system does not tell.
    pub(crate) fn used(&mut self) -> Duration {
        let Some(system) = &mut self.system else {
            return Duration::ZERO;
        };
        let pid = Pid::from_u32(process::id());
        let what = ProcessRefreshKind::nothing().with_cpu();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
        let used = system
            .process(pid)
            .map(sysinfo::Process::accumulated_cpu_time);
        Duration::from_millis(used.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_its_time_of_processors_whatever_the_clock_says() {
        let at = |tried, processors, clock| Since {
            tried,
            processors: Duration::from_secs(processors),
            clock: Duration::from_secs(clock),
        };
        let mut since = Since::default();
        // A machine that others have: an hour brought five seconds.
        assert_eq!(since.look(at(0, 5, 3600)), None);
        // Each input's time is its own.
        assert_eq!(since.look(at(7, 19, 3700)), None);
        assert_eq!(since.look(at(7, 39, 3740)), None);
        let reason = since.look(at(7, 40, 3741)).unwrap();
        assert_eq!(reason, "an input takes more than 20s of processors");
        // One that waits for what never comes.
        assert_eq!(since.look(at(8, 50, 4000)), None);
        assert_eq!(since.look(at(8, 50, 7600)), None);
        let reason = since.look(at(8, 50, 7601)).unwrap();
        assert_eq!(reason, "an input takes more than 3600s");
    }

    #[test]
    fn time_of_processors_is_what_was_used() {
        let mut time = ProcessorTime::default();
        let before = time.used();
        let mut sum = 0_u64;
        // Ends only if it tells.
        while time.used() == before {
            sum = (0..100_000).fold(sum, |sum, i| sum.wrapping_mul(31).wrapping_add(i));
        }
        assert_ne!(sum, 0);
    }
}
