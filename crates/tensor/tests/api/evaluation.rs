//! Evaluation: laziness, sharing, long histories, views, errors.

use crate::{Outcome, error};
use rustorch_ir::DType;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{
    RusTorchError, RusTorchResult, Tensor, Trace, eval_all, tensor, with_runtime,
};

#[test]
fn operations_are_computed_when_asked_for() -> Outcome {
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let y = x.add(&x)?.mul(0.5)?;
    assert!(!y.is_ready());
    assert_eq!(y.device(), None);
    assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    assert!(y.is_ready());
    assert!(y.device().is_some());
    Ok(())
}

#[test]
fn shared_parts_and_several_outputs() -> Outcome {
    let x = tensor![1.0, 2.0];
    // Without sharing, 2^200 additions.
    let mut y = x.clone();
    for _ in 0..60 {
        y = y.add(&y)?;
    }
    let z = y.neg()?;
    eval_all(&[&y, &z, &y, &x])?;
    let scale = 2f32.powi(60);
    assert_eq!(y.to_vec::<f32>()?, [scale, 2.0 * scale]);
    assert_eq!(z.to_vec::<f32>()?, [-scale, -2.0 * scale]);
    Ok(())
}

#[test]
fn a_few_operations_are_the_same_with_handles_on_what_is_between() -> Outcome {
    let x = tensor![1.0, 2.0, 3.0, 4.0];
    let column = x.reshape([4, 1])?;
    x.eval()?;
    let all = |keep: &mut Vec<Tensor>| -> RusTorchResult<Tensor> {
        let products = x.mul(&column)?;
        let sum = products.add(&x)?;
        let row = sum.sum(0, false)?;
        keep.extend([products, sum, row.clone()]);
        row.div(2)?.reshape([2, 2])
    };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    let (held, alone) = (all(&mut kept)?, all(&mut dropped)?);
    drop(dropped);
    assert_eq!(alone.to_vec::<f32>()?, [7.0, 14.0, 21.0, 28.0]);
    assert_eq!(held.to_vec::<f32>()?, alone.to_vec::<f32>()?);
    assert!(kept.iter().all(Tensor::is_ready));
    assert_eq!(kept[1].sum(None, false)?.to_scalar::<f32>()?, 140.0);
    Ok(())
}

#[test]
fn long_histories_do_not_overflow_the_stack() -> Outcome {
    let chain = |n: usize| -> RusTorchResult<Tensor> {
        let mut x = tensor![0i64];
        for _ in 0..n {
            x = x.add(1)?;
        }
        Ok(x)
    };
    drop(chain(100_000)?);
    assert_eq!(chain(100_000)?.to_scalar::<i64>()?, 100_000);
    Ok(())
}

#[test]
fn views_of_tensors_in_memory_share_it() -> Outcome {
    let x = Tensor::arange_with(0, 24, 1, DType::I64)?.reshape([2, 3, 4])?;
    x.eval()?;
    let storage = x.storage()?;
    let shares = |view: &Tensor| -> RusTorchResult<bool> {
        assert!(view.is_ready());
        // The same bytes in another order: reshaped back to rank 1 where strides allow it.
        Ok(view.storage()?.same_as(&storage))
    };
    assert!(shares(&x.view([6, -1])?)?);
    assert!(shares(&x.unsqueeze(-1)?)?);
    assert!(shares(&x.permute([2, 0, 1])?.permute([1, 2, 0])?)?);
    let t = x.transpose(0, -1)?;
    assert!(t.is_ready() && !t.is_contiguous());
    assert_eq!(t.shape(), [4, 3, 2]);
    assert_eq!(t.select(0, 1)?.to_vec::<i64>()?, [1, 13, 5, 17, 9, 21]);
    assert!(t.view([24]).is_err());
    assert_eq!(
        t.reshape([24])?.narrow(0, 0, 4)?.to_vec::<i64>()?,
        [0, 12, 4, 16]
    );
    assert!(t.contiguous()?.is_contiguous());
    // A transposed and a plain view of one storage in one computation: one input.
    let both = t.add(&x.select(1, 0)?.t()?.unsqueeze(1)?)?;
    assert_eq!(both.select(0, 3)?.to_vec::<i64>()?, [6, 30, 10, 34, 14, 38]);
    let part = x.slice(2, 1, -1, 1)?.select(0, -1)?;
    assert_eq!(part.to_vec::<i64>()?, [13, 14, 17, 18, 21, 22]);
    Ok(())
}

#[test]
fn a_failed_evaluation_can_be_repeated_elsewhere() -> Outcome {
    let y = tensor![1.0, 2.0].add(1)?;
    let nothing = Runtime::new([]);
    let failed = with_runtime(&nothing, Routing::default(), || y.eval().map(|_| ()));
    assert!(matches!(failed, Err(RusTorchError::Run(_))), "{failed:?}");
    assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0]);
    Ok(())
}

#[test]
fn reading_checks_what_it_is_asked_for() -> Outcome {
    let x = tensor![1.0, 2.0];
    assert_eq!(
        error(x.to_vec::<i64>()),
        "to_vec: expected a tensor of i64 (to_dtype(DType::I64) makes it one), got f32[2]"
    );
    assert_eq!(
        error(x.to_scalar::<f32>()),
        "to_scalar: expected one element (to_vec reads several), got f32[2]"
    );
    assert_eq!(x.select(0, -1)?.to_scalar::<f32>()?, 2.0);
    assert_eq!(x.narrow(0, 1, 0)?.to_vec::<f32>()?, [0.0f32; 0]);
    let placeholder = Tensor::placeholder([2], DType::F32)?;
    assert!(placeholder.add(&x)?.eval().is_err());
    assert!(Tensor::from_slice(&[1i32, 2, 3], [2, 2]).is_err());
    assert!(Tensor::zeros([usize::MAX, 2], DType::F32).is_err());
    Ok(())
}

#[test]
fn a_bad_index_is_an_error() -> Outcome {
    let table = tensor![[1.0, 2.0], [3.0, 4.0]];
    let good = table.embedding(&tensor![[1i64], [0]])?;
    assert_eq!(good.to_vec::<f32>()?, [3.0, 4.0, 1.0, 2.0]);
    for bad in [-1, 2] {
        let rows = table.embedding(&tensor![bad,])?;
        assert!(matches!(
            rows.to_vec::<f32>(),
            Err(RusTorchError::Device(_))
        ));
        assert!(table.index_select(0, &tensor![bad,])?.eval().is_err());
    }
    let zero = tensor![1, 2].floor_divide(0)?;
    assert!(zero.eval().is_err());
    Ok(())
}

#[test]
fn threads_share_tensors() -> Outcome {
    let x = tensor![1.0, 2.0, 3.0];
    let shared = x.mul(&x)?.exp()?;
    std::thread::scope(|scope| {
        let run = || shared.sum(None, false)?.add(&shared)?.to_vec::<f32>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        let alone = run()?;
        for thread in threads {
            assert_eq!(thread.join().expect("no panic")?, alone);
        }
        Ok(())
    })
}

#[test]
fn memory_that_cannot_be_written_to_is_copied_for_updates() -> Outcome {
    let state = Tensor::from_vec(vec![0.0f32; 3], [3])?;
    let view = state.view([1, 3])?;
    let start = Tensor::from_slice(&[1i32], [1])?;
    let updated = state.update_slice_(&tensor![7.0,], 0, &start)?;
    assert_eq!(updated.to_vec::<f32>()?, [0.0, 7.0, 0.0]);
    assert_eq!(
        view.to_vec::<f32>()?,
        [0.0, 7.0, 0.0],
        "views show the change"
    );
    Ok(())
}

#[test]
fn failures_name_the_method() -> Outcome {
    let (x, zero, other) = (tensor![7, 8], tensor![1, 0], tensor![1, 2]);
    // Method and line, as they were called.
    let by = |method: &str, line: u32| format!("{method} at {}:{line}:", file!());
    let remainder = (x.remainder(&zero)?, line!());
    let alone = error(remainder.0.to_vec::<i64>());
    assert!(alone.starts_with(&by("remainder", remainder.1)), "{alone}");
    // Several operations of a kind, of which one fails.
    let kinds = x.floor_divide(&other)?.add(&x.remainder(&other)?)?;
    let quotient = (kinds.floor_divide(&zero)?, line!());
    let among = error(
        quotient
            .0
            .remainder(&other)?
            .sum(0, false)?
            .to_scalar::<i64>(),
    );
    assert!(
        among.starts_with(&by("floor_divide", quotient.1)),
        "{among}"
    );
    // A function made of several operations, and an operator that one would not name otherwise.
    let chosen = (x.index_add(0, &tensor![2, 0], &x, 1)?, line!());
    let composed = error(chosen.0.to_vec::<i64>());
    assert!(
        composed.starts_with(&by("index_add", chosen.1)),
        "{composed}"
    );
    let traced = Tensor::placeholder([2], DType::I64)?;
    let (quotient, line) = (traced.floor_divide(&zero)?.neg()?, line!());
    let trace = Trace::new(&[&traced], &[&quotient])?;
    let replayed = error(trace.run(&[x.storage()?]).map(|_| ()));
    assert!(
        replayed.starts_with(&by("floor_divide", line)),
        "{replayed}"
    );
    Ok(())
}

#[test]
fn what_no_device_can_do_is_told_by_its_call() -> Outcome {
    let nothing = Runtime::new([]);
    let (sum, line) = (tensor![1.0, 2.0].add(1)?, line!());
    let failed = with_runtime(&nothing, Routing::default(), || sum.eval().map(|_| ()));
    let told = error(failed);
    let call = format!("add at {}:{line}:", file!());
    assert!(told.starts_with(&call), "{told}");
    Ok(())
}
