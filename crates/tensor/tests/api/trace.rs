//! Recorded computations.

use crate::Outcome;
use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor, Trace, runtime, tensor};

fn read(storage: &Storage, shape: &[usize]) -> RusTorchResult<Vec<f32>> {
    Tensor::from_storage(storage.clone(), shape, DType::F32)?.to_vec()
}

/// A cache of `n` rows of width 2 that holds nothing yet.
fn cache(n: usize) -> RusTorchResult<Tensor> {
    let zeros = Tensor::zeros([1, n, 2], DType::F32)?;
    zeros.eval()?;
    Ok(zeros)
}

/// Attention of one new key, value and query to those before it.
fn step(keys: &Tensor, values: &Tensor) -> RusTorchResult<Trace> {
    let x = Tensor::placeholder([1, 1, 2], DType::F32)?;
    let past = Tensor::placeholder([1], DType::I32)?;
    let k = keys.update_slice_(&x, 1, &past)?;
    let v = values.update_slice_(&x.mul(10)?, 1, &past)?;
    let options = AttentionOptions {
        is_causal: true,
        past: Some(&past),
        ..Default::default()
    };
    let y = x.scaled_dot_product_attention(&k, &v, options)?;
    Trace::new(&[&x, &past], &[&y])
}

#[test]
fn state_is_kept_from_run_to_run() -> Outcome {
    let (keys, values) = (cache(4)?, cache(4)?);
    let trace = step(&keys, &values)?;
    assert_eq!(trace.outputs().len(), 1);
    let run = |x: [f32; 2], past: i32| -> RusTorchResult<Vec<f32>> {
        let x = Tensor::from_slice(&x, [1, 1, 2])?.storage()?;
        read(
            &trace.run(&[x, tensor![past as i64].to_dtype(DType::I32)?.storage()?])?[0],
            &[2],
        )
    };
    assert_eq!(run([1.0, 2.0], 0)?, [10.0, 20.0]);
    let second = run([0.0, 0.0], 1)?;
    assert_eq!(
        second,
        [5.0, 10.0],
        "a query of zeros sees both values alike"
    );
    assert_eq!(
        keys.to_vec::<f32>()?,
        [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    );
    // Running again writes the same.
    assert_eq!(run([0.0, 0.0], 1)?, second);
    assert!(run([0.0, 0.0], 4).is_err(), "the cache is full");
    let rows = trace.executable().explain()?;
    assert!(
        rows.iter()
            .any(|row| row.op == "update_slice" && row.count == 2)
    );
    Ok(())
}

#[test]
fn a_lost_state_is_replaced() -> Outcome {
    let (keys, values) = (cache(2)?, cache(2)?);
    let mut trace = step(&keys, &values)?;
    let inputs = [
        tensor![[[1.0, 2.0]]].storage()?,
        Tensor::from_slice(&[0i32], [1])?.storage()?,
    ];
    trace.run(&inputs)?;
    let fresh = cache(2)?;
    trace.rebind(&keys.storage()?, &fresh.storage()?)?;
    let leaf = (0..).find_map(|i| trace.leaf(i)).expect("leaves");
    assert_eq!(leaf.bytes(), 16);
    trace.run(&inputs)?;
    assert_eq!(fresh.to_vec::<f32>()?, [1.0, 2.0, 0.0, 0.0]);
    let small = Storage::from_host(HostBuffer::zeroed(4).expect("memory"));
    assert!(
        trace.rebind(&fresh.storage()?, &small).is_err(),
        "another size"
    );
    assert!(
        trace
            .rebind(&keys.storage()?, &cache(2)?.storage()?)
            .is_err(),
        "not used any more"
    );
    Ok(())
}

#[test]
fn wrong_inputs_are_errors() -> Outcome {
    let x = Tensor::placeholder([2], DType::F32)?;
    let y = x.add(1)?;
    let trace = Trace::new(&[&x], &[&y, &x])?;
    let two = tensor![1.0, 2.0].storage()?;
    assert!(trace.run(&[]).is_err());
    assert!(trace.run(&[two.clone(), two.clone()]).is_err());
    assert!(trace.run(&[tensor![1.0].storage()?]).is_err());
    let outputs = trace.run(&[two])?;
    assert_eq!(read(&outputs[0], &[2])?, [2.0, 3.0]);
    assert_eq!(read(&outputs[1], &[2])?, [1.0, 2.0]);
    // A placeholder that is not given, and a tensor in the place of one.
    assert!(Trace::new(&[], &[&y]).is_err());
    assert!(Trace::new(&[&tensor![1.0]], &[&y]).is_err());
    Ok(())
}

#[test]
fn an_old_state_is_not_read_behind_its_update() -> Outcome {
    let keys = cache(2)?;
    let start = Tensor::from_slice(&[0i32], [1])?;
    let source = tensor![[[1.0, 2.0]]];
    let updated = keys.update_slice_(&source, 1, &start)?;
    let both = updated.add(&keys)?;
    let error = both.eval().map(|_| ()).expect_err("reads the old state");
    assert!(error.to_string().contains("written over"), "{error}");
    assert!(
        keys.narrow(1, 0, 1)?
            .update_slice_(&source, 1, &start)
            .is_err()
    );
    // One update after another is fine, and the state itself shows both.
    let again = updated.update_slice_(&source.neg()?, 1, &Tensor::from_slice(&[1i32], [1])?)?;
    assert_eq!(again.to_vec::<f32>()?, [1.0, 2.0, -1.0, -2.0]);
    assert!(updated.is_ready() && updated.storage()?.same_as(&keys.storage()?));
    assert_eq!(keys.to_vec::<f32>()?, [1.0, 2.0, -1.0, -2.0]);
    Ok(())
}

#[test]
fn replaying_does_not_plan_again() -> Outcome {
    let x = Tensor::placeholder([1], DType::F32)?;
    let mut y = x.clone();
    for _ in 0..50 {
        y = y.add(1)?;
    }
    let trace = Trace::new(&[&x], &[&y])?;
    drop(y);
    for i in 0..5 {
        let input = Tensor::from_slice(&[i as f32], [1])?.storage()?;
        assert_eq!(read(&trace.run(&[input])?[0], &[1])?, [i as f32 + 50.0]);
    }
    assert!(!runtime().used_devices().is_empty());
    Ok(())
}
