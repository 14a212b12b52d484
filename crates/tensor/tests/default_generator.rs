//! Tests of the process's generator of random numbers: no other test of this program draws from it
//! meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_ir::DType;
use rustorch_tensor::{
    RusTorchError, RusTorchResult, Tensor, assert_close, checkpoint, checkpoint_budget,
    default_generator, manual_seed, no_grad,
};

type Outcome = RusTorchResult<()>;

/// Held by who draws random numbers.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A leaf that wants a gradient.
fn leaf(mut x: Tensor) -> RusTorchResult<Tensor> {
    x.requires_grad_(true)?;
    Ok(x)
}

#[test]
fn a_seed_draws_the_same_again() -> Outcome {
    let _alone = generator();
    manual_seed(42);
    let first = [
        Tensor::rand([3], DType::F32)?,
        Tensor::randn([3], DType::F32)?,
    ];
    assert!(!first[0].equal(&Tensor::rand([3], DType::F32)?)?);
    manual_seed(42);
    let second = [
        Tensor::rand([3], DType::F32)?,
        Tensor::randn([3], DType::F32)?,
    ];
    assert!(first[0].equal(&second[0])? && first[1].equal(&second[1])?);
    Ok(())
}

#[test]
fn dropout() -> Outcome {
    let _alone = generator();
    let x = Tensor::ones([20, 50], DType::F32)?;
    assert!(x.dropout(0.5, false)?.equal(&x)?);
    let drawn = || {
        manual_seed(5);
        x.dropout(0.25, true)?.to_vec::<f32>()
    };
    let y = drawn()?;
    assert_eq!(y, drawn()?);
    let kept = y.iter().filter(|&&y| y != 0.0).count();
    assert!((650..850).contains(&kept), "{kept} of 1000");
    assert!(y.iter().all(|&y| y == 0.0 || (y - 4.0 / 3.0).abs() < 1e-6));
    let channels = Tensor::ones([4, 6, 2, 2], DType::F32)?.dropout2d(0.5, true)?;
    let sums = channels.sum([2, 3], false)?.to_vec::<f32>()?;
    assert!(sums.iter().all(|sum| [0.0, 8.0].contains(sum)));
    assert!(sums.contains(&0.0) && sums.contains(&8.0));
    assert!(x.dropout(1.5, true).is_err());
    Ok(())
}

#[test]
fn a_checkpoint_gives_the_gradients_that_it_has_without() -> Outcome {
    let _alone = generator();
    let x = Tensor::randn_seeded([4, 3], DType::F64, 1)?;
    let w = leaf(Tensor::randn_seeded([3, 3], DType::F64, 2)?)?;
    let block = |w: &Tensor| {
        let w = w.clone();
        move |x: &[&Tensor]| {
            let noise = Tensor::rand([4, 3], DType::F64)?;
            x[0].matmul(&w)?.tanh()?.mul(&noise)
        }
    };
    let run = |uses_checkpoints: bool| -> RusTorchResult<_> {
        manual_seed(7);
        let x = leaf(x.clone())?;
        w.zero_grad();
        let mut y = x.clone();
        for _ in 0..3 {
            y = match uses_checkpoints {
                true => checkpoint(block(&w), &[&y])?,
                false => block(&w)(&[&y])?,
            };
        }
        let drawn = default_generator().state();
        y.square()?.sum_all()?.backward()?;
        assert_eq!(default_generator().state(), drawn);
        Ok([x.grad().expect("one"), w.grad().expect("one"), y.detach()])
    };
    let (plain, less) = (run(false)?, run(true)?);
    for (a, b) in plain.iter().zip(&less) {
        assert_close!(a, b);
    }
    Ok(())
}

#[test]
fn a_budget_says_how_many_functions_are_computed_again() -> Outcome {
    let _alone = generator();
    const LAYERS: usize = 4;
    // Each layer keeps a product, its hyperbolic tangent, the noise and the result.
    const BYTES: usize = 4 * 4 * 3 * size_of::<f64>();
    let start = Tensor::randn_seeded([4, 3], DType::F64, 1)?;
    let w = leaf(Tensor::randn_seeded([3, 3], DType::F64, 2)?)?;
    let run = |budget: Option<usize>| -> RusTorchResult<_> {
        manual_seed(7);
        w.zero_grad();
        let x = leaf(start.clone())?;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let layer = |i: usize| {
            let (w, calls) = (w.clone(), calls.clone());
            move |x: &Tensor| {
                calls.lock().expect("no panic").push(i);
                let noise = Tensor::rand([4, 3], DType::F64)?;
                x.matmul(&w)?.tanh()?.mul(&noise)
            }
        };
        let layers = (0..LAYERS).map(layer);
        let y = match budget {
            Some(budget) => checkpoint_budget(layers, &x, budget)?,
            None => layers
                .into_iter()
                .try_fold(x.clone(), |x, layer| layer(&x))?,
        };
        let drawn = default_generator().state();
        y.square()?.sum_all()?.backward()?;
        assert_eq!(default_generator().state(), drawn);
        let calls = calls.lock().expect("no panic").clone();
        let tensors = [x.grad().expect("one"), w.grad().expect("one"), y.detach()];
        Ok((tensors, calls))
    };
    let (plain, _) = run(None)?;
    for kept in 0..=LAYERS {
        // One byte less keeps one function less.
        for (budget, kept) in [
            (kept * BYTES, kept),
            (kept * BYTES + BYTES - 1, kept.min(LAYERS)),
        ] {
            let (less, calls) = run(Some(budget))?;
            for (a, b) in plain.iter().zip(&less) {
                assert_close!(a, b);
            }
            let again = (0..LAYERS - kept).rev();
            let expected: Vec<usize> = (0..LAYERS).chain(again).collect();
            assert_eq!(calls, expected, "{budget} bytes");
        }
    }
    // Without gradients nothing is kept or called again.
    let (result, calls) = no_grad(|| {
        let calls = Arc::new(Mutex::new(0));
        let counted = calls.clone();
        let f = move |x: &Tensor| {
            *counted.lock().expect("no panic") += 1;
            x.mul(&w)
        };
        let result = checkpoint_budget([f], &Tensor::ones([3, 3], DType::F64)?, 0)?;
        let calls = *calls.lock().expect("no panic");
        Ok::<_, RusTorchError>((result, calls))
    })?;
    assert!(!result.requires_grad() && calls == 1);
    // A function that fails the second time says so in the backward pass.
    let x = leaf(start)?;
    let calls = Mutex::new(0);
    let f = move |x: &Tensor| {
        let mut calls = calls.lock().expect("no panic");
        *calls += 1;
        x.exp()?.reshape(if *calls == 1 { [3, 4] } else { [5, 5] })
    };
    let y = checkpoint_budget([f], &x, 0)?.sum_all()?;
    let refused = y.backward().expect_err("another shape").to_string();
    assert!(refused.contains("reshape"), "{refused}");
    Ok(())
}
