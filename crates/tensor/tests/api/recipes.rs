//! Values that were computed on a device which is lost then.

use std::sync::Arc;

use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_ir::{DType, OpKind};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, DeviceType, Routing, Runtime, Storage};
use rustorch_tensor::{
    RusTorchError, RusTorchResult, Tensor, Trace, eval_all, host, tensor, with_runtime,
};

use rustorch_testing::queued::Queued;

use crate::{Outcome, assert_close, error};

const DEVICE: DeviceType = DeviceType::Cpu;

/// A limit that is enough for these tests.
const ENOUGH: u64 = 1 << 20;

/// A device with memory of its own, that is lost with its first `softmax`, and one behind it.
fn runtime(limit: u64) -> Runtime {
    let fault = Fault {
        device: DEVICE,
        op: Some(OpKind::Softmax),
        when: When::Nth(1),
        kind: FaultKind::Lost,
    };
    let first = Faulty::new(host(1).remove(0), [fault]);
    let devices: [Arc<dyn Backend>; 2] = [Arc::new(first), Arc::new(Reference::new())];
    let runtime = Runtime::new(devices);
    runtime.set_recipe_limit(limit);
    runtime
}

/// Calls `f` with a runtime of which the device has not been lost yet.
fn on_device(limit: u64, f: impl FnOnce(&Runtime) -> Outcome) -> Outcome {
    let runtime = runtime(limit);
    with_runtime(&runtime, Routing::AUTO, || f(&runtime))
}

/// The device is lost.
fn lose(runtime: &Runtime) -> Outcome {
    assert!(!runtime.is_lost(DEVICE));
    tensor![1.0, 2.0].softmax(0)?.eval()?;
    assert!(runtime.is_lost(DEVICE));
    Ok(())
}

fn made(tensor: &Tensor) -> RusTorchResult<Tensor> {
    let tensor = tensor.eval()?.clone();
    assert_eq!(tensor.device(), Some(DEVICE));
    Ok(tensor)
}

/// The error says that this tensor is lost.
#[track_caller]
fn assert_lost<T>(result: RusTorchResult<T>, tensor: &str, op: &str) {
    let told = error(result);
    let expected =
        format!("the only copy of a tensor {tensor}, computed by {op}, was lost with cpu ");
    assert!(told.starts_with(&expected), "{told}");
    assert!(told.contains("set_recipe_limit"), "{told}");
}

#[test]
fn a_chain_of_values_survives() -> Outcome {
    on_device(ENOUGH, |runtime| {
        let x = tensor![0.0, 1.0, 2.0];
        let a = made(&x.exp()?)?;
        let b = made(&a.mul(2.0)?)?;
        // Nobody holds the values in between.
        let c = made(&b.add(&x)?.neg()?.sub(&a)?)?;
        lose(runtime)?;
        let e: Vec<f32> = [0.0f32, 1.0, 2.0].map(f32::exp).to_vec();
        let all = |f: fn(f32, f32) -> f32| [0, 1, 2].map(|i| f(e[i], i as f32));
        assert_close(&c, &all(|e, x| -3.0 * e - x));
        assert_close(&a, &all(|e, _| e));
        assert_close(&b, &all(|e, _| 2.0 * e));
        // The tensors are on a device again, and can be computed with.
        assert_eq!(b.device(), Some(DeviceType::Reference));
        assert_close(&b.add(&a)?, &all(|e, _| 3.0 * e));
        Ok(())
    })
}

#[test]
fn what_is_computed_from_lost_values_is_computed() -> Outcome {
    on_device(ENOUGH, |runtime| {
        let a = made(&tensor![1.0, 4.0].sqrt()?)?;
        let b = made(&a.add(1.0)?)?;
        let later = b.mul(&a)?.add(&b)?;
        lose(runtime)?;
        let before = runtime.computed();
        assert_close(&later, &[4.0, 9.0]);
        let alone = b.neg()?;
        assert_close(&alone, &[-2.0, -3.0]);
        assert_close(&a.to_device(DeviceType::Reference)?, &[1.0, 2.0]);
        // Two for the lost ones, of which the second finds the first again; two, one.
        assert_eq!(runtime.computed() - before, 5);
        Ok(())
    })
}

#[test]
fn without_recipes_the_error_names_the_tensor() -> Outcome {
    on_device(0, |runtime| {
        let x = tensor![0.0, 1.0, 2.0].reshape([1, 3])?;
        let a = made(&x.exp()?)?;
        let (view, later) = (a.t()?, a.neg()?);
        let moved = tensor![1, 2].to_device(DEVICE)?;
        lose(runtime)?;
        assert_lost(a.to_vec::<f32>(), "f32[1, 3]", "exp");
        assert_lost(view.to_vec::<f32>(), "f32[3, 1]", "exp");
        assert_lost(later.to_vec::<f32>(), "f32[1, 3]", "exp");
        assert_lost(a.add(&later)?.eval(), "f32[1, 3]", "exp");
        assert_lost(a.to_device(DeviceType::Reference), "f32[1, 3]", "exp");
        assert_lost(a.storage(), "f32[1, 3]", "exp");
        // Tensors in the host's memory are not lost.
        assert_close(&x, &[0.0, 1.0, 2.0]);
        assert_eq!(moved.to_vec::<i64>()?, [1, 2]);
        assert!(matches!(
            a.to_vec::<f32>(),
            Err(RusTorchError::DataLost { device: DEVICE, .. })
        ));
        Ok(())
    })
}

#[test]
fn views_survive_without_what_they_are_views_of() -> Outcome {
    on_device(ENOUGH, |runtime| {
        let x = Tensor::arange_with(0, 6, 1, DType::F32)?.reshape([2, 3])?;
        let a = made(&x.neg()?)?;
        let (turned, part) = (a.t()?, a.narrow(1, 1, 2)?);
        let of_view = made(&turned.add(1.0)?)?;
        drop(a);
        lose(runtime)?;
        assert_close(&part, &[-1.0, -2.0, -4.0, -5.0]);
        let before = runtime.computed();
        // In the memory that the other view was computed to: a view and a copy of that.
        assert_close(&turned.contiguous()?, &[0.0, -3.0, -1.0, -4.0, -2.0, -5.0]);
        assert_eq!(runtime.computed() - before, 2);
        assert_close(&of_view, &[1.0, -2.0, 0.0, -3.0, -1.0, -4.0]);
        Ok(())
    })
}

#[test]
fn all_results_of_an_operation_survive() -> Outcome {
    on_device(ENOUGH, |runtime| {
        let x = tensor![3.0, 1.0, 2.0].add(1.0)?;
        let (values, indices) = x.topk(2, 0, true)?;
        eval_all(&[&values, &indices])?;
        let sum = made(&values.sum(None, false)?)?;
        lose(runtime)?;
        assert_eq!(indices.to_vec::<i64>()?, [0, 2]);
        assert_close(&values, &[4.0, 3.0]);
        assert_close(&sum, &[7.0]);
        Ok(())
    })
}

#[test]
fn random_numbers_are_the_same_again() -> Outcome {
    let drawn = |loses: bool| {
        let mut drawn = Vec::new();
        on_device(ENOUGH, |runtime| {
            let x = made(&Tensor::rand_seeded([8], DType::F32, 7)?)?;
            if loses {
                lose(runtime)?;
            }
            drawn = x.to_vec::<f32>()?;
            Ok(())
        })
        .map(|()| drawn)
    };
    assert_eq!(drawn(true)?, drawn(false)?);
    Ok(())
}

#[test]
fn what_was_written_over_is_read_by_no_recipe() -> Outcome {
    on_device(ENOUGH, |runtime| {
        let mut x = tensor![1.0, 2.0];
        let a = made(&x.neg()?)?;
        let b = made(&a.exp()?)?;
        x.copy_(&tensor![5.0, 6.0])?.eval()?;
        // Computed from what the update left on the device.
        let c = made(&x.neg()?)?;
        lose(runtime)?;
        assert_lost(a.to_vec::<f32>(), "f32[2]", "neg");
        assert_lost(b.to_vec::<f32>(), "f32[2]", "exp");
        assert_lost(c.to_vec::<f32>(), "f32[2]", "neg");
        assert_lost(x.to_vec::<f32>(), "f32[2]", "copy_");
        Ok(())
    })
}

#[test]
fn an_updated_value_is_not_computed_as_it_was_before() -> Outcome {
    on_device(ENOUGH, |runtime| {
        let a = made(&tensor![1.0, 2.0].neg()?)?;
        let read_before = a.exp()?;
        let mut updated = a.clone();
        updated.copy_(&tensor![5.0, 6.0])?;
        eval_all(&[&read_before, &updated])?;
        lose(runtime)?;
        // Both are handles on the memory that was written over.
        assert_lost(a.to_vec::<f32>(), "f32[2]", "neg");
        assert_lost(updated.to_vec::<f32>(), "f32[2]", "copy_");
        // A result that was computed from it before the write is still known.
        assert_close(&read_before, &[(-1f32).exp(), (-2f32).exp()]);
        Ok(())
    })
}

#[test]
fn a_value_written_over_through_its_storage_is_none() -> Outcome {
    on_device(ENOUGH, |runtime| {
        let x = tensor![1.0, 2.0];
        let a = made(&x.neg()?)?;
        runtime.write(&x.storage()?, &[0; 8])?;
        lose(runtime)?;
        assert_lost(a.to_vec::<f32>(), "f32[2]", "neg");
        Ok(())
    })
}

#[test]
fn what_recipes_keep_is_bounded() -> Outcome {
    const COUNT: usize = 1000;
    on_device(10_000, |runtime| {
        let input = |value: f32| Tensor::from_slice(&[value; COUNT], [COUNT]);
        let held = input(1.0)?;
        let from_held = made(&held.neg()?)?;
        assert_eq!(runtime.recipe_bytes(), 0, "somebody else holds it");
        let dropped: Vec<Tensor> = (0..4u8)
            .map(|i| made(&input(i.into())?.neg()?))
            .collect::<RusTorchResult<_>>()?;
        // The last recipe is given up only when the next value is computed.
        made(&held.exp()?)?;
        assert_eq!(runtime.recipe_bytes(), 2 * 4 * COUNT as u64);
        lose(runtime)?;
        assert_lost(dropped[0].to_vec::<f32>(), "f32[1000]", "neg");
        assert_lost(dropped[1].to_vec::<f32>(), "f32[1000]", "neg");
        assert_close(&dropped[2], &[-2.0; COUNT]);
        assert_close(&dropped[3], &[-3.0; COUNT]);
        assert_close(&from_held, &[-1.0; COUNT]);
        drop(dropped);
        assert_eq!(runtime.recipe_bytes(), 0);
        Ok(())
    })
}

#[test]
fn a_chain_is_as_long_as_a_history_may_be() -> Outcome {
    let counted = |steps: usize| {
        let mut result = None;
        on_device(ENOUGH, |runtime| {
            let mut x = tensor![0i64];
            for _ in 0..steps {
                x = made(&x.add(1)?)?;
            }
            lose(runtime)?;
            result = Some(x.to_scalar::<i64>());
            Ok(())
        })
        .map(|()| result)
    };
    assert_eq!(counted(1000)?, Some(Ok(1000)));
    assert!(matches!(
        counted(1001)?,
        Some(Err(RusTorchError::DataLost { .. }))
    ));
    Ok(())
}

#[test]
fn a_second_loss_is_survived_as_well() -> Outcome {
    let fault = |device, op| Fault {
        device,
        op: Some(op),
        when: When::Nth(1),
        kind: FaultKind::Lost,
    };
    let reference: Arc<dyn Backend> = Arc::new(Reference::new());
    let devices: [Arc<dyn Backend>; 3] = [
        Arc::new(Faulty::new(
            host(1).remove(0),
            [fault(DEVICE, OpKind::Softmax)],
        )),
        Arc::new(Faulty::new(
            reference.clone(),
            [fault(DeviceType::Reference, OpKind::Pad)],
        )),
        reference,
    ];
    let runtime = Runtime::new(devices);
    runtime.set_recipe_limit(ENOUGH);
    with_runtime(&runtime, Routing::AUTO, || {
        let a = made(&tensor![1.0, 2.0].neg()?)?;
        let b = made(&a.mul(3.0)?)?;
        lose(&runtime)?;
        assert_close(&a, &[-1.0, -2.0]);
        assert_eq!(a.device(), Some(DeviceType::Reference));
        tensor![1.0, 2.0].pad([1, 1], 0.0)?.eval()?;
        assert_eq!(runtime.fallbacks().len(), 2);
        assert_close(&b, &[-3.0, -6.0]);
        assert_close(&a, &[-1.0, -2.0]);
        Ok(())
    })
}

#[test]
fn what_fails_behind_the_callers_back_is_computed_again() -> Outcome {
    let fault = Fault {
        device: DEVICE,
        op: Some(OpKind::Binary),
        when: When::Nth(3),
        kind: FaultKind::Lost,
    };
    let queued = Queued::over(Arc::new(Faulty::new(host(1).remove(0), [fault])));
    let device = queued.info().device;
    let runtime = Runtime::new([queued, Arc::new(Reference::new())]);
    runtime.set_recipe_limit(ENOUGH);
    with_runtime(&runtime, Routing::AUTO, || {
        let mut values = vec![tensor![1.0, 2.0]];
        for last in 0..5 {
            let next = values[last].add(1.0)?;
            values.push(next.eval()?.clone());
        }
        for (i, value) in values.iter().enumerate() {
            assert_close(value, &[1.0 + i as f32, 2.0 + i as f32]);
        }
        assert!(runtime.is_lost(device));
        Ok(())
    })
}

/// A runtime with a device that works behind the caller's back.
fn queued() -> Runtime {
    let queued = Queued::over(host(1).remove(0));
    let runtime = Runtime::new([queued, Arc::new(Reference::new())]);
    runtime.set_recipe_limit(ENOUGH);
    runtime
}

#[test]
fn a_mistake_is_told_by_whoever_reads_what_came_of_it() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![1.0, 2.0, 3.0];
        let before = made_ahead(&x.add(1.0)?)?;
        let wrong = made_ahead(&x.index_select(0, &tensor![0i64, 7])?)?;
        let line = line!() - 1;
        let from_it = made_ahead(&wrong.neg()?)?;
        let after = made_ahead(&x.sqrt()?)?;
        for tensor in [&from_it, &wrong, &from_it] {
            let told = error(tensor.to_vec::<f32>());
            let place = format!("index_select at crates/tensor/tests/api/recipes.rs:{line}:");
            assert!(told.starts_with(&place), "{told}");
            assert!(told.contains("the index 7 at [1]"), "{told}");
        }
        // Values that do not depend on it are computed again if they have to be.
        assert_close(&after, &[1.0, 2.0f32.sqrt(), 3.0f32.sqrt()]);
        assert_close(&before, &[2.0, 3.0, 4.0]);
        assert_close(&x.index_select(0, &tensor![2i64, 0])?, &[3.0, 1.0]);
        assert!(!runtime.is_lost(DeviceType::Cuda(0)));
        assert_eq!(made_ahead(&x.neg()?)?.device(), Some(DeviceType::Cuda(0)));
        Ok(())
    })
}

#[test]
fn a_state_is_not_written_over_by_what_came_of_a_mistake() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let mut state = made_ahead(&tensor![1.0, 2.0].add(0.0)?)?;
        let wrong = made_ahead(&tensor![5.0, 6.0].index_select(0, &tensor![0i64, 2])?)?;
        let memory = state.clone();
        let told = error(state.copy_(&wrong).and_then(|state| state.to_vec::<f32>()));
        assert!(told.contains("the index 2 at [1]"), "{told}");
        assert_close(&memory, &[1.0, 2.0]);
        Ok(())
    })
}

/// Fails as `index_select` of the index 7 does.
#[track_caller]
fn assert_mistaken<T>(result: RusTorchResult<T>) {
    let told = error(result);
    let place = "index_select at crates/tensor/tests/api/recipes.rs:";
    assert!(told.starts_with(place), "{told}");
    assert!(told.contains("the index 7 at"), "{told}");
}

/// The bytes of a storage, of which nobody knows how to compute them again.
fn bytes(runtime: &Runtime, storage: &Storage) -> RusTorchResult<Vec<u8>> {
    let mut bytes = vec![0; storage.bytes()];
    runtime.read(storage, 0, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn a_mistake_belongs_to_its_tensor_and_no_other_is_touched() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![1.0, 2.0, 3.0];
        let before = made_ahead(&x.add(1.0)?)?;
        let wrong = made_ahead(&x.index_select(0, &tensor![0i64, 7])?)?;
        let between = made_ahead(&x.mul(2.0)?)?;
        let other = made_ahead(&x.index_select(0, &tensor![2i64])?)?;
        let both = made_ahead(&between.sum(None, false)?.add(&other)?)?;
        let storages = [&before, &between, &other, &both].map(Tensor::storage);
        let after = made_ahead(&between.sqrt()?)?;
        assert_mistaken(wrong.to_vec::<f32>());
        let computed = runtime.computed();
        let found = storages.map(|storage| bytes(&runtime, &storage?));
        let expected: [&[f32]; 4] = [&[2.0, 3.0, 4.0], &[2.0, 4.0, 6.0], &[3.0], &[15.0]];
        for (found, expected) in found.into_iter().zip(expected) {
            let expected: Vec<u8> = expected.iter().flat_map(|x| x.to_ne_bytes()).collect();
            assert_eq!(found?, expected);
        }
        assert_close(&after, &[2.0, 4.0, 6.0].map(f32::sqrt));
        assert_eq!(runtime.computed(), computed, "nothing is computed again");
        Ok(())
    })
}

#[test]
fn runs_of_one_program_are_told_apart() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![1.0, 2.0, 3.0];
        let select = |place: i64| made_ahead(&x.index_select(0, &tensor![place])?);
        let chosen = [select(2)?, select(7)?, select(0)?, select(7)?, select(1)?];
        let storages = [0, 2, 4].map(|i| chosen[i].storage());
        for i in [1, 3, 1] {
            assert_mistaken(chosen[i].item());
            assert_mistaken(chosen[i].storage());
        }
        for (storage, expected) in storages.into_iter().zip([3.0f32, 1.0, 2.0]) {
            assert_eq!(bytes(&runtime, &storage?)?, expected.to_ne_bytes());
        }
        assert_close(&chosen[0].add(&chosen[2])?.add(&chosen[4])?, &[6.0]);
        Ok(())
    })
}

#[test]
fn views_and_what_is_computed_of_a_mistake_tell_it() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]];
        let wrong = made_ahead(&x.index_select(0, &tensor![0i64, 7])?)?;
        let views = [wrong.narrow(0, 0, 1)?, wrong.t()?, wrong.reshape([4])?];
        let sum = wrong.mul(2.0)?.sum(None, false)?;
        sum.eval()?;
        for view in views.iter().chain([&sum, &views[0]]) {
            assert_mistaken(view.to_vec::<f32>());
            assert_mistaken(view.neg()?.to_vec::<f32>());
            assert_mistaken(view.storage());
        }
        assert_mistaken(sum.item());
        assert_mistaken(sum.fetch_item().and_then(|item| item.item()));
        assert_mistaken(wrong.to_device(DeviceType::Reference));
        Ok(())
    })
}

#[test]
fn of_several_results_that_are_computed_together_one_is_wrong() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![1.0, 2.0, 3.0];
        let half = x.mul(0.5)?;
        let wrong = half.index_select(0, &tensor![7i64])?.exp()?;
        let [good, further] = [half.exp()?, half.add(1.0)?];
        eval_all(&[&good, &wrong, &further])?;
        assert_close(&good, &[0.5, 1.0, 1.5].map(f32::exp));
        assert_mistaken(wrong.to_vec::<f32>());
        assert_close(&further, &[1.5, 2.0, 2.5]);
        assert_close(&half, &[0.5, 1.0, 1.5]);
        assert_mistaken(wrong.add(1.0)?.to_vec::<f32>());
        Ok(())
    })
}

#[test]
fn a_mistake_that_nobody_reads_is_nobodys() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![1.0, 2.0, 3.0];
        let y = made_ahead(&x.neg()?)?;
        for _ in 0..3 {
            drop(made_ahead(&x.index_select(0, &tensor![7i64])?)?);
        }
        let z = made_ahead(&y.neg()?)?;
        assert_close(&z, &[1.0, 2.0, 3.0]);
        assert_close(&x.index_select(0, &tensor![1i64])?, &[2.0]);
        assert!(runtime.fallbacks().is_empty());
        Ok(())
    })
}

#[test]
fn what_cannot_be_computed_again_is_not_computed_of_a_mistake() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![1.0, 2.0, 3.0];
        // A state that only the device has.
        let mut state = made_ahead(&x.add(0.0)?)?;
        state.copy_(&x.mul(2.0)?)?.eval()?;
        let wrong = made_ahead(&x.index_select(0, &tensor![0i64, 7, 1])?)?;
        let of_state = made_ahead(&state.neg()?)?;
        assert_mistaken(state.add(&wrong)?.eval());
        assert_mistaken(wrong.to_vec::<f32>());
        assert_close(&of_state, &[-2.0, -4.0, -6.0]);
        assert_close(&state, &[2.0, 4.0, 6.0]);
        Ok(())
    })
}

#[test]
fn a_trace_reads_nothing_that_came_of_a_mistake() -> Outcome {
    let runtime = queued();
    with_runtime(&runtime, Routing::AUTO, || {
        let x = tensor![1.0, 2.0, 3.0];
        let select = |place: i64| made_ahead(&x.index_select(0, &tensor![place])?);
        let (good, wrong) = (select(2)?, select(7)?);
        let placeholder = Tensor::placeholder([1], DType::F32)?;
        let trace = |by: &Tensor| Trace::new(&[&placeholder], &[&placeholder.mul(by)?]);
        let by_good = trace(&good)?;
        assert_mistaken(trace(&wrong).map(drop));
        let y = by_good.run(&[tensor![2.0].storage()?])?;
        assert_eq!(bytes(&runtime, &y[0])?, 6.0f32.to_ne_bytes());
        Ok(())
    })
}

/// Computed, without waiting for it.
#[track_caller]
fn made_ahead(tensor: &Tensor) -> RusTorchResult<Tensor> {
    let tensor = tensor.eval()?.clone();
    assert_eq!(tensor.device(), Some(DeviceType::Cuda(0)));
    Ok(tensor)
}
