//! Random programs under random faults: no wrong result, and no call beyond its deadline.

use std::time::Duration;

use rustorch_comm::{CommError, Fault, Group, ThreadGroup};

use crate::program::{Random, Step};
use crate::{RANKS, on_ranks, options};

/// All with `RUSTORCH_TEST_FULL`.
fn cases() -> u64 {
    match std::env::var_os("RUSTORCH_TEST_FULL") {
        Some(_) => 10_000,
        None => 200,
    }
}

#[test]
fn random_faults_give_no_wrong_result_and_no_hang() {
    for seed in 0..cases() {
        let mut random = Random(seed);
        let ranks = random.one_of(&RANKS);
        let steps: Vec<_> = (0..6).map(|_| Step::random(&mut random, ranks)).collect();
        let count = random.below(4);
        let faults: Vec<_> = (0..count).map(|_| fault(&mut random, ranks)).collect();
        let outcomes = on_ranks(ranks, faults.clone(), |group| run(&group, &steps, &faults));
        check(seed, &faults, &outcomes);
    }
}

struct Outcome {
    error: Option<CommError>,
    /// Size and result of a call after the failure, if the rank went on.
    next: Option<(Vec<u32>, bool)>,
}

fn run(group: &ThreadGroup, steps: &[Step], faults: &[Fault]) -> Outcome {
    let delays: Duration = faults
        .iter()
        .map(|fault| match fault {
            Fault::Delay { by, .. } => *by,
            _ => Duration::ZERO,
        })
        .sum();
    for step in steps {
        let start = group.now();
        let result = step.run(group);
        let took = group.now() - start;
        // A delayed message does not make a call longer, but one that was sent late may.
        assert!(
            took <= options().deadline + options().settle + delays,
            "{step:?} took {took:?}"
        );
        match result {
            Ok(bytes) => assert!(
                bytes == step.expected(group.rank(), group.size()),
                "{step:?}"
            ),
            Err(error) => {
                assert_eq!(group.barrier(), Err(error.clone()), "a group stays failed");
                return Outcome {
                    error: Some(error),
                    next: go_on(group),
                };
            }
        }
    }
    Outcome {
        error: None,
        next: None,
    }
}

/// Makes a group of the remaining ranks, and finds its members.
fn go_on(group: &ThreadGroup) -> Option<(Vec<u32>, bool)> {
    let next = group.shrink().ok()?;
    let own = [group.rank() as u32];
    let mut members = vec![0; next.size()];
    let result = next.all_gather(own[..].into(), members[..].as_mut().into());
    Some((members, result.is_ok()))
}

fn fault(random: &mut Random, ranks: usize) -> Fault {
    let from = random.below(ranks);
    let to = (from + 1 + random.below(ranks - 1)) % ranks;
    let time = |random: &mut Random| Duration::from_millis(random.below(30_000) as u64);
    match random.below(5) {
        0 => Fault::Delay {
            from,
            to,
            by: time(random),
        },
        1 | 2 => Fault::Lose {
            from,
            to,
            message: random.below(8) as u64,
        },
        3 => Fault::Kill {
            rank: from,
            after: random.below(6 * ranks) as u64,
            silent: random.below(2) == 0,
        },
        _ => {
            let start = time(random) / 10;
            let side = (0..ranks).filter(|_| random.below(2) == 0).collect();
            Fault::Partition {
                side,
                start,
                end: start + time(random),
            }
        }
    }
}

fn check(seed: u64, faults: &[Fault], outcomes: &[Outcome]) {
    let case = || format!("seed {seed}: {faults:?}");
    let killed = |rank: usize| {
        faults
            .iter()
            .any(|fault| matches!(fault, Fault::Kill { rank: r, .. } if *r == rank))
    };
    let alive: Vec<usize> = (0..outcomes.len()).filter(|&rank| !killed(rank)).collect();
    let failures = alive
        .iter()
        .filter_map(|&rank| outcomes[rank].error.as_ref()?.failure());
    let failures: Vec<_> = failures.collect();
    if faults.is_empty() {
        assert!(failures.is_empty(), "{}", case());
    }
    if faults
        .iter()
        .all(|fault| matches!(fault, Fault::Kill { .. }))
    {
        // Messages arrive: those who fail agree, and the missing ranks are those killed.
        for failure in &failures {
            assert_eq!(failure, &failures[0], "{}", case());
            assert!(
                failure.missing.iter().all(|&rank| killed(rank)),
                "{}: {failure}",
                case()
            );
        }
    }
    // No rank is in two of the groups that go on, and one group at most has a result.
    let next = outcomes.iter().filter_map(|outcome| outcome.next.as_ref());
    let mut done: Vec<_> = next
        .filter(|(_, is_done)| *is_done)
        .map(|(members, _)| members)
        .collect();
    done.dedup();
    assert!(done.len() <= 1, "{}: {done:?}", case());
}
