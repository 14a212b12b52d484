//! Collectives of threads and processes: results, failures, and random faults. A simulated clock makes waiting free.

mod failures;
#[cfg(unix)]
mod mpi;
#[cfg(unix)]
mod nccl;
mod processes;
mod program;
mod random;
mod results;

use std::thread;
use std::time::Duration;

use rustorch_comm::{CommError, Failure, Fault, Options, ThreadGroup};

pub(crate) const RANKS: [usize; 4] = [2, 3, 5, 8];

pub(crate) fn options() -> Options {
    Options {
        deadline: Duration::from_secs(10),
        settle: Duration::from_secs(1),
        ..Options::default()
    }
}

/// Runs a program on every rank, and returns their results.
pub(crate) fn on_ranks<T: Send>(
    ranks: usize,
    faults: Vec<Fault>,
    program: impl Fn(ThreadGroup) -> T + Sync,
) -> Vec<T> {
    let groups = ThreadGroup::simulate(ranks, options(), faults);
    let program = &program;
    thread::scope(|scope| {
        let start = |group| scope.spawn(move || program(group));
        let threads: Vec<_> = groups.into_iter().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// The failure on which all ranks agree.
pub(crate) fn agreed(results: Vec<Result<(), CommError>>) -> Failure {
    let failures: Vec<Failure> = (results.iter())
        .map(|result| result.as_ref().unwrap_err().failure().unwrap().clone())
        .collect();
    for failure in &failures {
        assert_eq!(*failure, failures[0]);
    }
    failures[0].clone()
}
