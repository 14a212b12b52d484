//! Training by several ranks: the losses of one, checkpoints for any number of ranks, and ranks that fail.

extern crate rustorch_nn as rustorch;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustorch::nn::{Forward, Linear, MSELoss, Module, Sequential, Tanh, sequential};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::train::{Checkpoints, DataParallelTrainer, TrainStep};
use rustorch_cpu::Cpu;
use rustorch_ir::DType;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::distributed::comm::{Cause, Failure, Fault, Options, ThreadGroup};
use rustorch_tensor::{Generator, RusTorchError, RusTorchResult, Tensor, no_grad, with_runtime};

const RANKS: [usize; 4] = [2, 3, 5, 8];

type Step = TrainStep<Sequential, AdamWOptions>;
type Trainer = DataParallelTrainer<Sequential, AdamWOptions>;

fn step(seed: u64) -> RusTorchResult<Step> {
    let net = sequential![Linear::new(6, 16)?, Tanh, Linear::new(16, 2)?];
    // The default generator is the process's: ranks that are threads would disturb each other.
    let generator = Generator::new(seed);
    no_grad(|| {
        for (_, mut parameter) in net.named_parameters() {
            let drawn = generator.randn(parameter.shape(), DType::F32)?;
            parameter.copy_(&drawn.mul(0.3)?)?;
        }
        Ok::<_, RusTorchError>(())
    })?;
    let adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.003))?;
    let step = TrainStep::new(net, adam, |net: &Sequential, batch| {
        MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    });
    step.clip_grad_norm(1.0, 2.0)
}

/// The batch of a step: every third has 5 rows, the others 16.
fn batch(step: u64) -> RusTorchResult<[Tensor; 2]> {
    let rows = if step % 3 == 2 { 5 } else { 16 };
    let x = Generator::new(step).randn([rows, 6], DType::F32)?;
    let y = x.narrow(1, 0, 2)?.mul(&x.narrow(1, 2, 2)?)?;
    let copy = |x: &Tensor| Tensor::from_vec(x.flatten(0, -1)?.to_vec::<f32>()?, x.shape());
    Ok([copy(&x)?, copy(&y)?])
}

/// Runs a program on the ranks of these groups, each with its own processor of one thread.
fn on_ranks<T: Send, E: Send>(
    groups: Vec<ThreadGroup>,
    program: impl Fn(CommunicationGroup) -> Result<T, E> + Sync,
) -> Vec<Result<T, E>> {
    let program = &program;
    thread::scope(|scope| {
        let start = |group| {
            scope.spawn(move || {
                let runtime = Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>]);
                with_runtime(&runtime, Routing::AUTO, || {
                    program(CommunicationGroup::new(group))
                })
            })
        };
        let threads: Vec<_> = groups.into_iter().map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

fn groups(ranks: usize) -> Vec<ThreadGroup> {
    ThreadGroup::create(ranks, Options::default())
}

fn train(trainer: &mut Trainer, until: u64) -> RusTorchResult<Vec<f64>> {
    let mut losses = Vec::new();
    while trainer.train_step().steps() < until {
        let [x, y] = batch(trainer.train_step().steps())?;
        losses.push(trainer.step(&[&x, &y])?.item()?);
    }
    Ok(losses)
}

fn alone(steps: u64, every: usize) -> Vec<f64> {
    let step = step(0).unwrap().accumulate(every).unwrap();
    let mut trainer = Trainer::new(&CommunicationGroup::solo(), step).unwrap();
    train(&mut trainer, steps).unwrap()
}

/// The largest relative difference between losses.
fn difference(losses: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(losses.len(), expected.len());
    let pairs = losses.iter().zip(expected);
    pairs
        .map(|(a, b)| (a - b).abs() / b.abs())
        .fold(0.0, f64::max)
}

#[test]
fn losses_are_those_of_one_rank() {
    for every in [1, 4] {
        let expected = alone(100, every);
        for ranks in RANKS {
            let results = on_ranks(groups(ranks), |group| {
                // Ranks begin with other parameters: those of rank 0 count.
                let step = step(group.rank() as u64)?.accumulate(every)?;
                let mut trainer = Trainer::new(&group, step)?;
                let losses = train(&mut trainer, 100)?;
                let state = trainer.train_step().module().state_dict();
                let bits = state.iter().map(|(_, x)| x.flatten(0, -1)?.to_vec::<f32>());
                Ok::<_, RusTorchError>((losses, bits.collect::<RusTorchResult<Vec<_>>>()?))
            });
            let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
            let off = difference(&results[0].0, &expected);
            println!("{ranks} ranks, {every} batches an update: off by {off:e}");
            assert!(off <= 1e-6, "{ranks} ranks: {off:e}");
            // Ranks stay together, to the bit.
            assert!(results.iter().all(|result| *result == results[0]));
        }
    }
}

#[test]
fn checkpoints_of_rank_0_resume_at_any_number_of_ranks() {
    let expected = alone(30, 1);
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 2).unwrap();
    let mut begin = 0;
    for (ranks, until) in [(3, 10), (5, 20), (1, 25), (2, 30)] {
        let results = on_ranks(groups(ranks), |group| {
            let step = step(group.rank() as u64)?;
            let mut trainer = Trainer::new(&group, step)?;
            trainer.load_latest(&checkpoints)?;
            let losses = train(&mut trainer, until)?;
            trainer.save(&checkpoints)?;
            Ok::<_, rustorch::train::CheckpointError>(losses)
        });
        for losses in results {
            let off = difference(&losses.unwrap(), &expected[begin..until as usize]);
            assert!(off <= 1e-6, "{ranks} ranks: {off:e}");
        }
        begin = until as usize;
    }
}

#[test]
fn ranks_that_find_other_checkpoints_say_so() {
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let results = on_ranks(groups(2), |group| {
        let checkpoints = Checkpoints::new(folders[group.rank()].path(), 2)?;
        let mut trainer = Trainer::new(&group, step(0)?)?;
        train(&mut trainer, 2)?;
        trainer.save(&checkpoints)?;
        trainer.load_latest(&checkpoints)
    });
    for result in results {
        let error = result.unwrap_err().to_string();
        let said = "that of step 2 on rank 0, none on rank 1";
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn batches_without_equal_rows_are_refused_on_all_ranks() {
    let results = on_ranks(groups(3), |group| {
        let mut trainer = Trainer::new(&group, step(0)?)?;
        let (x, y) = (
            Tensor::ones([4, 6], DType::F32)?,
            Tensor::ones([3, 2], DType::F32)?,
        );
        trainer.step(&[&x, &y])
    });
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("the same number of rows, at least 1, got [[4, 6], [3, 2]]"),
            "{error}"
        );
    }
}

/// A rank that fails by itself is the cause that all others report.
#[test]
fn other_ranks_hear_of_a_rank_s_own_failure() {
    for ranks in RANKS {
        let results = on_ranks(groups(ranks), |group| {
            let mut trainer = Trainer::new(&group, step(0)?)?;
            train(&mut trainer, 3)?;
            if group.rank() == 1 {
                let x = Tensor::ones([16, 7], DType::F32)?;
                return trainer.step(&[&x, &x]).map(drop);
            }
            train(&mut trainer, 9).map(drop)
        });
        for (rank, result) in results.into_iter().enumerate() {
            let error = result.unwrap_err().to_string();
            let said = "linear: expected x [.., k] and w [n, k], got f32[";
            assert!(error.contains(said), "{rank}: {error}");
            let of_others = error.contains("rank 1 is missing: it gave up: ");
            assert_eq!(of_others, rank != 1, "{rank}: {error}");
        }
    }
}

/// Results of ranks, one of which fails so while they train and save.
fn failing(ranks: usize, fault: Fault) -> Vec<Result<(), Option<Box<Failure>>>> {
    let options = Options {
        deadline: Duration::from_secs(10),
        settle: Duration::from_secs(1),
        ..Options::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 1).unwrap();
    let groups = ThreadGroup::simulate(ranks, options, vec![fault]);
    on_ranks(groups, |group| {
        let failure = || group.failure()?.failure().cloned().map(Box::new);
        let run = || -> Result<(), rustorch::train::CheckpointError> {
            let mut trainer = Trainer::new(&group, step(0)?.accumulate(2)?)?;
            train(&mut trainer, 4)?;
            trainer.save(&checkpoints)?;
            train(&mut trainer, 6)?;
            Ok(())
        };
        run().map_err(|_| failure())
    })
}

/// Ranks are killed and stopped at each phase: while parameters are shared, in steps with and without an update, and
/// while a checkpoint is written.
#[test]
fn all_others_name_a_rank_that_ends() {
    for ranks in RANKS {
        let victim = ranks - 1;
        let mut failed = 0;
        for after in (0..20).chain((20..120).step_by(9)) {
            for silent in [false, true] {
                let fault = Fault::Kill {
                    rank: victim,
                    after,
                    silent,
                };
                let results = failing(ranks, fault);
                // A rank may finish its last call before others miss the victim in theirs.
                let failures = results[..victim]
                    .iter()
                    .filter_map(|result| result.as_ref().err());
                let failures: Vec<_> = failures.cloned().collect();
                failed += usize::from(!failures.is_empty());
                for failure in failures {
                    let failure = failure.expect("a failure of ranks");
                    assert_eq!(
                        failure.missing,
                        [victim],
                        "{ranks} ranks, {after}: {failure}"
                    );
                    let fits = match failure.cause {
                        Cause::Deadline(_) => silent,
                        Cause::Disconnected(_) => !silent,
                        _ => false,
                    };
                    assert!(fits, "{ranks} ranks, {after}: {failure}");
                }
            }
        }
        println!("{ranks} ranks: {failed} runs failed");
        assert!(failed >= 10);
    }
}

#[test]
fn a_slow_rank_is_waited_for_up_to_the_deadline() {
    for (seconds, ends) in [(4, false), (30, true)] {
        let fault = Fault::Delay {
            from: 2,
            to: 0,
            by: Duration::from_secs(seconds),
        };
        for result in failing(3, fault) {
            assert_eq!(result.is_err(), ends);
            if let Err(failure) = result {
                let failure = failure.expect("a failure of ranks");
                assert_eq!(failure.missing, [2], "{failure}");
                assert!(matches!(failure.cause, Cause::Deadline(_)), "{failure}");
            }
        }
    }
}
