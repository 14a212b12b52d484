//! Tensors whose memory is written over.

use rustorch_ir::DType;
use rustorch_tensor::{Tensor, Trace, eval_all, no_grad, tensor};

use super::{Outcome, error};

const STALE: &str = "written over since";

#[test]
fn a_running_mean_stays_in_its_memory() -> Outcome {
    let mut mean = Tensor::zeros([2], DType::F32)?;
    mean.eval()?;
    let memory = mean.storage()?;
    for _ in 0..3 {
        let x = tensor![10.0, 20.0];
        let new = mean.mul(0.5)?.add(&x.mul(0.5)?)?;
        mean.copy_(&new)?;
    }
    assert_eq!(mean.to_vec::<f32>()?, [8.75, 17.5]);
    assert!(mean.storage()?.same_as(&memory));
    Ok(())
}

#[test]
fn a_counter_counts() -> Outcome {
    let mut count = tensor![0];
    let other = count.clone();
    for step in 1..=5 {
        let next = count.add(1)?;
        count.copy_(&next)?;
        if step % 2 == 0 {
            assert_eq!(count.to_scalar::<i64>()?, step);
        }
    }
    assert_eq!(count.to_scalar::<i64>()?, 5);
    assert_eq!(other.to_scalar::<i64>()?, 5);
    Ok(())
}

#[test]
fn a_step_of_sgd_by_hand() -> Outcome {
    let mut w = tensor![1.0, -2.0];
    w.requires_grad_(true)?;
    // The gradient of Σ w² / 2 is w.
    let (mut loss, mut losses) = (w.square()?.mul(0.5)?.sum([0], false)?, Vec::new());
    for _ in 0..2 {
        let step = no_grad(|| w.sub(&w.mul(0.5)?))?;
        no_grad(|| w.copy_(&step).map(|_| ()))?;
        // Both the loss before and the weights behind it are had from one computation.
        eval_all(&[&loss, &w])?;
        losses.push(loss.to_scalar::<f32>()?);
        loss = w.square()?.mul(0.5)?.sum([0], false)?;
    }
    assert!(w.requires_grad() && w.is_leaf());
    assert_eq!(losses, [2.5, 0.625]);
    assert_eq!(w.to_vec::<f32>()?, [0.25, -0.5]);
    Ok(())
}

#[test]
fn what_was_recorded_before_is_refused_afterwards() -> Outcome {
    let mut x = tensor![1.0, 2.0];
    let before = x.mul(10)?;
    let view = x.narrow(0, 1, 1)?;
    let chain = x.neg()?.exp()?;
    x.copy_(&tensor![3.0, 4.0])?;
    // Recorded behind the update: it reads the new elements, now and when those are there.
    let behind = x.mul(10)?;
    x.eval()?;
    assert_eq!(behind.to_vec::<f32>()?, [30.0, 40.0]);
    assert!(error(before.eval().map(|_| ())).contains(STALE));
    assert!(error(chain.eval().map(|_| ())).contains(STALE));
    assert!(error(Trace::new(&[], &[&before]).map(|_| ())).contains(STALE));
    // A view shows the memory.
    assert_eq!(view.to_vec::<f32>()?, [4.0]);
    // An update that another one, recorded later, came before.
    let (mut first, mut second) = (x.clone(), x.clone());
    first.copy_(&tensor![5.0, 5.0])?;
    second.copy_(&tensor![6.0, 6.0])?;
    second.eval()?;
    assert!(error(first.eval().map(|_| ())).contains(STALE));
    assert_eq!(x.to_vec::<f32>()?, [6.0, 6.0]);
    Ok(())
}

#[test]
fn old_elements_are_read_in_the_same_computation() -> Outcome {
    let mut x = tensor![1.0, 2.0];
    let (old, before) = (x.clone(), x.mul(10)?);
    x.copy_(&tensor![3.0, 4.0])?;
    eval_all(&[&before.add(&x)?])?;
    assert_eq!(before.to_vec::<f32>()?, [10.0, 20.0]);
    assert_eq!(x.to_vec::<f32>()?, [3.0, 4.0]);
    // The old elements behind the update.
    let old_again = old.clone();
    x.copy_(&tensor![5.0, 6.0])?;
    let refused = error(old_again.add(&x)?.eval().map(|_| ()));
    assert!(
        refused.contains("no node before has written over"),
        "{refused}"
    );
    assert_eq!(x.to_vec::<f32>()?, [5.0, 6.0]);
    Ok(())
}

#[test]
fn sources_are_broadcast_converted_and_may_be_the_tensor_itself() -> Outcome {
    let mut x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let transposed = x.t()?;
    x.copy_(&transposed)?;
    assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    let flat = x.reshape([4])?;
    let reversed = flat.reshape([2, 2])?;
    x.copy_(&reversed)?;
    x.copy_(&x.clone())?;
    assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    x.copy_(&tensor![7, 8])?;
    assert_eq!(x.to_vec::<f32>()?, [7.0, 8.0, 7.0, 8.0]);
    // A reshaped tensor is another shape of the same memory.
    let mut flat = x.reshape([4])?;
    let sum = flat.add(&x.reshape([4])?)?;
    flat.copy_(&sum)?;
    assert_eq!(flat.to_vec::<f32>()?, [14.0, 16.0, 14.0, 16.0]);
    assert_eq!(x.to_vec::<f32>()?, [14.0, 16.0, 14.0, 16.0]);
    Ok(())
}

#[test]
fn what_cannot_be_written_over_says_so() -> Outcome {
    let mut x = tensor![1.0, 2.0];
    assert!(error(x.copy_(&tensor![1.0, 2.0, 3.0]).map(|_| ())).starts_with("copy_: "));
    let mut part = x.narrow(0, 0, 1)?;
    assert!(error(part.copy_(&tensor![1.0]).map(|_| ())).contains("all of its memory"));
    x.requires_grad_(true)?;
    assert!(error(x.copy_(&tensor![1.0, 2.0]).map(|_| ())).contains("wants no gradient"));
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn a_trace_updates_in_every_run() -> Outcome {
    let count = tensor![0.0,];
    let x = Tensor::placeholder([1], DType::F32)?;
    let mut next = count.clone();
    next.copy_(&count.add(&x)?)?;
    let trace = Trace::new(&[&x], &[&next])?;
    let stale = count.mul(2)?;
    let two = tensor![2.0,].storage()?;
    for step in 1..=3_u8 {
        trace.run(std::slice::from_ref(&two))?;
        assert_eq!(count.to_scalar::<f32>()?, 2.0 * f32::from(step));
    }
    assert!(error(stale.eval().map(|_| ())).contains(STALE));
    Ok(())
}
