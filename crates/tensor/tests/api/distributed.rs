//! Collectives of tensors: results, gradients, recordings, mistakes.

use std::thread;
use std::time::Duration;

use rustorch_ir::DType;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::distributed::comm::{CommError, Options, ThreadGroup};
use rustorch_tensor::distributed::{
    CommunicationGroup, DistributedOperations, GpuTopology, MultiGpuBarrier, MultiGpuValidator,
    ReduceOp, with_group,
};
use rustorch_tensor::num_complex::Complex;
use rustorch_tensor::{
    RusTorchError, RusTorchResult, Tensor, Trace, backends, runtime, tensor, with_runtime,
};

const RANKS: [usize; 4] = [2, 3, 5, 8];

/// Runs a program on every rank, each with its own processor of one thread, and returns their results.
fn on_ranks<T: Send>(
    ranks: usize,
    program: impl Fn(CommunicationGroup) -> RusTorchResult<T> + Sync,
) -> Vec<RusTorchResult<T>> {
    let options = Options {
        deadline: Duration::from_secs(20),
        ..Options::default()
    };
    let program = &program;
    thread::scope(|scope| {
        let start = |group| {
            scope.spawn(move || {
                let runtime = Runtime::new(backends(1));
                let group = CommunicationGroup::new(group);
                with_runtime(&runtime, Routing::AUTO, || {
                    with_group(&group, || program(group.clone()))
                })
            })
        };
        let groups = ThreadGroup::create(ranks, options);
        let threads: Vec<_> = groups.into_iter().map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

fn all<T>(results: Vec<RusTorchResult<T>>) -> Vec<T> {
    results.into_iter().map(Result::unwrap).collect()
}

/// The tensor of a rank: `4 · ranks` numbers.
fn of_rank(rank: usize, ranks: usize) -> Vec<f32> {
    (0..4 * ranks)
        .map(|i| (i * (rank + 2) % 7) as f32)
        .collect()
}

#[test]
fn groups_compute_as_one_rank_does() {
    for ranks in RANKS {
        all(on_ranks(ranks, |group| {
            MultiGpuValidator::new(&group).validate()
        }));
    }
}

/// The factors by which a rank weighs results in its loss.
fn weights(rank: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 3 + rank) % 5) as f32 - 1.0)
        .collect()
}

/// The loss of all ranks together is `Σ wᵣ · y`; the gradient follows from where each element of `x` goes.
#[test]
fn gradients_are_those_of_the_sum_of_all_losses() {
    type Collective = fn(&Tensor) -> RusTorchResult<Tensor>;
    let collectives: [(&str, Collective); 7] = [
        ("sum", |x| x.all_reduce(ReduceOp::Sum)),
        ("avg", |x| x.all_reduce(ReduceOp::Avg)),
        ("premul", |x| x.all_reduce(ReduceOp::PremulSum(3.0))),
        ("gather", |x| x.all_gather()),
        ("scatter", |x| x.reduce_scatter(ReduceOp::Avg)),
        ("broadcast", |x| x.broadcast(1)),
        ("exchange", |x| x.all_to_all()),
    ];
    for ranks in RANKS {
        let n = 4 * ranks;
        for (name, collective) in collectives {
            let gradients = all(on_ranks(ranks, |group| {
                let mut x = Tensor::from_vec(of_rank(group.rank(), ranks), n)?;
                x.requires_grad_(true)?;
                let y = collective(&x)?;
                let w = Tensor::from_vec(weights(group.rank(), y.numel()), y.shape())?;
                y.mul(&w)?.sum_all()?.backward()?;
                x.grad().expect("a gradient").to_vec::<f32>()
            }));
            for (rank, gradient) in gradients.iter().enumerate() {
                let of = |other: usize, len: usize, i: usize| weights(other, len)[i];
                let expected: Vec<f32> = (0..n)
                    .map(|i| {
                        let sum = |len: usize, at: &dyn Fn(usize) -> usize| {
                            (0..ranks).map(|r| of(r, len, at(r))).sum::<f32>()
                        };
                        match name {
                            "sum" => sum(n, &|_| i),
                            "avg" => sum(n, &|_| i) / ranks as f32,
                            "premul" => 3.0 * sum(n, &|_| i),
                            "gather" => sum(n * ranks, &|_| rank * n + i),
                            "scatter" => of(i / 4, 4, i % 4) / ranks as f32,
                            "broadcast" if rank == 1 => sum(n, &|_| i),
                            "broadcast" => 0.0,
                            _ => of(i / 4, n, 4 * rank + i % 4),
                        }
                    })
                    .collect();
                let close = gradient.iter().zip(&expected);
                assert!(
                    close
                        .clone()
                        .all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0)),
                    "{name} of {ranks}, rank {rank}: {gradient:?}, expected {expected:?}"
                );
            }
        }
    }
}

#[test]
fn what_cannot_be_added_can_move() {
    all(on_ranks(3, |group| {
        let rank = group.rank();
        let flags = Tensor::from_vec(vec![rank == 1, true], 2)?;
        let gathered = flags.all_gather()?.to_vec::<bool>()?;
        assert_eq!(gathered, [false, true, true, true, false, true]);
        let z = Tensor::from_vec(vec![Complex::new(rank as f32, 1.0)], 1)?;
        let sum = z.all_reduce(ReduceOp::Sum)?;
        assert_eq!(sum.to_vec::<Complex<f32>>()?, [Complex::new(3.0, 3.0)]);
        let view = tensor![[1.0, 2.0], [3.0, 4.0]].t()?;
        let moved = view.broadcast(2)?;
        assert_eq!(moved.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
        let number = Tensor::from_vec(vec![rank as i64], [0usize; 0])?;
        assert_eq!(number.all_gather()?.to_vec::<i64>()?, [0, 1, 2]);
        let refused = flags.all_reduce(ReduceOp::Sum).unwrap_err().to_string();
        assert!(refused.contains("cast it first), got bool[2]"), "{refused}");
        let refused = tensor![1.0].all_reduce(ReduceOp::BitAnd).unwrap_err();
        assert!(
            refused.to_string().contains("integers for band"),
            "{refused}"
        );
        let refused = tensor![1.0, 2.0].reduce_scatter(ReduceOp::Sum).unwrap_err();
        assert!(
            refused.to_string().contains("that 3 ranks divide"),
            "{refused}"
        );
        let refused = tensor![1.0].broadcast(3).unwrap_err().to_string();
        assert!(
            refused.contains("below the number of ranks, 3, got 3"),
            "{refused}"
        );
        let mut x = tensor![1.0];
        x.requires_grad_(true)?;
        let greatest = x.all_reduce(ReduceOp::Max)?;
        let refused = greatest.backward().unwrap_err().to_string();
        assert!(refused.contains("the max of ranks"), "{refused}");
        // A mistake of all ranks leaves the group as it was.
        MultiGpuBarrier::new(&group).wait()
    }));
}

#[test]
fn one_rank_alone_does_nothing() {
    let x = tensor![1.0, 2.0];
    for y in [
        x.all_reduce(ReduceOp::Avg).unwrap(),
        x.all_gather().unwrap(),
        x.reduce_scatter(ReduceOp::Sum).unwrap(),
        x.broadcast(0).unwrap(),
        x.all_to_all().unwrap(),
    ] {
        assert_eq!(y.storage().unwrap().id(), x.storage().unwrap().id());
    }
    let scaled = x.all_reduce(ReduceOp::PremulSum(0.5)).unwrap();
    assert_eq!(scaled.to_vec::<f32>().unwrap(), [0.5, 1.0]);
    assert!(x.broadcast(1).is_err());
}

/// A program of two collectives, in each run of which a number is another one.
fn program(group: &CommunicationGroup) -> RusTorchResult<Trace> {
    let x = Tensor::placeholder([3], DType::F32)?;
    let pass = Tensor::placeholder([0usize; 0], DType::I64)?;
    let group = group.in_pass(&pass)?;
    let mean = group.all_reduce(&x.mul(2.0)?, ReduceOp::Avg)?;
    let sum = group.all_reduce(&mean.mul(&x)?, ReduceOp::Sum)?;
    Trace::new(&[&x, &pass], &[&sum])
}

fn run(trace: &Trace, x: f32, pass: i64) -> RusTorchResult<Vec<f32>> {
    let x = Tensor::from_vec(vec![x; 3], 3)?;
    let pass = Tensor::from_vec(vec![pass], [0usize; 0])?;
    let result = trace.run(&[x.storage()?, pass.storage()?])?;
    Tensor::from_storage(result[0].clone(), [3], DType::F32)?.to_vec::<f32>()
}

#[test]
fn recorded_collectives_are_made_in_every_run() {
    for ranks in RANKS {
        all(on_ranks(ranks, |group| {
            let trace = program(&group)?;
            for pass in 0..3 {
                let x = (group.rank() + pass) as f32;
                let xs = (0..ranks).map(|rank| (rank + pass) as f32);
                let mean = xs.clone().map(|x| 2.0 * x).sum::<f32>() / ranks as f32;
                let expected = xs.map(|x| mean * x).sum::<f32>();
                for y in run(&trace, x, pass as i64)? {
                    assert!((y - expected).abs() <= 1e-5 * expected.abs());
                }
            }
            Ok(())
        }));
    }
}

/// The shapes are the same: only the number of the run shows that the ranks are not at the same place.
#[test]
fn a_run_that_one_rank_repeats_is_an_error_on_all() {
    let results = on_ranks(3, |group| {
        let trace = program(&group)?;
        run(&trace, 1.0, 0)?;
        let pass = i64::from(group.rank() != 1);
        let failed = run(&trace, 1.0, pass).map(drop);
        Ok(failed.map_err(|error| group.explain(error)))
    });
    for result in all(results) {
        let error = result.unwrap_err().to_string();
        for run in ["of run 0", "of run 1"] {
            assert!(error.contains(run), "{error}");
        }
    }
}

#[test]
fn different_shapes_are_named_on_all_ranks() {
    for ranks in RANKS {
        let results = on_ranks(ranks, |group| {
            let length = if group.rank() == 1 { 3 } else { 2 };
            Tensor::ones([length], DType::F32)?.all_reduce(ReduceOp::Sum)
        });
        for result in results {
            let error = result.unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("f32 [2]") && text.contains("f32 [3]"),
                "{text}"
            );
            assert!(
                text.starts_with("all_reduce at crates/tensor/tests/api/distributed.rs:"),
                "{text}"
            );
            let RusTorchError::Collective { error, .. } = error else {
                panic!("{text}");
            };
            assert!(matches!(error, CommError::Failed { .. }));
        }
    }
}

#[test]
fn a_missing_rank_is_named_by_all_others() {
    let results = on_ranks(3, |group| {
        let x = tensor![1.0].all_reduce(ReduceOp::Sum)?;
        if group.rank() == 2 {
            return Ok(x);
        }
        x.all_reduce(ReduceOp::Sum)
    });
    for result in &results[..2] {
        let text = result.as_ref().unwrap_err().to_string();
        assert!(
            text.contains("rank 2 is missing: it has left the group"),
            "{text}"
        );
    }
    assert!(results[2].is_ok());
}

#[test]
fn the_speed_of_a_group_is_measured() {
    all(on_ranks(2, |group| {
        let validator = MultiGpuValidator::new(&group);
        let (single, multi) = (
            validator.benchmark_single_gpu(64, 32)?,
            validator.benchmark_multi_gpu(64, 32)?,
        );
        assert_eq!((single.ranks, multi.ranks, multi.rows), (1, 2, 64));
        assert!(multi.rows_per_second() > 0.0 && single.time > Duration::ZERO);
        Ok(())
    }));
}

#[test]
fn the_topology_has_the_runtime_s_gpus() {
    let topology = GpuTopology::detect();
    let devices: Vec<_> = runtime().devices().map(|info| info.device).collect();
    assert!(
        topology
            .devices
            .iter()
            .all(|info| devices.contains(&info.device))
    );
    assert!(topology.to_string().lines().count() >= topology.len());
}
