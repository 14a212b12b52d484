//! Gradients as users ask for them.

use std::sync::{Arc, Mutex};

use rustorch_ir::autodiff::{Cotangents, Differentiated};
use rustorch_ir::ops::Composite;
use rustorch_ir::{DType, Graph, OpError, Results, ValueId};
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::autograd::{grad, grad_with, gradcheck, hessian, jacobian, jvp, vjp};
use rustorch_tensor::{
    GradOptions, RusTorchResult, Tensor, Trace, assert_close, eval_all, host, no_grad, tensor,
    with_runtime,
};

use crate::{Outcome, error};

/// A leaf that wants a gradient.
fn leaf(mut x: Tensor) -> RusTorchResult<Tensor> {
    x.requires_grad_(true)?;
    Ok(x)
}

fn elements_of_grad(x: &Tensor) -> RusTorchResult<Vec<f32>> {
    x.grad().expect("a gradient").to_vec::<f32>()
}

#[test]
fn gradients_add_up_until_they_are_taken_away() -> Outcome {
    let w = leaf(tensor![1.0, 2.0])?;
    assert!(w.grad().is_none());
    let loss = || w.square()?.sum_all();
    loss()?.backward()?;
    assert_eq!(elements_of_grad(&w)?, [2.0, 4.0]);
    loss()?.backward()?;
    assert_eq!(elements_of_grad(&w.clone())?, [4.0, 8.0]);
    w.set_grad(Some(&tensor![5.0, 5.0]))?;
    loss()?.backward()?;
    assert_eq!(elements_of_grad(&w)?, [7.0, 9.0]);
    w.zero_grad();
    assert!(w.grad().is_none() && w.requires_grad());
    assert!(error(w.set_grad(Some(&tensor![5.0]))).contains("a gradient f32[2]"));
    Ok(())
}

#[test]
fn an_operand_may_be_there_twice_and_broadcast() -> Outcome {
    let x = leaf(tensor![[1.0], [3.0]])?;
    let b = leaf(tensor![10.0, 20.0])?;
    // Twice in one operation, and on two ways.
    let y = ((&x * &x)? + (&x * &b)?)?;
    y.sum_all()?.backward()?;
    assert_eq!(x.grad().expect("one").shape(), [2, 1]);
    assert_eq!(elements_of_grad(&x)?, [4.0 + 30.0, 12.0 + 30.0]);
    assert_eq!(elements_of_grad(&b)?, [4.0, 4.0]);
    Ok(())
}

#[test]
fn a_loss_may_be_read_before_and_after() -> Outcome {
    let runtime = Runtime::new(host(1));
    with_runtime(&runtime, Routing::AUTO, || {
        let w = leaf(tensor![[1.0, 2.0], [3.0, 4.0]])?;
        let x = tensor![[1.0, -1.0]];
        let loss = || x.linear(&w, None)?.relu()?.square()?.mean_all();
        let read = loss()?;
        assert_eq!(read.item()?, 0.0);
        read.backward()?;
        assert_eq!(elements_of_grad(&w)?, [0.0; 4]);
        // Loss and gradients in one graph.
        w.zero_grad();
        let x = x.neg()?.eval()?.clone();
        let loss = x.linear(&w, None)?.relu()?.square()?.mean_all()?;
        loss.backward()?;
        let plans = runtime.plans().new;
        eval_all(&[&loss, &w.grad().expect("one")])?;
        assert_eq!(runtime.plans().new, plans + 1);
        assert_eq!(elements_of_grad(&w)?, [-1.0, 1.0, -1.0, 1.0]);
        assert_eq!(loss.item()?, 1.0);
        Ok(())
    })
}

#[test]
fn a_history_serves_one_backward_pass_unless_it_is_kept() -> Outcome {
    let x = leaf(tensor![3.0,])?;
    let y = x.square()?.sum_all()?;
    y.backward_with(&GradOptions::default().retain_graph(true))?;
    y.backward()?;
    assert_eq!(elements_of_grad(&x)?, [12.0]);
    let again = error(y.backward());
    assert!(
        again.starts_with("backward: ") && again.contains("retain_graph"),
        "{again}"
    );
    // Nodes that other results share are used up as well.
    let shared = x.exp()?;
    let (a, b) = (shared.sum_all()?, shared.neg()?.sum_all()?);
    a.backward()?;
    assert!(error(b.backward()).contains("used up"));
    Ok(())
}

#[test]
fn derivatives_of_higher_order() -> Outcome {
    let x = leaf(Tensor::from_slice(&[2.0f64], ())?)?;
    let y = x.pow(4)?;
    let once = GradOptions::default().create_graph(true);
    let first = grad_with(&[&y], &[&x], &once)?.remove(0).expect("one");
    assert_eq!(first.item()?, 32.0);
    let second = grad_with(&[&first], &[&x], &once)?.remove(0).expect("one");
    assert_eq!(second.item()?, 48.0);
    assert_eq!(grad(&[&second], &[&x])?[0].item()?, 48.0);
    // Nothing was added to what the leaf has.
    assert!(x.grad().is_none());
    Ok(())
}

#[test]
fn derivatives_of_functions() -> Outcome {
    let x = tensor![1.0, 2.0];
    let f = |x: &Tensor| {
        let (a, b) = (x.select(0, 0)?, x.select(0, 1)?);
        Tensor::stack(&[&(&a * &b)?, &b.square()?, &a], 0)
    };
    assert_close!(
        jacobian(f, &x)?,
        tensor![[2.0, 1.0], [0.0, 4.0], [1.0, 0.0]]
    );
    let (y, product) = vjp(f, &x, &tensor![1.0, 1.0, 1.0])?;
    assert_close!(y, tensor![2.0, 4.0, 1.0]);
    assert_close!(product, tensor![3.0, 5.0]);
    let (_, tangent) = jvp(f, &x, &tensor![1.0, 10.0])?;
    assert_close!(tangent, tensor![12.0, 40.0, 1.0]);
    let h = hessian(|x| f(x)?.square()?.sum_all(), &x)?;
    // a²b² + b⁴ + a²
    assert_close!(h, tensor![[10.0, 8.0], [8.0, 50.0]]);
    // The gradient of each sample by itself.
    let each = jacobian(|w| tensor![[1.0, 0.0], [2.0, 3.0]].matmul(w)?.square(), &x)?;
    assert_close!(each, tensor![[2.0, 0.0], [32.0, 48.0]]);
    assert!(error(jvp(f, &x, &tensor![1.0])).contains("a direction f32[2]"));
    Ok(())
}

#[test]
fn gradients_of_what_is_no_leaf_and_of_what_has_nothing_to_do_with_it() -> Outcome {
    let (x, other) = (leaf(tensor![1.0, 2.0])?, leaf(tensor![1.0,])?);
    let between = x.mul(3)?;
    let y = between.square()?.sum_all()?;
    let keep = GradOptions::default().retain_graph(true);
    let found = grad_with(&[&y], &[&between], &keep)?
        .remove(0)
        .expect("one");
    assert_eq!(found.to_vec::<f32>()?, [6.0, 12.0]);
    assert!(error(grad(&[&y], &[&other])).contains("allow_unused"));
    let y = between.square()?.sum_all()?;
    between.retain_grad()?;
    let lenient = keep.clone().allow_unused(true);
    assert!(grad_with(&[&y], &[&other], &lenient)?[0].is_none());
    y.backward_with(&keep)?;
    assert_eq!(elements_of_grad(&between)?, [6.0, 12.0]);
    assert_eq!(elements_of_grad(&x)?, [18.0, 36.0]);
    // To some leaves alone.
    let y = (&between * &other)?.sum_all()?;
    y.backward_with(&GradOptions::default().inputs(&[&other]))?;
    assert_eq!(elements_of_grad(&other)?, [9.0]);
    assert_eq!(elements_of_grad(&x)?, [18.0, 36.0]);
    Ok(())
}

#[test]
fn hooks_see_gradients_and_change_them() -> Outcome {
    let x = leaf(tensor![1.0, 2.0])?;
    let between = x.mul(2)?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    between.register_hook(move |gradient| {
        log.lock().expect("a lock").push(gradient.to_vec::<f32>()?);
        Ok(None)
    })?;
    let double = between.register_hook(|gradient| gradient.mul(2).map(Some))?;
    let keep = GradOptions::default().retain_graph(true);
    let y = between.sum_all()?;
    y.backward_with(&keep)?;
    assert_eq!(elements_of_grad(&x)?, [4.0, 4.0]);
    double.remove();
    let _on_leaf = x.register_hook(|gradient| gradient.neg().map(Some))?;
    x.zero_grad();
    y.backward()?;
    assert_eq!(elements_of_grad(&x)?, [-2.0, -2.0]);
    assert_eq!(*seen.lock().expect("a lock"), [[1.0, 1.0], [1.0, 1.0]]);
    assert!(error(tensor![1.0].register_hook(|_| Ok(None)).map(drop)).contains("requires none"));
    Ok(())
}

#[test]
fn what_was_written_over_since_has_no_gradient() -> Outcome {
    let w = leaf(tensor![2.0, 3.0])?;
    let mut x = tensor![1.0, 10.0];
    let view = x.view(2)?;
    let needs = [(&w * &x)?.sum_all()?, (&w * &view)?.sum_all()?];
    let does_not = (&w + &x)?.sum_all()?;
    x.copy_(&tensor![5.0, 5.0])?;
    // Recorded is enough, and that it was done as well.
    let keep = GradOptions::default().retain_graph(true);
    for y in &needs {
        let refused = error(y.backward_with(&keep));
        assert!(
            refused.contains("mul: ") && refused.contains("written over"),
            "{refused}"
        );
    }
    x.eval()?;
    assert!(error(needs[1].backward()).contains("written over"));
    does_not.backward()?;
    assert_eq!(elements_of_grad(&w)?, [1.0, 1.0]);
    // A leaf: outside of no_grad nobody writes over it.
    let mut w = w;
    assert!(error(w.fill_(0).map(drop)).contains("neither a parameter nor a view"));
    let y = w.square()?.sum_all()?;
    no_grad(|| w.fill_(0).map(drop))?;
    assert!(w.is_leaf() && w.requires_grad());
    assert!(error(y.backward()).contains("written over"));
    Ok(())
}

#[test]
fn a_step_is_recorded_by_a_trace() -> Outcome {
    let mut w = leaf(tensor![[0.5, -0.5]])?;
    w.eval()?;
    let x = Tensor::placeholder([4, 2], DType::F32)?;
    let y = Tensor::placeholder([4, 1], DType::F32)?;
    let loss = x.linear(&w, None)?.sub(&y)?.square()?.mean_all()?;
    loss.backward()?;
    let next = no_grad(|| w.sub(&w.grad().expect("one").mul(0.1)?))?;
    no_grad(|| w.copy_(&next).map(drop))?;
    let trace = Trace::new(&[&x, &y], &[&loss, &w])?;
    let data = tensor![[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0]];
    let target = data.matmul(&tensor![[2.0], [-3.0]])?;
    let inputs = [data.storage()?, target.storage()?];
    let mut losses = Vec::new();
    for _ in 0..200 {
        let outputs = trace.run(&inputs)?;
        let loss = Tensor::from_storage(outputs[0].clone(), (), DType::F32)?;
        losses.push(loss.item()?);
    }
    assert!(
        losses.is_sorted_by(|a, b| a >= b) && losses[199] < 1e-6,
        "{losses:?}"
    );
    Ok(())
}

#[test]
fn what_has_no_gradient_says_so() -> Outcome {
    let x = leaf(tensor![1.0, 2.0])?;
    let refused = [
        error(tensor![1.0].backward()),
        error(x.square()?.backward()),
        error(x.argmax(None, false)?.backward()),
        error(
            x.sum_all()?
                .backward_with(&GradOptions::default().gradient(&x)),
        ),
        error(grad(&[&x.sum_all()?], &[&tensor![1.0]])),
        error(x.airy_ai()?.sum_all()?.backward()),
        error(x.square()?.requires_grad_(false)),
    ];
    let expected = [
        "an output that requires a gradient",
        "a real output of one element",
        "an output that requires a gradient",
        "a gradient f32[] as the output, got f32[2]",
        "inputs that require a gradient",
        "airy_ai, whose derivative is not a function here",
        "true, or a leaf (detach gives a value that requires no gradient)",
    ];
    for (refused, expected) in refused.iter().zip(expected) {
        assert!(refused.contains(expected), "{refused}");
    }
    Ok(())
}

#[test]
fn long_histories_go_back_in_a_loop() -> Outcome {
    let x = leaf(Tensor::from_slice(&[1.0f64], ())?)?;
    let mut y = x.clone();
    for _ in 0..20_000 {
        y = y.mul(1.0001)?;
    }
    y.backward()?;
    let gradient = x.grad().expect("one").item()?;
    assert!((gradient / 1.0001f64.powi(20_000) - 1.0).abs() < 1e-9);
    Ok(())
}

#[test]
fn gradients_are_pytorch_s_where_there_is_none() -> Outcome {
    // An element that another one was written over gets the gradient of its place.
    let x = leaf(tensor![[[1.0, 2.0, 3.0]]])?;
    let indices = Tensor::from_slice(&[0i64, 2, 2], [1, 1, 3])?;
    let y = x.max_unpool1d(&indices, [2], &Default::default(), None)?;
    y.mul(tensor![[[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]]])?
        .sum_all()?
        .backward()?;
    assert_eq!(elements_of_grad(&x)?, [1.0, 4.0, 4.0]);
    // Norms at 0 get a gradient of 0, although their powers may have infinite slopes.
    for p in [0.5, -1.0, 1.0, 2.0] {
        let x = leaf(tensor![0.0, 0.0])?;
        x.norm(p, None, false)?.backward()?;
        assert_eq!(elements_of_grad(&x)?, [0.0, 0.0], "{p}");
    }
    Ok(())
}

/// `x²`, with its own gradient or that of its parts.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Square {
    gradient: Option<i64>,
}

impl Composite for Square {
    fn name(&self) -> &'static str {
        "my_square"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        Ok([g.square(inputs[0])?].into_iter().collect())
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        match self.gradient {
            // It is brought to the operand's dtype.
            Some(gradient) => node.each(g, |g, _| g.full([2].into(), gradient, DType::F64)),
            None => node.through_parts(g, |g, inputs| self.decompose(g, inputs)),
        }
    }
}

#[test]
fn operations_of_others_have_gradients() -> Outcome {
    let x = leaf(tensor![3.0, -1.0])?;
    for (gradient, expected) in [(None, [6.0, -2.0]), (Some(7), [7.0, 7.0])] {
        x.zero_grad();
        let [y] = Tensor::custom(Square { gradient }, &[&x])?;
        y.sum_all()?.backward()?;
        assert_eq!(elements_of_grad(&x)?, expected);
    }
    Ok(())
}

/// Gradients of slices that lie side by side are joined, in whatever order they come. Others are
/// added, as are gradients that are differentiated in turn.
#[test]
fn gradients_of_neighbouring_slices_are_joined() -> Outcome {
    let names = |x: &Tensor| {
        let operations = rustorch_tensor::replay::operations(&[x]).into_iter();
        operations.map(|o| o.op.name()).collect::<Vec<_>>()
    };
    let x = leaf(Tensor::arange_with(0, 12, 1, DType::F32)?.reshape([2, 6])?)?;
    for order in [[0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 2, 0]] {
        // The slice that was cut out last comes first in the backward pass.
        let [a, b, c] = order.map(|i| x.narrow(1, 2 * i, 2)?.mul(i as i64 + 1));
        let loss = a?.mul(&b?)?.add(&c?)?.sum_all()?;
        for create_graph in [false, true] {
            let options = GradOptions::default()
                .retain_graph(true)
                .create_graph(create_graph);
            let found = grad_with(&[&loss], &[&x], &options)?
                .remove(0)
                .expect("one");
            let joins = order != [1, 2, 0] && !create_graph;
            assert_eq!(names(&found).contains(&"concat"), joins, "{order:?}");
            let [first, second, third] = order;
            let factor = ((first + 1) * (second + 1)) as f32;
            let value = |row: usize, i: usize| (row * 6 + i) as f32;
            let mut expected = [[0f32; 6]; 2];
            for (row, expected) in expected.iter_mut().enumerate() {
                for i in 0..2 {
                    expected[first * 2 + i] = factor * value(row, second * 2 + i);
                    expected[second * 2 + i] = factor * value(row, first * 2 + i);
                    expected[third * 2 + i] = (third + 1) as f32;
                }
            }
            assert_eq!(found.to_vec::<f32>()?, expected.as_flattened());
        }
    }
    // Slices that overlap still add up their gradients.
    let loss = x.narrow(1, 0, 4)?.mul(&x.narrow(1, 2, 4)?)?.sum_all()?;
    let found = grad(&[&loss], &[&x])?.remove(0);
    assert_eq!(found.i(0)?.to_vec::<f32>()?, [2.0, 3.0, 4.0, 6.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn a_parameter_is_frozen_through_any_handle() -> Outcome {
    let weight = leaf(tensor![1.0, 2.0])?;
    let mut handle = weight.clone();
    handle.requires_grad_(false)?;
    assert!(!weight.requires_grad() && !handle.requires_grad() && weight.is_leaf());
    assert!(!(&weight * 2)?.requires_grad());
    // A frozen parameter may be written to, and becomes trainable again.
    handle.fill_(3)?;
    handle.add_(1)?;
    handle.requires_grad_(true)?;
    for handle in [&weight, &handle] {
        handle.square()?.sum_all()?.backward()?;
    }
    for handle in [&weight, &handle] {
        assert_eq!(
            handle.grad().expect("a gradient").to_vec::<f32>()?,
            [16.0, 16.0]
        );
    }
    // One that is frozen between forward and backward has no gradient.
    let (mut a, b) = (leaf(tensor![1.0, 2.0])?, leaf(tensor![3.0, 4.0])?);
    let loss = (&a * &b)?.sum_all()?;
    a.requires_grad_(false)?;
    loss.backward()?;
    assert!(a.grad().is_none());
    assert_eq!(b.grad().expect("a gradient").to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn gradients_are_checked_by_differences() -> Outcome {
    let x = tensor![0.3, -0.4].double()?;
    let y = tensor![[2.0, 1.0], [-1.0, 0.5]].double()?;
    gradcheck(|x| x[1].matmul(&x[0].sin()?), &[&x, &y])?;
    let half = |x: &[Tensor]| x[0].mul(x[0].detach());
    let problem = error(gradcheck(half, &[&x]));
    let expected = "a derivative of 0.6";
    assert!(
        problem.starts_with("gradcheck: ") && problem.contains(expected),
        "{problem}"
    );
    assert!(
        problem.contains("element 0 by element 0 of input 0, got 0.3"),
        "{problem}"
    );
    let problem = error(gradcheck(half, &[&x.float()?]));
    assert!(
        problem.contains("expected inputs of f64, got f32[2]"),
        "{problem}"
    );
    Ok(())
}
