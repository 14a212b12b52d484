//! Values that change from run to run are data: a graph with them is planned once.

use rustorch_ir::DType;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{RusTorchResult, Tensor, Trace, eval_all, host, tensor, with_runtime};

use crate::Outcome;

fn on_host(f: impl FnOnce(&Runtime) -> Outcome) -> Outcome {
    let runtime = Runtime::new(host(1));
    with_runtime(&runtime, Routing::AUTO, || f(&runtime))
}

#[test]
fn ten_thousand_numbers_are_planned_once() -> Outcome {
    on_host(|runtime| {
        let x = Tensor::arange_with(0, 4, 1, DType::F32)?;
        x.eval()?;
        let before = runtime.plans().new;
        for s in 0..10_000 {
            let y = x.mul(s)?.to_vec::<f32>()?;
            assert_eq!(y[3], 3.0 * s as f32);
        }
        assert_eq!(runtime.plans().new, before + 1);
        // Together with others, too.
        for s in 1..=1000 {
            let y = x.clamp(-1, s)?.div(s)?.sub(0.5)?;
            assert_eq!(y.to_vec::<f32>()?[0], -0.5);
        }
        assert_eq!(runtime.plans().new, before + 2);
        Ok(())
    })
}

/// Numbers below `n`, the same ones for each seed.
fn chosen(n: usize, count: usize, seed: u64) -> impl Iterator<Item = usize> {
    let mut state = seed;
    (0..count).map(move |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % n
    })
}

/// Tensors of 4 elements, each with its number.
fn numbered(n: usize) -> RusTorchResult<Vec<Tensor>> {
    let row = |i: usize| Tensor::from_vec(vec![i as f32; 4], 4);
    (0..n).map(row).collect()
}

#[test]
fn rows_that_are_chosen_with_repeats_are_stacked_by_one_plan() -> Outcome {
    on_host(|runtime| {
        let rows = numbered(30)?;
        // With 10 rows a graph is found the short way, with 100 the long way.
        for count in [10, 100] {
            let before = runtime.plans().new;
            for seed in 0..50 {
                let places: Vec<usize> = chosen(rows.len(), count, seed).collect();
                let batch: Vec<&Tensor> = places.iter().map(|&place| &rows[place]).collect();
                // The sum reads a row that is in the batch, or is not.
                let batch = Tensor::stack(&batch, 0)?.add(&rows[7])?.mul(2)?;
                let read = batch.to_vec::<f32>()?;
                let expected = places
                    .iter()
                    .flat_map(|&place| [2.0 * (place as f32 + 7.0); 4]);
                assert!(read.into_iter().eq(expected), "{places:?}");
            }
            assert_eq!(runtime.plans().new, before + 1, "{count} rows");
        }
        Ok(())
    })
}

#[test]
fn repeats_across_lists_and_readers_have_one_plan() -> Outcome {
    on_host(|runtime| {
        let rows = numbered(12)?;
        let before = runtime.plans().new;
        for seed in 0..50 {
            let places: Vec<usize> = chosen(rows.len(), 17, seed).collect();
            let batch: Vec<&Tensor> = places.iter().map(|&place| &rows[place]).collect();
            let (last, batch) = batch.split_last().expect("some");
            let (states, afters) = batch.split_at(8);
            let (states, afters) = (Tensor::stack(states, 0)?, Tensor::cat(afters, 0)?);
            let both = states.flatten(0, -1)?.sub(&afters)?;
            let (both, other) = (both.abs()?.sum_all()?, last.add(&rows[3])?);
            eval_all(&[&both, &other])?;
            let differences = (0..8).map(|i| 4.0 * (places[i] as f32 - places[i + 8] as f32).abs());
            assert_eq!(both.to_scalar::<f32>()?, differences.sum::<f32>());
            assert_eq!(other.to_vec::<f32>()?, [places[16] as f32 + 3.0; 4]);
        }
        // `last` may be `rows[3]`, which is a graph of its own.
        assert!(runtime.plans().new <= before + 2, "{:?}", runtime.plans());
        Ok(())
    })
}

#[test]
fn equal_numbers_in_a_list_have_one_plan() -> Outcome {
    on_host(|runtime| {
        let before = runtime.plans().new;
        for seed in 0..50 {
            let rewards: Vec<usize> = chosen(3, 9, seed).collect();
            let numbers = rewards
                .iter()
                .map(|&r| Tensor::scalar(r as f64, DType::F64));
            let numbers = numbers.collect::<RusTorchResult<Vec<_>>>()?;
            let read = Tensor::stack(&numbers, 0)?.to_vec::<f64>()?;
            assert!(read.into_iter().eq(rewards.iter().map(|&r| r as f64)));
        }
        assert_eq!(runtime.plans().new, before + 1);
        // A number that is spread has more elements than its memory.
        let spread = Tensor::scalar(5, DType::F32)?.expand(3)?;
        let all = Tensor::cat(&[&spread, &spread], 0)?.to_vec::<f32>()?;
        assert_eq!(all, [5.0; 6]);
        Ok(())
    })
}

#[test]
fn a_list_reads_what_is_there_when_it_is_joined() -> Outcome {
    on_host(|_| {
        for count in [1, 20] {
            let mut rows = numbered(3)?;
            let list = |rows: &[Tensor]| {
                let all: Vec<&Tensor> = (0..count)
                    .flat_map(|_| [0, 2, 0])
                    .map(|i| &rows[i])
                    .collect();
                Tensor::stack(&all, 0)
            };
            let expected = |first: f32| [[first; 4], [2.0; 4], [first; 4]].concat().repeat(count);
            // A write behind the list, in its graph; then one before it.
            let old = list(&rows)?;
            rows[0].add_(5)?;
            let first = rows[0].clone();
            eval_all(&[&old, &first])?;
            assert_eq!(old.to_vec::<f32>()?, expected(0.0));
            rows[0].add_(5)?;
            let new = list(&rows)?;
            assert_eq!(new.to_vec::<f32>()?, expected(10.0));
            // Both in one graph.
            let old = list(&rows)?;
            rows[0].mul_(2)?;
            let new = list(&rows)?;
            let both = old.add(&new)?;
            assert_eq!(both.select(0, 0)?.to_vec::<f32>()?, [30.0; 4]);
            assert_eq!(both.select(0, 1)?.to_vec::<f32>()?, [4.0; 4]);
            assert_eq!(first.to_vec::<f32>()?, [20.0; 4]);
        }
        Ok(())
    })
}

#[test]
fn each_place_in_a_list_has_its_gradient() -> Outcome {
    let mut row = tensor![1.0, 2.0];
    row.requires_grad_(true)?;
    let other = tensor![3.0, 4.0];
    let batch = Tensor::stack(&[&row, &other, &row], 0)?;
    let weights = tensor![[1.0], [10.0], [100.0]];
    batch.mul(&weights)?.sum_all()?.backward()?;
    let gradient = row.grad().expect("one");
    assert_eq!(gradient.to_vec::<f32>()?, [101.0; 2]);
    Ok(())
}

#[test]
fn ten_thousand_steps_of_dropout_are_planned_once() -> Outcome {
    on_host(|runtime| {
        let x = Tensor::ones([100], DType::F32)?;
        x.eval()?;
        let before = runtime.plans().new;
        let mut kept = 0.0;
        for _ in 0..10_000 {
            let mask = Tensor::rand([100], DType::F32)?.lt(0.9)?;
            kept += x.mul(&mask)?.mean(None, false)?.to_scalar::<f32>()?;
        }
        assert!((kept / 1e4 - 0.9).abs() < 1e-3, "{kept}");
        assert_eq!(runtime.plans().new, before + 1);
        assert_eq!(runtime.plans().reused, 9_999);
        Ok(())
    })
}

#[test]
fn a_trace_draws_by_the_key_it_is_given() -> Outcome {
    let key = Tensor::placeholder([2], DType::I64)?;
    let trace = Trace::new(&[&key], &[&Tensor::randn_keyed([6], DType::F32, &key)?])?;
    for seed in [1, -5] {
        let drawn = trace.run(&[tensor![seed, 0i64].storage()?])?.remove(0);
        let drawn = Tensor::from_storage(drawn, [6], DType::F32)?.to_vec::<f32>()?;
        let alone = Tensor::randn_seeded([6], DType::F32, seed as u64)?;
        assert_eq!(drawn, alone.to_vec::<f32>()?);
    }
    Ok(())
}

#[test]
fn numbers_of_a_trace_are_part_of_it() -> Outcome {
    let x = Tensor::placeholder([2], DType::F32)?;
    let y = x.mul(2.5)?.add(&Tensor::scalar(1, DType::F32)?)?;
    let trace = Trace::new(&[&x], &[&y])?;
    assert_eq!(trace.executable().graph().inputs().len(), 1);
    let y = trace.run(&[tensor![2.0, 4.0].storage()?])?.remove(0);
    let y = Tensor::from_storage(y, [2], DType::F32)?;
    assert_eq!(y.to_vec::<f32>()?, [6.0, 11.0]);
    Ok(())
}

#[test]
fn numbers_are_rounded_once_and_wrap() -> Outcome {
    // Just above the tie between 1 and its neighbour in f16, where f32 is the tie.
    let above = 1.0 + (-11f64).exp2() + (-40f64).exp2();
    let half = |x: &Tensor| x.to_dtype(DType::F64)?.to_vec::<f64>();
    let next = 1.0 + (-10f64).exp2();
    assert_eq!(half(&Tensor::scalar(above, DType::F16)?)?, [next]);
    let one = Tensor::ones([1], DType::F16)?;
    assert_eq!(half(&one.mul(above)?)?, [next]);
    assert_eq!(tensor![1u8].add(300)?.to_vec::<u8>()?, [45]);
    let z = tensor![1.0].add(num_complex::Complex::new(0.5, -2.0))?;
    assert_eq!(z.imag()?.to_scalar::<f32>()?, -2.0);
    Ok(())
}
