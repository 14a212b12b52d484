//! Memory that a history keeps, and for how long: counted, not timed.

use rustorch_ir::{DType, OpKind};
use rustorch_runtime::{DeviceType, Routing, Runtime, WeakStorage};
use rustorch_tensor::{
    RusTorchResult, Tensor, eval_all, host, is_grad_enabled, no_grad, tensor, with_runtime,
};

use crate::{Outcome, error};

/// A runtime of its own, whose counters nobody else moves.
fn on_host(f: impl FnOnce(&Runtime) -> Outcome) -> Outcome {
    let runtime = Runtime::new(host(1));
    with_runtime(&runtime, Routing::AUTO, || f(&runtime))
}

/// Bytes of tensors in the processor's own memory.
fn in_use(runtime: &Runtime) -> u64 {
    let pools = runtime.memory().pools();
    let cpu = pools.iter().find(|pool| pool.device == DeviceType::Cpu);
    cpu.expect("the processor").in_use
}

/// The number of operations that a call computes.
fn computed(runtime: &Runtime, f: impl FnOnce() -> Outcome) -> RusTorchResult<u64> {
    let before = runtime.computed();
    f()?;
    Ok(runtime.computed() - before)
}

#[test]
fn a_loop_that_reads_only_its_loss_takes_linear_time_and_level_memory() -> Outcome {
    on_host(|runtime| {
        let x = Tensor::randn_seeded([64, 8], DType::F32, 1)?;
        let y = Tensor::randn_seeded([64, 1], DType::F32, 2)?;
        eval_all(&[&x, &y])?;
        let mut w = Tensor::randn_seeded([8, 1], DType::F32, 3)?;
        let (mut losses, mut steps, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..800 {
            let count = computed(runtime, || {
                let wrong = x.matmul(&w)?.sub(&y)?;
                losses.push(wrong.square()?.mean(None, false)?.to_scalar::<f32>()?);
                let gradient = x.t()?.matmul(&wrong)?;
                w = w.sub(&gradient.mul(1e-4 + 1e-9 * f64::from(step))?)?;
                Ok(())
            })?;
            steps.push(count);
            memory.push(in_use(runtime));
        }
        assert!(losses.is_sorted_by(|a, b| a >= b) && losses[799] < 0.95 * losses[0]);
        // The second step is the first that has an update to compute.
        let [first, second] = [steps[0], steps[1]];
        assert!(first < second && second < 20, "{first} {second}");
        assert!(steps[1..].iter().all(|&count| count == second), "{steps:?}");
        assert!(
            memory[2..].iter().all(|&bytes| bytes == memory[2]),
            "{memory:?}"
        );
        // The operands, the first step, the others.
        assert_eq!(runtime.plans().new, 3);
        Ok(())
    })
}

#[test]
fn a_random_tensor_is_drawn_once() -> Outcome {
    on_host(|runtime| {
        let w = Tensor::randn_seeded([10], DType::F32, 7)?;
        let forward = || w.mul(2)?.sum(None, false)?.to_scalar::<f32>().map(drop);
        let first = computed(runtime, forward)?;
        assert!(w.is_ready());
        assert_eq!(computed(runtime, forward)?, first - 1);
        Ok(())
    })
}

#[test]
fn what_a_handle_is_on_is_kept_and_nothing_else() -> Outcome {
    on_host(|runtime| {
        let x = tensor![[1.0, 2.0], [3.0, 4.0]];
        let held = x.exp()?;
        let view = held.t()?;
        // Not what strides can express: a copy.
        let copy = view.reshape([4])?;
        let zeros = Tensor::zeros([2, 2], DType::F32)?;
        let dropped = held.neg()?;
        let result = dropped.add(&zeros)?.matmul(&view)?;
        let through = copy.sum(None, false)?;
        drop(dropped);
        eval_all(&[&result, &through])?;
        assert!(held.is_ready() && view.is_ready() && copy.is_ready());
        assert!(!zeros.is_ready(), "constants cost nothing to repeat");
        // The view is one of the same memory.
        assert!(view.t()?.storage()?.same_as(&held.storage()?));
        let e: Vec<f32> = [1.0f32, 3.0, 2.0, 4.0].map(f32::exp).to_vec();
        let close = |a: &[f32]| a.iter().zip(&e).all(|(a, b)| (a - b).abs() < 1e-4 * b);
        assert!(close(&view.contiguous()?.to_vec::<f32>()?) && close(&copy.to_vec::<f32>()?));
        assert_eq!(computed(runtime, || held.eval().map(drop))?, 0);
        // The three, the result, the sum.
        assert_eq!(in_use(runtime), 3 * 16 + 16 + 4 - 16);
        Ok(())
    })
}

#[test]
fn a_history_that_nobody_asks_for_is_cut() -> Outcome {
    on_host(|runtime| {
        let mut x = tensor![0i64];
        for _ in 0..10_000 {
            x = x.add(1)?;
        }
        // Ten times a thousand additions and one, of which the first plan serves all.
        assert_eq!((runtime.computed(), runtime.plans().new), (9 * 1001, 1));
        assert_eq!(x.to_scalar::<i64>()?, 10_000);
        // One that waits for a trace's input cannot be.
        let input = Tensor::placeholder([1], DType::I64)?;
        let mut traced = input.clone();
        for _ in 0..3000 {
            traced = traced.add(1)?;
        }
        let trace = rustorch_tensor::Trace::new(&[&input], &[&traced])?;
        assert_eq!(trace.executable().graph().nodes().len(), 6000);
        Ok(())
    })
}

#[test]
fn a_history_keeps_a_bounded_amount_of_memory() -> Outcome {
    const MIB: usize = 1 << 20;
    on_host(|runtime| {
        let shared = Tensor::from_slice(&vec![1u8; 64 * MIB], [64, MIB])?;
        let mut sum = Tensor::zeros([64, MIB], DType::U8)?;
        // Held by somebody else: it may be in the history as often as it likes.
        for _ in 0..20 {
            sum = sum.add(&shared)?;
        }
        assert_eq!(runtime.computed(), 0);
        let mut terms: Vec<WeakStorage> = Vec::new();
        for _ in 0..20 {
            let term = Tensor::from_slice(&vec![1u8; 64 * MIB], [64, MIB])?;
            terms.push(term.storage()?.downgrade());
            sum = sum.add(&term)?;
            drop(term);
            let alive = terms.iter().filter(|term| term.upgrade().is_some());
            assert!(alive.count() <= 5);
        }
        assert!(runtime.computed() > 0);
        assert_eq!(sum.select(0, 63)?.select(0, -1)?.to_scalar::<u8>()?, 40);
        Ok(())
    })
}

#[test]
fn gradients_that_are_wanted_keep_the_history() -> Outcome {
    on_host(|_| {
        let mut w = tensor![2.0, 3.0];
        assert!(!w.requires_grad() && w.is_leaf() && w.recorded().is_none());
        w.requires_grad_(true)?;
        assert!(w.requires_grad() && w.is_leaf() && w.recorded().is_none());
        let x = tensor![[1.0, 10.0]];
        let weak = x.storage()?.downgrade();
        // A view of a tensor in memory is one at once, and recorded all the same.
        let column = w.unsqueeze(1)?;
        assert!(column.is_ready() && column.requires_grad() && !column.is_leaf());
        let y = x.matmul(&column)?.mul(2)?;
        assert_eq!(y.to_vec::<f32>()?, [64.0]);
        drop((x, column));
        assert!(weak.upgrade().is_some());
        // The whole way back, after it was computed.
        let product = y.recorded().expect("a product");
        assert_eq!(product.op.kind(), OpKind::Binary);
        let [matmul, two] = &product.inputs[..] else {
            panic!("two operands");
        };
        assert!(matmul.requires_grad() && !two.requires_grad());
        assert_eq!(two.to_scalar::<f32>()?, 2.0);
        let matmul = matmul.recorded().expect("a product of matrices");
        assert_eq!(matmul.op.kind(), OpKind::Matmul);
        assert!(!matmul.inputs[0].requires_grad());
        assert_eq!(matmul.inputs[0].to_vec::<f32>()?, [1.0, 10.0]);
        let column = matmul.inputs[1].recorded().expect("a view");
        assert_eq!(column.op.kind(), OpKind::Reshape);
        assert!(column.inputs[0].requires_grad() && column.inputs[0].is_leaf());
        drop((product, matmul, column));
        y.forget();
        assert!(y.requires_grad() && !y.is_leaf() && y.recorded().is_none());
        assert!(weak.upgrade().is_none());
        Ok(())
    })
}

#[test]
fn nothing_is_kept_where_no_gradient_is_wanted() -> Outcome {
    on_host(|_| {
        let mut w = tensor![2.0, 3.0];
        w.requires_grad_(true)?;
        let x = tensor![1.0, 10.0];
        let weak = x.storage()?.downgrade();
        let y = w.detach().mul(&x)?;
        let z = no_grad(|| {
            assert!(!is_grad_enabled());
            w.mul(&x)
        })?;
        assert!(is_grad_enabled() && w.requires_grad());
        assert!(!y.requires_grad() && !z.requires_grad());
        // There is no gradient of comparisons and indices.
        assert!(!w.gt(&x)?.requires_grad() && !w.argmax(None, false)?.requires_grad());
        eval_all(&[&y, &z])?;
        drop(x);
        assert!(weak.upgrade().is_none());
        // A handle by itself: dropping it forgets.
        let x = tensor![1.0, 10.0];
        let weak = x.storage()?.downgrade();
        let tracked = w.mul(&x)?;
        let untracked = tracked.detach();
        drop((x, tracked.eval()?.shape()));
        assert!(weak.upgrade().is_some());
        drop(tracked);
        assert!(weak.upgrade().is_none());
        assert_eq!(untracked.to_vec::<f32>()?, [2.0, 30.0]);
        Ok(())
    })
}

#[test]
fn what_cannot_want_a_gradient_says_so() -> Outcome {
    assert_eq!(
        error(tensor![1].requires_grad_(true).map(|_| ())),
        "requires_grad_: expected a floating-point or complex dtype, got i64"
    );
    let mut state = Tensor::zeros([3], DType::F32)?;
    state.eval()?;
    let start = Tensor::from_slice(&[1i32], [1])?;
    state.requires_grad_(true)?;
    let update = |state: &Tensor| state.update_slice_(&tensor![7.0,], 0, &start);
    let refused = error(update(&state));
    assert!(refused.contains("requires no gradient"), "{refused}");
    assert_eq!(
        no_grad(|| update(&state))?.to_vec::<f32>()?,
        [0.0, 7.0, 0.0]
    );
    Ok(())
}

#[test]
fn long_tracked_histories_do_not_overflow_the_stack() -> Outcome {
    let mut x = tensor![0.0];
    x.requires_grad_(true)?;
    for _ in 0..100_000 {
        x = x.neg()?;
    }
    assert_eq!(x.to_scalar::<f32>()?, 0.0);
    let mut length = 0;
    let mut at = x.clone();
    while let Some(recorded) = at.recorded() {
        at = recorded.inputs[0].clone();
        length += 1;
    }
    assert!(length == 100_000 && at.is_leaf());
    drop((x, at));
    Ok(())
}
