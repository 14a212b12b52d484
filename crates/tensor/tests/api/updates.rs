//! Tensors whose memory is written over.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor, Trace, autograd, eval_all, no_grad, tensor};

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
fn what_was_recorded_before_has_the_old_elements() -> Outcome {
    let mut x = tensor![1.0, 2.0];
    let before = x.mul(10)?;
    let view = x.narrow(0, 1, 1)?;
    let chain = x.neg()?.exp()?;
    x.copy_(&tensor![3.0, 4.0])?;
    // This is recorded behind the update: it reads the new elements, whether they are computed already
    // or not.
    let behind = x.mul(10)?;
    x.eval()?;
    assert_eq!(behind.to_vec::<f32>()?, [30.0, 40.0]);
    assert_eq!(before.to_vec::<f32>()?, [10.0, 20.0]);
    assert_eq!(
        chain.to_vec::<f32>()?,
        tensor![-1.0, -2.0].exp()?.to_vec::<f32>()?
    );
    // A view shows the memory.
    assert_eq!(view.to_vec::<f32>()?, [4.0]);
    // Writes of several handles happen in their order.
    let (mut first, mut second) = (x.clone(), x.clone());
    first.copy_(&tensor![5.0, 5.0])?;
    second.add_(1)?;
    second.eval()?;
    assert_eq!(first.to_vec::<f32>()?, [6.0, 6.0]);
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
    // Behind the update, a clone has the new ones.
    x.copy_(&tensor![5.0, 6.0])?;
    assert_eq!(old.add(&x)?.to_vec::<f32>()?, [10.0, 12.0]);
    Ok(())
}

#[test]
fn sources_are_broadcast_converted_and_may_be_the_tensor_itself() -> Outcome {
    let mut x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let transposed = x.t()?.copy()?;
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
fn what_a_clone_wrote_stays_when_it_goes() -> Outcome {
    let p = tensor![1.0, 2.0, 3.0, 4.0];
    let view = p.i(1)?;
    p.clone().fill_(5)?;
    assert_eq!(p.to_vec::<f32>()?, [5.0; 4]);
    assert_eq!(view.item()?, 5.0);
    // One after the other, whoever writes.
    let mut q = p.clone();
    p.clone().add_(1)?.mul_(2)?;
    q.sub_(2)?;
    p.clone().copy_(&q.mul(tensor![1.0, 2.0, 3.0, 4.0])?)?;
    assert_eq!(q.to_vec::<f32>()?, [10.0, 20.0, 30.0, 40.0]);
    assert_eq!(p.to_vec::<f32>()?, [10.0, 20.0, 30.0, 40.0]);
    // Views of what was written as a whole, a clone of a view, what was detached or moved, and views made where
    // nothing is recorded.
    let (row, sum) = (p.view((2, 2))?.i(1)?, p.sum_all()?);
    p.detach().zero_()?;
    assert_eq!(sum.item()?, 100.0);
    assert_eq!(row.to_vec::<f32>()?, [0.0, 0.0]);
    row.clone().fill_(7)?;
    let half = no_grad(|| p.narrow(0, 0, 3))?;
    p.to_device("cpu")?.add_(1)?;
    assert_eq!(half.to_vec::<f32>()?, [1.0, 1.0, 8.0]);
    no_grad(|| half.view(-1)?.mul_(2).map(|_| ()))?;
    assert_eq!(p.to_vec::<f32>()?, [2.0, 2.0, 16.0, 8.0]);
    // A mistake is told once, and nothing is written then.
    p.clone()
        .index_add_(0, &tensor![0, 9], &tensor![1.0, 1.0], 1)?;
    assert!(error(p.to_vec::<f32>().map(|_| ())).contains("the index 9"));
    assert_eq!(p.to_vec::<f32>()?, [2.0, 2.0, 16.0, 8.0]);
    // Nobody else shows what is written: nothing is kept of it.
    let gone = Tensor::zeros([8], DType::F32)?;
    gone.eval()?;
    let memory = gone.storage()?.downgrade();
    gone.clone().fill_(1)?;
    drop(gone);
    assert!(memory.upgrade().is_none());
    Ok(())
}

#[test]
fn what_a_clone_of_a_parameter_wrote_is_seen() -> Outcome {
    let w = leaf(&[1.0, 2.0])?;
    let column = w.reshape([2, 1])?;
    no_grad(|| w.clone().fill_(3).map(|_| ()))?;
    assert!(w.is_leaf());
    (w.square()?.sum_all()? + (&column * 10)?.sum_all()?)?.backward()?;
    assert_eq!(gradient(&w)?, [16.0, 16.0]);
    // A gradient, too.
    w.grad().expect("one").mul_(0.5)?;
    assert_eq!(gradient(&w)?, [8.0, 8.0]);
    // A clone of what wants no gradient yet, filled from what does.
    let out = Tensor::zeros([2], DType::F32)?;
    let part = out.i(1)?;
    out.clone().add_(&w)?;
    assert!(out.requires_grad() && part.requires_grad());
    (out.sum_all()? + (part * 5)?)?.backward()?;
    assert_eq!(gradient(&w)?, [9.0, 14.0]);
    // A gradient that is kept is that of the elements that are there at last.
    let w = leaf(&[1.0, 2.0])?;
    let y = w.mul(2)?;
    y.retain_grad()?;
    y.clone().mul_(3)?;
    y.i(0)?.mul_(5)?;
    y.sum_all()?.backward()?;
    assert_eq!(
        (gradient(&w)?, gradient(&y)?),
        (vec![30.0, 6.0], vec![1.0; 2])
    );
    Ok(())
}

#[test]
fn a_copy_and_what_it_is_of_are_written_apart() -> Outcome {
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let mut copy = x.t()?.reshape(4)?;
    x.clone().fill_(0)?;
    assert_eq!(copy.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    x.clone().fill_(5)?;
    copy.add_(1)?;
    copy.clone().mul_(2)?;
    assert_eq!(x.to_vec::<f32>()?, [5.0; 4]);
    assert_eq!(copy.to_vec::<f32>()?, [4.0, 8.0, 6.0, 10.0]);
    Ok(())
}

#[test]
fn what_several_threads_ask_for_is_written_once() -> Outcome {
    for _ in 0..20 {
        let x = Tensor::zeros([1000], DType::F32)?;
        x.eval()?;
        let parts = [x.narrow(0, 0, 500)?, x.narrow(0, 500, 500)?, x.clone()];
        x.clone().add_(1)?;
        let sums: Vec<f64> = std::thread::scope(|scope| {
            let asked = parts
                .iter()
                .map(|part| scope.spawn(|| part.sum_all()?.item()));
            let asked: Vec<_> = asked.collect();
            let sums = asked.into_iter().map(|sum| sum.join().expect("no panic"));
            sums.collect::<RusTorchResult<_>>()
        })?;
        assert_eq!(sums, [500.0, 500.0, 1000.0]);
    }
    Ok(())
}

#[test]
fn what_several_threads_write_is_not_lost() -> Outcome {
    let x = Tensor::zeros([100], DType::F32)?;
    x.eval()?;
    std::thread::scope(|scope| {
        let writers = (0..4).map(|_| {
            let mut x = x.clone();
            scope.spawn(move || (0..25).try_for_each(|_| x.add_(1).map(|_| ())))
        });
        let writers: Vec<_> = writers.collect();
        let written = writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"));
        written.collect::<RusTorchResult<()>>()
    })?;
    assert_eq!(x.to_vec::<f32>()?, [100.0; 100]);
    Ok(())
}

#[test]
fn what_cannot_be_written_over_says_so() -> Outcome {
    let mut x = tensor![1.0, 2.0];
    assert!(error(x.copy_(&tensor![1.0, 2.0, 3.0]).map(|_| ())).starts_with("copy_: "));
    let mut broadcast = tensor![1.0,].expand([3])?;
    assert!(error(broadcast.add_(2).map(|_| ())).contains("do not overlap in memory"));
    assert!(
        error(x.add_(tensor![[1.0, 2.0], [3.0, 4.0]]).map(|_| ())).contains("broadcasts to [2]")
    );
    assert!(error(tensor![1, 2].mul_(0.5).map(|_| ())).contains("a result that i64 holds"));
    x.requires_grad_(true)?;
    let changes: [fn(&mut Tensor) -> Outcome; 3] = [
        |x| x.copy_(&tensor![1.0]).map(|_| ()),
        |x| x.mul_(2).map(|_| ()),
        |x| x.zero_().map(|_| ()),
    ];
    for mut leaf in [x.clone(), x.reshape([2, 1])?] {
        for change in changes {
            let refused = error(change(&mut leaf));
            let why = "neither a parameter nor a view of one";
            assert!(refused.contains(why), "{refused}");
        }
    }
    // A view of what is itself a part.
    let all = tensor![1.0, 2.0];
    let whole = no_grad(|| all.narrow(0, 0, 1))?;
    let mut part = whole.narrow(0, 0, 1)?;
    assert!(
        error(part.add_(&x.narrow(0, 0, 1)?).map(|_| ())).contains("if a gradient is required")
    );
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn functions_in_place_give_what_the_others_give() -> Outcome {
    let start = || tensor![-1.5, 0.25, 2.0];
    let (y, mask) = (tensor![2.0, 3.0, 0.5], tensor![true, false, true]);
    let ids = tensor![2, 0];
    macro_rules! rows {
        ($($change:ident $of:ident($($given:expr),*);)*) => {
            [$((stringify!($change), {
                let mut x = start();
                let memory = x.storage()?;
                x.$change($($given),*)?.eval()?;
                assert!(x.storage()?.same_as(&memory), stringify!($change));
                x
            }, start().$of($($given),*)?)),*]
        };
    }
    for (name, changed, expected) in rows! {
        abs_ abs(); add_ add(&y); addcmul_ addcmul(&y, &y, 0.5); ceil_ ceil(); clamp_ clamp(-1.0, 1.0);
        clamp_min_ clamp_min(0); cumsum_ cumsum(0); div_ div(&y); exp_ exp(); fmod_ fmod(&y);
        index_add_ index_add(0, &ids, &tensor![1.0, 2.0], 2); index_fill_ index_fill(0, &ids, 7);
        lerp_ lerp(&y, 0.25); masked_fill_ masked_fill(&mask, 9); mul_ mul(3); neg_ neg(); pow_ pow(2);
        reciprocal_ reciprocal(); relu_ relu(); remainder_ remainder(2); round_ round();
        sigmoid_ sigmoid(); sub_ sub(&y); tanh_ tanh(); trunc_ trunc(); gt_ gt(0);
    } {
        let expected = expected.to_dtype(DType::F32)?;
        assert_eq!(
            changed.to_vec::<f32>()?,
            expected.to_vec::<f32>()?,
            "{name}"
        );
    }
    // Integers stay what they are, and several changes are one computation.
    let mut count = tensor![5, 6];
    count.add_(2)?.mul_(3)?.floor_divide_(2)?;
    assert_eq!(count.to_vec::<i64>()?, [10, 12]);
    Ok(())
}

#[test]
fn parts_are_written_at_once() -> Outcome {
    let x = Tensor::zeros([3, 4], DType::F32)?;
    x.eval()?;
    x.i(1)?.fill_(1)?;
    x.i((.., 0))?.add_(tensor![5.0, 6.0, 7.0])?;
    x.i((2, 1..3))?.copy_(&tensor![8, 9])?.neg_()?;
    let rows = [5., 0., 0., 0., 7., 1., 1., 1., 7., -8., -9., 0.];
    assert_eq!(x.to_vec::<f32>()?, rows);
    x.t()?.mul_(2)?;
    assert_eq!(x.i(0)?.to_vec::<f32>()?, [10., 0., 0., 0.]);
    Ok(())
}

#[test]
fn gradients_go_through_changes_in_place() -> Outcome {
    let leaf = |numbers: [f64; 2]| tensor!(numbers).requires_grad_(true);
    let gradient = |x: &Tensor| x.grad().expect("a gradient").to_vec::<f32>();
    let (w, v) = (leaf([1.0, -2.0])?, leaf([3.0, 4.0])?);
    // PyTorch 2.15 gives these gradients for y = w * 3; y.mul_(v).sin_().add_(1).relu_();
    // y.sum().backward().
    let mut y = w.mul(3)?;
    y.mul_(&v)?.sin_()?.add_(1)?.relu_()?;
    assert!(y.requires_grad() && !y.is_leaf());
    y.sum_all()?.backward()?;
    let cosines = [9f32.cos(), 24f32.cos()];
    crate::assert_close(
        &w.grad().expect("one"),
        &[9.0 * cosines[0], 12.0 * cosines[1]],
    );
    crate::assert_close(
        &v.grad().expect("one"),
        &[3.0 * cosines[0], -6.0 * cosines[1]],
    );
    // No gradient goes through an element that is written over.
    let (w, v) = (leaf([1.0, 2.0])?, leaf([3.0, 4.0])?);
    let mut y = w.mul(3)?;
    y.copy_(&v.mul(2)?)?;
    y.sum_all()?.backward()?;
    assert_eq!((gradient(&w)?, gradient(&v)?), (vec![0.0; 2], vec![2.0; 2]));
    // A tensor that wanted no gradient wants one from then on.
    let mut sum = Tensor::zeros([2], DType::F32)?;
    let w = leaf([1.0, 2.0])?;
    for _ in 0..3 {
        sum.add_(&w.square()?)?;
    }
    sum.sum_all()?.backward()?;
    assert_eq!(gradient(&w)?, [6.0, 12.0]);
    // A write without recorded gradients keeps the tensor's history.
    let w = leaf([1.0, 2.0])?;
    let mut y = w.mul(3)?;
    no_grad(|| y.clamp_(-1.0, 1.0).map(|_| ()))?;
    let loss = y.sum_all()?;
    loss.backward()?;
    assert_eq!((loss.item()?, gradient(&w)?), (2.0, vec![3.0; 2]));
    Ok(())
}

/// A leaf that wants a gradient.
fn leaf(numbers: &[f32]) -> RusTorchResult<Tensor> {
    Tensor::from_slice(numbers, numbers.len())?.requires_grad_(true)
}

fn gradient(x: &Tensor) -> RusTorchResult<Vec<f32>> {
    x.grad().expect("a gradient").to_vec()
}

#[test]
fn gradients_of_changes_in_place_do_not_depend_on_what_is_computed_between() -> Outcome {
    let mut all = Vec::new();
    for computed in 0..8 {
        let w = leaf(&[0.3, -0.6])?;
        let mut x = w.square()?;
        let steps: [fn(&mut Tensor) -> RusTorchResult<&mut Tensor>; 3] =
            [|x| x.tanh_(), |x| x.sigmoid_(), |x| x.mul_(3)];
        for (i, step) in steps.into_iter().enumerate() {
            if computed >> i & 1 == 1 {
                x.eval()?;
            }
            step(&mut x)?;
        }
        x.sum_all()?.backward()?;
        all.push((gradient(&w)?, x.to_vec::<f32>()?));
    }
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    Ok(())
}

#[test]
fn gradients_go_through_writes_over_views() -> Outcome {
    // PyTorch gives these gradients for the tensor itself, another view of it, and the view that was
    // written.
    let w = leaf(&[1.0, 2.0, 3.0, 4.0])?;
    let x = (&w * 2.0)?.reshape((2, 2))?;
    let (mut row, column) = (x.i(0)?, x.i((.., 1))?);
    row.mul_(3)?.exp_()?;
    let e = [6f32.exp(), 12f32.exp()];
    crate::assert_close(&x.ravel()?, &[e[0], e[1], 6.0, 8.0]);
    let loss = (x.sum_all()? + (&column * 10)?.sum_all()?)?;
    (loss + row.sum_all()?)?.backward()?;
    crate::assert_close(
        &w.grad().expect("one"),
        &[12.0 * e[0], 72.0 * e[1], 2.0, 22.0],
    );
    // A tensor that wanted no gradient is filled row by row.
    let (w, out) = (
        leaf(&[1.0, 2.0])?,
        Tensor::zeros([3, 2], DType::F32)?.eval()?.clone(),
    );
    for i in 0..3 {
        out.i(i)?.copy_(&w.pow(i)?)?;
    }
    assert!(out.requires_grad() && !out.is_leaf());
    assert_eq!(out.to_vec::<f32>()?, [1.0, 1.0, 1.0, 2.0, 1.0, 4.0]);
    (&out * tensor![[1.0], [10.0], [100.0]])?
        .sum_all()?
        .backward()?;
    assert_eq!(gradient(&w)?, [210.0, 410.0]);
    // Elements that are written over later get no gradient. Writes do not affect results from before.
    let (a, b) = (leaf(&[1.0, 2.0, 3.0])?, leaf(&[5.0, 7.0])?);
    let x = a.mul(2)?;
    let before = x.sum_all()?.eval()?.clone();
    x.narrow(0, 1, 2)?.copy_(&b)?;
    x.narrow(0, 2, 1)?.zero_()?;
    (before + x.square()?.sum_all()?)?.backward()?;
    assert_eq!(
        (gradient(&a)?, gradient(&b)?),
        (vec![10.0, 2.0, 2.0], vec![10.0, 0.0])
    );
    // By strides, through a view of a view, and of a view that shows all.
    let w = leaf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let x = w.mul(1)?;
    x.reshape((2, 3))?
        .t()?
        .narrow(0, 1, 2)?
        .mul_(tensor![[2.0, 3.0], [4.0, 5.0]])?;
    x.view((3, 2))?.add_(1)?.mul_(10)?;
    assert_eq!(x.to_vec::<f32>()?, [20.0, 50.0, 130.0, 50.0, 160.0, 310.0]);
    x.sum_all()?.backward()?;
    assert_eq!(gradient(&w)?, [10.0, 20.0, 40.0, 10.0, 30.0, 50.0]);
    Ok(())
}

#[test]
fn gradients_of_views_are_asked_for_by_them() -> Outcome {
    let w = leaf(&[1.0, 2.0, 3.0])?;
    let x = w.mul(1)?;
    let (first, rest) = (x.narrow(0, 0, 1)?, x.narrow(0, 1, 2)?);
    x.narrow(0, 0, 2)?.mul_(5)?;
    let loss = ((&first * 2)?.sum_all()? + rest.square()?.sum_all()?)?;
    let slopes = autograd::grad(&[&loss], &[&first, &rest, &w])?;
    let slopes: Vec<Vec<f32>> = slopes
        .iter()
        .map(Tensor::to_vec)
        .collect::<Result<_, _>>()?;
    assert_eq!(slopes, [vec![2.0], vec![20.0, 6.0], vec![10.0, 100.0, 6.0]]);
    // A rule that reads what was written over says so.
    let x = w.exp()?;
    let total = x.sum_all()?;
    total.eval()?;
    x.narrow(0, 0, 1)?.zero_()?;
    assert!(error(total.backward()).contains(STALE));
    // A write without recorded gradients keeps the tensor's history.
    let (w, c) = (leaf(&[1.0, 2.0])?, leaf(&[3.0, 4.0])?);
    let x = w.mul(&c)?;
    let y = x.i(0)?;
    no_grad(|| y.clone().fill_(9).map(|_| ()))?;
    (x.sum_all()? + y)?.sum_all()?.backward()?;
    assert_eq!(gradient(&w)?, [6.0, 4.0]);
    // So does a leaf.
    let view = w.i(1)?;
    no_grad(|| view.clone().fill_(8).map(|_| ()))?;
    view.square()?.backward()?;
    assert_eq!(gradient(&w)?, [6.0, 20.0]);
    Ok(())
}

#[test]
fn what_a_view_wrote_stays_when_it_goes() -> Outcome {
    let x = tensor![1.0, 2.0, 3.0, 4.0];
    x.view((2, 2))?.add_(1)?;
    assert_eq!(x.to_vec::<f32>()?, [2.0, 3.0, 4.0, 5.0]);
    no_grad(|| x.reshape((4, 1))?.mul_(2).map(|_| ()))?;
    x.as_strided((2, 2), (1, 2), 0)?
        .sub_(tensor![[0.0, 4.0], [0.0, 4.0]])?;
    assert_eq!(x.to_vec::<f32>()?, [4.0, 6.0, 4.0, 6.0]);
    // Values that were not computed yet are computed first, constants too.
    let ones = Tensor::ones([2, 2], DType::F32)?;
    ones.i(0)?.zero_()?;
    ones.t()?.i(1)?.add_(5)?;
    assert_eq!(ones.to_vec::<f32>()?, [0.0, 5.0, 1.0, 6.0]);
    let y = x.add(1)?;
    let z = y.mul(10)?;
    z.eval()?;
    y.view(-1)?.zero_()?;
    assert_eq!(y.to_vec::<f32>()?, [0.0; 4]);
    assert_eq!(z.to_vec::<f32>()?, [50.0, 70.0, 50.0, 70.0]);
    Ok(())
}

#[test]
fn what_is_tracked_and_written_over_elsewhere_is_known_or_refused() -> Outcome {
    let w = leaf(&[1.0, 2.0])?;
    let mut y = w.mul(3)?;
    y.eval()?;
    let (same, view, square) = (y.clone(), y.reshape([2, 1])?, y.square()?);
    y.mul_(2)?;
    // Its rule reads what was written over.
    assert!(error(square.sum_all()?.backward()).contains("square"));
    (same.sum_all()? + (&view * 10)?.sum_all()?)?.backward()?;
    assert_eq!(gradient(&w)?, [66.0, 66.0]);
    assert_eq!(view.to_vec::<f32>()?, [6.0, 12.0]);
    // A detached tensor knows nothing of the gradients. They know nothing of its writes.
    let (w, y) = (leaf(&[1.0, 2.0])?, w.mul(3)?);
    y.detach().mul_(2)?;
    assert_eq!(y.mul(&w)?.to_vec::<f32>()?, [6.0, 24.0]);
    y.mul(&w)?.sum_all()?.backward()?;
    assert_eq!(gradient(&w)?, [6.0, 12.0]);
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
    // A single write belongs to the trace, too. Other handles do not repeat it.
    let mut next = count.clone();
    next.add_(1)?;
    let trace = Trace::new(&[], &[&next])?;
    assert_eq!(count.to_scalar::<f32>()?, 6.0);
    trace.run(&[])?;
    trace.run(&[])?;
    assert_eq!(count.to_scalar::<f32>()?, 8.0);
    Ok(())
}

/// Two leaves and a constant tensor of two elements.
fn differentiable() -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    let c = tensor![0.25, -0.5, 2.0];
    Ok((leaf(&[1.0, -2.0, 0.5])?, leaf(&[3.0, 4.0, -1.0])?, c))
}

#[test]
fn what_is_read_does_not_depend_on_what_was_printed() -> Outcome {
    for prints in [false, true] {
        let show = |x: &Tensor| {
            if prints {
                drop(format!("{x}"))
            }
        };
        let mut x = tensor![1.0, 2.0];
        let y = (&x * 2.0)?;
        x.fill_(7.0)?;
        show(&x);
        assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0]);
        // A norm of before a step.
        let mut w = leaf(&[3.0, 4.0])?;
        let n = w.square()?.sum_all()?.sqrt()?;
        no_grad(|| w.sub_(tensor![1.0, 1.0]).map(|_| ()))?;
        show(&w);
        assert_eq!(n.item()?, 5.0);
        // A view that would need a copy.
        let b = (Tensor::ones((2, 3), DType::F32)? * 2)?;
        show(&b);
        let refused = error(b.t()?.view(6));
        assert!(refused.contains("needs no copy"), "{refused}");
        assert_eq!(b.t()?.reshape(6)?.fill_(0.0)?.to_vec::<f32>()?, [0.0; 6]);
        assert_eq!(b.to_vec::<f32>()?, [2.0; 6]);
        // Memory of its own.
        let x = tensor![[1.0, 2.0], [3.0, 4.0]];
        show(&x);
        let mut wide = x.sum(0, true)?.expand((3, 2))?.contiguous()?;
        assert_eq!(wide.fill_(0.5)?.to_vec::<f32>()?, [0.5; 6]);
    }
    Ok(())
}

#[test]
fn views_that_were_read_show_what_is_written() -> Outcome {
    for reads in [false, true] {
        let read = |x: &Tensor| if reads { x.eval().map(drop) } else { Ok(()) };
        let x = tensor![[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]];
        let a = x.relu()?;
        let mut v = a.narrow(0, 1, 1)?.narrow(1, 0, 2)?;
        read(&v)?;
        v.neg_()?;
        assert_eq!(a.to_vec::<f32>()?, [1.0, 0.0, 3.0, -4.0, -5.0, 0.0]);
        let mut a = x.relu()?;
        let v = a.narrow(0, 1, 1)?;
        read(&v)?;
        a.add_(&x)?;
        assert_eq!(v.to_vec::<f32>()?, [8.0, 10.0, -6.0]);
        let mut x = tensor![[1.0, 2.0], [3.0, 4.0]];
        x.add_(x.clone())?;
        let y = x.t()?;
        read(&y)?;
        let mut z = y.t()?;
        z.add_(&x)?;
        assert_eq!(x.to_vec::<f32>()?, [4.0, 8.0, 12.0, 16.0]);
        let a = x.neg()?;
        let mut v = a.t()?;
        read(&v)?;
        v.add_(v.clone())?;
        let part = a.maximum(tensor![-20.0, -20.0])?.narrow(0, 1, 1)?;
        assert_eq!(part.to_vec::<f32>()?, [-20.0, -20.0]);
    }
    Ok(())
}

#[test]
fn gradients_go_through_what_was_written_whatever_was_read() -> Outcome {
    for reads in [false, true] {
        let read = |x: &Tensor| if reads { x.eval().map(drop) } else { Ok(()) };
        let (p, q, c) = differentiable()?;
        let mut d = q.sub(&q.add(&p)?)?;
        let v = d.reshape((3, 1))?;
        read(&v)?;
        d.copy_(&c)?;
        v.sum_all()?.backward()?;
        assert_eq!((gradient(&p)?, gradient(&q)?), (vec![0.0; 3], vec![0.0; 3]));
        // The values are those of PyTorch 2.15.
        let (p, q, c) = differentiable()?;
        let mut u = c.maximum(&c)?;
        u.neg_()?;
        let v = u.narrow(0, 1, 2)?;
        read(&v)?;
        u.mul_(&q.sub(&p)?.add(&q)?.sigmoid()?)?;
        (v.sum_all()? + (u.sum_all()? * 2)?)?.backward()?;
        let slopes = [0.003_324_016_4, -0.000_068_125_02, 0.420_622_26];
        crate::assert_close(&p.grad().expect("one"), &slopes);
        crate::assert_close(&q.grad().expect("one"), &slopes.map(|slope| -2.0 * slope));
    }
    Ok(())
}

#[test]
fn operators_write_in_place() -> Outcome {
    let parameters = [leaf(&[1.0, 2.0])?, leaf(&[3.0])?];
    let g = tensor![10.0,];
    no_grad(|| {
        for mut p in parameters.clone() {
            p -= &g * 0.1;
        }
    });
    assert_eq!(parameters[0].to_vec::<f32>()?, [0.0, 1.0]);
    assert_eq!(parameters[1].to_vec::<f32>()?, [2.0]);
    let target = tensor![4.0, 8.0];
    let mut t = target.clone();
    t *= 0.5;
    t += 1;
    t /= 2.0;
    assert_eq!(target.to_vec::<f32>()?, [1.5, 2.5]);
    // A parameter is refused outside of `no_grad`: whoever uses it next is told, once, and it stays what it was.
    for mut p in parameters.clone() {
        p -= &g;
    }
    let refused = error(parameters[0].mul(2));
    assert!(
        refused.contains("sub_assign") && refused.contains("outside no_grad"),
        "{refused}"
    );
    assert!(error(parameters[1].eval().map(drop)).contains("outside no_grad"));
    assert_eq!(parameters[0].mul(2)?.to_vec::<f32>()?, [0.0, 2.0]);
    // A tensor that was only recorded, in a trace, too.
    let x = Tensor::placeholder([2], DType::F32)?;
    let mut h = x.mul(2)?;
    h += &x;
    let trace = Trace::new(&[&x], &[&h])?;
    let y = trace.run(&[tensor![1.0, 2.0].storage()?])?.remove(0);
    assert_eq!(
        Tensor::from_storage(y, [2], DType::F32)?.to_vec::<f32>()?,
        [3.0, 6.0]
    );
    Ok(())
}

#[test]
fn copies_are_apart_and_have_gradients() -> Outcome {
    let w = leaf(&[1.0, 2.0])?;
    let mut copy = w.copy()?;
    copy.mul_(3)?;
    copy.square()?.sum_all()?.backward()?;
    assert_eq!(gradient(&w)?, [18.0, 36.0]);
    assert_eq!(w.to_vec::<f32>()?, [1.0, 2.0]);
    let mut x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let copy = x.t()?.copy()?;
    x.zero_()?;
    assert!(copy.is_contiguous());
    assert_eq!(copy.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    Ok(())
}

#[test]
fn what_reads_the_old_elements_is_computed_with_the_write() -> Outcome {
    // A mistake of what reads is its own: the write is done.
    let mut x = tensor![1.0, 2.0];
    let wrong = x.index_select(0, &tensor![5])?;
    let (right, unread) = (x.mul(2)?, x.exp()?);
    drop(unread);
    x.fill_(3)?;
    assert_eq!(x.to_vec::<f32>()?, [3.0, 3.0]);
    assert!(right.is_ready());
    assert_eq!(right.to_vec::<f32>()?, [2.0, 4.0]);
    assert!(error(wrong.to_vec::<f32>()).contains("the index 5"));
    // So it is through a chain of writes over several tensors.
    let (mut a, mut b) = (tensor![1.0,], tensor![10.0,]);
    let first = a.add(&b)?;
    b.add_(&a)?;
    let second = a.add(&b)?;
    a.add_(&b)?;
    let third = a.add(&b)?;
    b.zero_()?;
    b.eval()?;
    a.zero_()?;
    assert_eq!(a.item()?, 0.0);
    assert_eq!(
        [first.item()?, second.item()?, third.item()?],
        [11.0, 12.0, 23.0]
    );
    Ok(())
}

/// Rows are views, as in PyTorch 2.15: those that come later show what was written meanwhile.
#[test]
fn rows_show_what_is_written_while_they_are_gone_through() -> Outcome {
    for is_read in [false, true] {
        let mut x = tensor![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]].mul(1)?;
        let (mut seen, same) = (Vec::new(), x.clone());
        for row in &same {
            let mut row = row?;
            row.add_(10)?;
            x.mul_(2)?;
            if is_read {
                x.eval()?;
            }
            seen.push(row);
        }
        let expected = [88.0, 96.0, 64.0, 72.0, 60.0, 68.0];
        assert_eq!(x.to_vec::<f32>()?, expected, "{is_read}");
        let seen: Vec<f32> = Tensor::stack(&seen, 0)?.to_vec()?;
        assert_eq!(seen, expected, "{is_read}");
    }
    // Parts of a split, and of rows by number, likewise.
    let mut x = tensor![1.0, 2.0, 3.0, 4.0];
    for mut part in x.split(2, 0)? {
        part.mul_(10)?;
        x.sub_(1)?;
    }
    assert_eq!(x.to_vec::<f32>()?, [8.0, 18.0, 19.0, 29.0]);
    Ok(())
}

/// Writes of two threads have an order: each is whole, and each that adds counts.
#[test]
fn writes_of_two_threads_have_one_order() -> Outcome {
    const WRITES: usize = 20;
    for _ in 0..10 {
        let x = Tensor::zeros(1000, DType::F32)?;
        x.eval()?;
        std::thread::scope(|scope| {
            let fill = |number: i32| {
                let mut own = x.clone();
                move || (0..WRITES).try_for_each(|_| own.fill_(number).map(drop))
            };
            let threads = [1, 2].map(|number| scope.spawn(fill(number)));
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        let elements = x.to_vec::<f32>()?;
        assert!([1.0, 2.0].contains(&elements[0]), "{}", elements[0]);
        assert!(elements.iter().all(|element| *element == elements[0]));
        std::thread::scope(|scope| {
            let add = |number: i32, part: usize| {
                let mut own = x.narrow(0, 250 * part, 500)?;
                RusTorchResult::Ok(move || (0..WRITES).try_for_each(|_| own.add_(number).map(drop)))
            };
            let threads = [scope.spawn(add(1, 0)?), scope.spawn(add(100, 1)?)];
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        let added = |at: usize| [20.0, 2020.0, 2000.0, 0.0][at / 250];
        let expected: Vec<f32> = (0..1000).map(|at| elements[0] + added(at)).collect();
        assert_eq!(x.to_vec::<f32>()?, expected);
    }
    Ok(())
}

/// A computation has handles of its own, whoever drops theirs meanwhile.
#[test]
fn tensors_may_be_dropped_while_they_are_computed() -> Outcome {
    for _ in 0..20 {
        let x = Tensor::ones((64, 64), DType::F32)?;
        let y = x.matmul(&x)?.add(&x)?;
        let (view, same) = (y.t()?.narrow(0, 1, 2)?, y.clone());
        let sums = std::thread::scope(|scope| {
            let first = scope.spawn(move || same.sum_all()?.item());
            let second = scope.spawn(move || view.sum_all()?.item());
            scope.spawn(move || drop(x));
            drop(y);
            [first, second].map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(sums, [Ok(65.0 * 4096.0), Ok(65.0 * 128.0)]);
    }
    Ok(())
}

/// Operands of a write that share its memory: PyTorch refuses those that overlap, and takes these.
#[test]
fn operands_that_share_the_written_memory_may_be_alike_or_apart() -> Outcome {
    let numbers = || Tensor::arange_with(0, 16, 1, DType::F32)?.reshape((4, 4));
    let sum = |x: &Tensor| x.sum_all()?.item();
    for reads in [false, true] {
        let start = || -> RusTorchResult<Tensor> {
            let x = numbers()?;
            if reads {
                x.eval()?;
            }
            Ok(x)
        };
        // The same elements, rows beside them, and parts with gaps, whose old elements are read.
        let mut x = start()?;
        let (same, row) = (x.view((4, 4))?, x.i(1)?);
        x.add_(&same)?;
        x.i(0)?.add_(&row)?;
        assert_eq!(x.i(0)?.to_vec::<f32>()?, [8.0, 12.0, 16.0, 20.0]);
        let x = start()?;
        x.i((.., 1..))?.copy_(&x.i((.., ..3))?)?;
        assert_eq!(x.i(2)?.to_vec::<f32>()?, [8.0, 8.0, 9.0, 10.0]);
        let mut x = start()?;
        let column = x.i((.., 0))?;
        x.sub_(&column)?;
        assert_eq!(x.i(3)?.to_vec::<f32>()?, [12.0, 9.0, 6.0, 3.0]);
        // A number may be one of the elements that it is written over.
        let mut x = start()?;
        let last = x.i((3, 3))?;
        x.fill_(&last)?;
        x.index_put_(0, x.i((0, 0))?, false)?;
        x.masked_fill_(&x.gt(20)?, x.i((0, 0))?)?;
        assert_eq!(sum(&x)?, 240.0);
        // What is shown several times is filled once.
        let x = start()?;
        x.i((.., 1..2))?.expand((2, 4, 3))?.fill_(2)?;
        assert_eq!(x.i(1)?.to_vec::<f32>()?, [4.0, 2.0, 6.0, 7.0]);
        x.i((.., 1..2))?.expand((4, 3))?.zero_()?;
        assert_eq!(x.i(1)?.to_vec::<f32>()?, [4.0, 0.0, 6.0, 7.0]);
    }
    Ok(())
}

/// Views of which a call returns several: PyTorch writes over them where no gradient is wanted.
#[test]
fn parts_are_written_over_where_no_gradient_is_wanted() -> Outcome {
    let numbers = || Tensor::arange_with(0, 8, 1, DType::F32)?.reshape((2, 4));
    let x = numbers()?;
    for (at, row) in x.iter()?.enumerate() {
        let mut row = row.clone();
        row.mul_(2)?;
        // A write to the whole shows in the part, and in those that come.
        x.i((.., 0))?.add_(1)?;
        assert_eq!(row.to_vec::<f32>()?[0], [1.0, 11.0][at]);
    }
    assert_eq!(
        x.to_vec::<f32>()?,
        [2.0, 2.0, 4.0, 6.0, 11.0, 10.0, 12.0, 14.0]
    );
    let w = numbers()?.requires_grad_(true)?;
    let y = w.mul(1)?;
    no_grad(|| y.unbind(0)?[0].zero_().map(drop))?;
    y.unbind(0)?[1].detach().zero_()?;
    assert_eq!(y.sum_all()?.item()?, 0.0);
    // Parts that gradients go through, and values after a write.
    let mut y = w.mul(1)?;
    y.tensor_split(2, 0)?[0].copy_(&w.i(1)?.unsqueeze(0)?)?;
    y.unsafe_chunk(2, 0)?[1].copy_(&w.i(1)?.unsqueeze(0)?)?;
    let part = y.split(1, 0)?.remove(0);
    y.mul_(3)?;
    assert_eq!(part.to_vec::<f32>()?, [12.0, 15.0, 18.0, 21.0]);
    no_grad(|| part.add(1)?.eval().map(drop))?;
    y.sum_all()?.backward()?;
    let gradient = w.grad().expect("a gradient").to_vec::<f32>()?;
    assert_eq!(gradient, [0.0, 0.0, 0.0, 0.0, 6.0, 6.0, 6.0, 6.0]);
    Ok(())
}
