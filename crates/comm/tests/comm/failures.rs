//! Failures: every rank gets the same error, which names the call, the missing ranks and the cause.

use std::time::Duration;

use rustorch_comm::{Cause, CommError, Fault, Group, ReduceOp};

use crate::{RANKS, agreed, on_ranks, options};

fn sum(group: &dyn Group, shape: usize) -> Result<(), CommError> {
    group.all_reduce(vec![1.0_f32; shape][..].as_mut().into(), ReduceOp::Sum)
}

fn killed(rank: usize, after: u64, silent: bool) -> Vec<Fault> {
    vec![Fault::Kill {
        rank,
        after,
        silent,
    }]
}

#[test]
fn a_killed_rank_is_named_by_all_others() {
    for ranks in RANKS {
        for silent in [false, true] {
            // It sends its parts of two collectives, and a part of the third.
            let after = 2 * (ranks as u64 - 1);
            let mut results = on_ranks(ranks, killed(1, after, silent), |group| {
                (0..9).try_for_each(|_| sum(&group, 4))
            });
            drop(results.remove(1));
            let failure = agreed(results);
            assert_eq!(failure.missing, [1]);
            // A broken connection may be seen before the messages that came over it are used.
            assert!(
                failure.sequence == 3 || failure.sequence == 2 && !silent,
                "{failure}"
            );
            match silent {
                true => assert_eq!(failure.cause, Cause::Deadline(options().deadline)),
                false => assert!(matches!(failure.cause, Cause::Disconnected(_))),
            }
        }
    }
}

#[test]
fn a_slow_rank_is_named_by_all_ranks_itself_included() {
    for ranks in RANKS {
        let results = on_ranks(ranks, Vec::new(), |group| {
            sum(&group, 4)?;
            if group.rank() == 1 {
                group.pause(Duration::from_secs(20));
            }
            let result = sum(&group, 4);
            assert_eq!(sum(&group, 4), result);
            assert_eq!(group.barrier(), result);
            result
        });
        let text = results[0].as_ref().unwrap_err().to_string();
        let failure = agreed(results);
        let expected = format!(
            "rank 0: all_reduce 2: rank 1 is missing: nothing came within 10s; \
             a slow rank needs a longer deadline (found by rank {})",
            failure.found_by
        );
        assert_eq!((text, failure.missing), (expected, vec![1]));
    }
}

#[test]
fn a_pause_below_the_deadline_is_no_failure() {
    let results = on_ranks(3, Vec::new(), |group| {
        group.pause(Duration::from_secs(9) * (group.rank() % 2) as u32);
        sum(&group, 4)
    });
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn different_shapes_are_named_with_both() {
    for ranks in RANKS {
        let failure = agreed(on_ranks(ranks, Vec::new(), |group| {
            group.barrier()?;
            sum(&group, if group.rank() == ranks - 1 { 5 } else { 4 })
        }));
        let calls = [
            "all_reduce 2 (sum) of f32 [4]",
            "all_reduce 2 (sum) of f32 [5]",
        ];
        let Cause::Mismatch {
            ranks: found,
            calls: named,
        } = failure.cause
        else {
            panic!("{failure}");
        };
        // Several ranks may find it at once.
        assert_eq!((found[1], named), (ranks - 1, calls.map(String::from)));
        assert!(failure.missing.is_empty());
    }
}

#[test]
fn different_calls_are_named_with_both() {
    type Program = fn(&dyn Group) -> Result<(), CommError>;
    let programs: [(Program, &str); 7] = [
        (|g| g.barrier(), "barrier 1"),
        (
            |g| g.all_reduce([1.0_f32; 4][..].as_mut().into(), ReduceOp::Max),
            "all_reduce 1 (max) of f32 [4]",
        ),
        (
            |g| g.all_reduce([1_i32; 4][..].as_mut().into(), ReduceOp::Sum),
            "all_reduce 1 (sum) of i32 [4]",
        ),
        (
            |g| g.broadcast([1.0_f32; 4][..].as_mut().into(), 1),
            "broadcast 1 of f32 [4] from rank 1",
        ),
        (
            |g| g.all_gather([1.0_f32; 4][..].into(), [0.0_f32; 8][..].as_mut().into()),
            "all_gather 1 of f32 [4]",
        ),
        (
            |g| g.all_to_all([1.0_f32; 4][..].into(), [0.0_f32; 4][..].as_mut().into()),
            "all_to_all 1 of f32 [4]",
        ),
        (
            |g| g.send([1.0_f32; 4][..].into(), 0),
            "send of f32 [4] to rank 0",
        ),
    ];
    for (program, call) in programs {
        let results = on_ranks(2, Vec::new(), |group| match group.rank() {
            0 => sum(&group, 4),
            // Some calls wait for nothing: the failure comes with the next one.
            _ => program(&group).and_then(|()| group.barrier()),
        });
        let Cause::Mismatch { ranks, calls } = agreed(results).cause else {
            panic!("{call}");
        };
        assert_eq!(ranks, [0, 1]);
        assert_eq!(calls, ["all_reduce 1 (sum) of f32 [4]", call]);
    }
}

#[test]
fn a_shape_of_other_dimensions_is_a_mismatch() {
    let results = on_ranks(2, Vec::new(), |group| {
        let shape = if group.rank() == 0 { [2, 3] } else { [3, 2] };
        let mut bytes = [0; 24];
        let data = rustorch_comm::BufferMut::new(rustorch_comm::DType::F32, &shape, &mut bytes)?;
        group.all_reduce(data, ReduceOp::Sum)
    });
    let text = results[1].as_ref().unwrap_err().to_string();
    assert_eq!(
        text,
        "rank 1: all_reduce 1: rank 0 calls all_reduce 1 (sum) of f32 [2, 3], but rank 1 calls \
         all_reduce 1 (sum) of f32 [3, 2]; all ranks have to make the same calls (found by rank 0)"
    );
}

#[test]
fn a_rank_that_gives_up_says_why() {
    for ranks in RANKS {
        let failure = agreed(on_ranks(ranks, Vec::new(), |group| {
            sum(&group, 4)?;
            if group.rank() == ranks - 1 {
                group.abort("cuda:0 has no memory left");
            }
            sum(&group, 4)
        }));
        assert_eq!(failure.missing, [ranks - 1]);
        assert_eq!(
            failure.cause,
            Cause::Aborted("cuda:0 has no memory left".into())
        );
    }
}

#[test]
fn a_rank_that_ends_early_is_named() {
    for ranks in RANKS {
        let mut results = on_ranks(ranks, Vec::new(), |group| match group.rank() {
            0 => sum(&group, 4),
            _ => sum(&group, 4).and_then(|()| sum(&group, 4)),
        });
        assert_eq!(results.remove(0), Ok(()));
        let failure = agreed(results);
        assert_eq!((failure.missing, failure.cause), (vec![0], Cause::Left));
    }
}

#[test]
fn of_a_broken_connection_one_end_is_missing() {
    let broken = |from, to| Fault::Lose {
        from,
        to,
        message: 0,
    };
    let failure = agreed(on_ranks(3, vec![broken(1, 2), broken(2, 1)], |group| {
        // Two messages to each rank: the others wait for them in a later step.
        sum(&group, 10_000)
    }));
    assert_eq!(
        (failure.found_by, failure.missing, failure.step),
        (1, vec![2], 0)
    );
}

#[test]
fn a_lost_message_is_found_when_the_next_one_comes() {
    let failure = agreed(on_ranks(
        3,
        vec![Fault::Lose {
            from: 0,
            to: 1,
            message: 0,
        }],
        |group| {
            // The root waits for nothing.
            group.broadcast([group.rank() as f32][..].as_mut().into(), 0)?;
            group.barrier()
        },
    ));
    assert_eq!((failure.missing, failure.cause), (vec![0], Cause::Lost));
    assert_eq!(failure.collective, "broadcast");
}

#[test]
fn the_remaining_ranks_go_on() {
    for ranks in RANKS {
        let killed = killed(1, ranks as u64, true);
        let results = on_ranks(ranks, killed, |group| {
            let error = (0..9).try_for_each(|_| sum(&group, 4)).unwrap_err();
            let next = group.shrink()?;
            // The first group stays failed.
            assert_eq!(group.barrier(), Err(error));
            assert_eq!((next.size(), next.epoch()), (ranks - 1, 1));
            let mut data = [1_u32 << next.rank()];
            next.all_reduce(data[..].as_mut().into(), ReduceOp::Sum)?;
            assert_eq!(data, [(1 << (ranks - 1)) - 1]);
            Ok(next.rank())
        });
        for (rank, result) in results.into_iter().enumerate() {
            match rank {
                1 => assert!(matches!(result, Err(CommError::NoQuorum { .. }))),
                0 => assert_eq!(result, Ok(0)),
                _ => assert_eq!(result, Ok(rank - 1)),
            }
        }
    }
}

#[test]
fn a_rank_that_joins_and_dies_is_found_at_once() {
    // Rank 2 reports the failure of the others to both, and joins.
    let results = on_ranks(3, killed(2, 3, false), |group| {
        if group.rank() == 2 {
            group.pause(options().settle / 2);
        }
        sum(&group, 4 + group.rank()).unwrap_err();
        // Rank 0 sees the end of rank 2 while it waits for rank 1.
        if group.rank() == 1 {
            group.pause(options().settle);
        }
        let next = group.shrink()?;
        assert_eq!(next.size(), 3);
        sum(&*next, 4)
    });
    let [Err(first), Err(second), Err(CommError::NoQuorum { .. })] = &results[..] else {
        panic!("{results:?}");
    };
    for error in [first, second] {
        let failure = error.failure().unwrap();
        assert_eq!(failure.missing, [2]);
        let cause = Cause::Disconnected("the rank was killed".into());
        assert_eq!(failure.cause, cause);
    }
}

#[test]
fn after_a_mismatch_all_ranks_go_on() {
    on_ranks(3, Vec::new(), |group| {
        sum(&group, 4 + group.rank() / 2).unwrap_err();
        let next = group.shrink().unwrap();
        assert_eq!((next.rank(), next.size()), (group.rank(), 3));
        // The next failure ends the next epoch.
        sum(&*next, 4).unwrap();
        let failure = sum(&*next, 4 + group.rank() / 2)
            .unwrap_err()
            .failure()
            .unwrap()
            .clone();
        assert_eq!((failure.epoch, failure.sequence), (1, 2));
        assert_eq!(next.shrink().unwrap().epoch(), 2);
    });
}

#[test]
fn of_two_sides_one_goes_on_at_most() {
    for (ranks, side) in [
        (5, vec![3, 4]),
        (5, vec![0, 1]),
        (8, vec![0, 2, 4, 6]),
        (2, vec![1]),
    ] {
        let (start, end) = (Duration::from_secs(1), Duration::from_secs(1000));
        let partition = Fault::Partition {
            side: side.clone(),
            start,
            end,
        };
        let results = on_ranks(ranks, vec![partition], |group| {
            sum(&group, 4).unwrap();
            group.pause(Duration::from_secs(2));
            sum(&group, 4).unwrap_err();
            let next = group.shrink()?;
            sum(&*next, 4)
        });
        let size = |of: bool| (0..ranks).filter(|rank| side.contains(rank) == of).count();
        for (rank, result) in results.iter().enumerate() {
            let mine = side.contains(&rank);
            let is_even = size(true) == size(false);
            let goes_on = match is_even {
                true => mine == side.contains(&0),
                false => size(mine) > size(!mine),
            };
            assert_eq!(
                result.is_ok(),
                goes_on,
                "rank {rank} beside {side:?}: {result:?}"
            );
        }
    }
}
