//! Small programs of tensors that share memory. The numbers are those of PyTorch 2.15. They do not depend on what is read
//! or printed in between.

use rustorch_ir::DType;
use rustorch_tensor::{GradOptions, RusTorchResult, Tensor, no_grad, tensor};

use crate::{Outcome, error};

/// Shows tensors in between, or nothing.
type Show<'a> = &'a dyn Fn(&[&Tensor]) -> Outcome;

/// Runs a program three times: as it is, with evaluations in between, and with prints.
fn check(
    program: impl Fn(Show<'_>) -> RusTorchResult<Vec<Tensor>>,
    expected: &[&[f64]],
) -> Outcome {
    let nothing = |_: &[&Tensor]| Ok(());
    let evaluations = |all: &[&Tensor]| all.iter().try_for_each(|x| x.eval().map(drop));
    let prints = |all: &[&Tensor]| {
        all.iter().for_each(|x| drop(format!("{x}")));
        Ok(())
    };
    let shows: [Show<'_>; 3] = [&nothing, &evaluations, &prints];
    for (way, show) in shows.into_iter().enumerate() {
        let results = program(show)?;
        assert_eq!(results.len(), expected.len());
        for (at, (result, expected)) in results.iter().zip(expected).enumerate() {
            let result: Vec<f64> = result.detach().to_dtype(DType::F64)?.to_vec()?;
            assert_eq!(result, *expected, "result {at}, way {way}");
        }
    }
    Ok(())
}

/// A tensor that is pending.
fn base() -> RusTorchResult<Tensor> {
    tensor![[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]].mul(1)
}

fn leaf() -> RusTorchResult<Tensor> {
    tensor![1.0, -2.0, 0.5].requires_grad_(true)
}

fn gradient(w: &Tensor) -> Tensor {
    w.grad().expect("a gradient")
}

#[test]
fn views_of_views_are_written_with_their_base() -> Outcome {
    check(
        |show| {
            let mut a = base()?;
            let mut v = a.t()?.narrow(0, 1, 2)?.select(1, 1)?;
            show(&[&v])?;
            a.mul_(2)?;
            show(&[&v, &a])?;
            v.add_(1)?;
            Ok(vec![a, v])
        },
        &[&[2.0, -4.0, 6.0, 8.0, 11.0, -11.0], &[11.0, -11.0]],
    )?;
    check(
        |show| {
            let mut a = base()?;
            let flat = a.unsqueeze(0)?.squeeze(0)?.reshape(6)?;
            let mut u = flat.narrow(0, 2, 3)?;
            show(&[&u])?;
            a.neg_()?;
            show(&[&flat])?;
            u.mul_(10)?;
            Ok(vec![a, u])
        },
        &[
            &[-1.0, 2.0, -30.0, -40.0, -50.0, 6.0],
            &[-30.0, -40.0, -50.0],
        ],
    )?;
    // The same elements without a history.
    check(
        |show| {
            let all = base()?;
            let mut detached = all.detach();
            show(&[&detached])?;
            detached.zero_()?;
            Ok(vec![all])
        },
        &[&[0.0; 6]],
    )?;
    // A row that lies in several places.
    check(
        |show| {
            let mut row = tensor![1.0, 2.0, 3.0].mul(1)?;
            let wide = row.expand((2, 3))?;
            show(&[&wide])?;
            row.add_(1)?;
            Ok(vec![wide])
        },
        &[&[2.0, 3.0, 4.0, 2.0, 3.0, 4.0]],
    )
}

#[test]
fn writes_by_masks_and_indices_reach_what_shows_the_memory() -> Outcome {
    check(
        |show| {
            let a = base()?;
            let mut v = a.narrow(1, 0, 2)?;
            show(&[&v])?;
            let mask = v.lt(0)?;
            v.masked_fill_(&mask, 9.0)?;
            Ok(vec![a, v])
        },
        &[&[1.0, 9.0, 3.0, 4.0, 5.0, -6.0], &[1.0, 9.0, 4.0, 5.0]],
    )?;
    check(
        |show| {
            let a = base()?;
            let mut v = a.t()?;
            show(&[&v])?;
            v.index_put_((0, 1), 7.0, false)?;
            show(&[&a])?;
            v.index_put_(tensor![2, 1], tensor![0.5, 0.25], false)?;
            Ok(vec![a, v])
        },
        &[
            &[1.0, 0.5, 0.5, 7.0, 0.25, 0.25],
            &[1.0, 7.0, 0.5, 0.25, 0.5, 0.25],
        ],
    )?;
    check(
        |show| {
            let a = base()?;
            let mut v = a.select(0, 1)?;
            show(&[&a])?;
            v.index_add_(0, &tensor![0, 2], &tensor![10.0, 20.0], 1)?;
            Ok(vec![a])
        },
        &[&[1.0, -2.0, 3.0, 14.0, 5.0, 14.0]],
    )
}

#[test]
fn copies_between_parts_of_one_memory() -> Outcome {
    check(
        |show| {
            let mut square = base()?.narrow(1, 0, 2)?.mul(1)?;
            let turned = square.t()?;
            show(&[&turned])?;
            square.copy_(&turned.copy()?)?;
            Ok(vec![square, turned])
        },
        &[&[1.0, 4.0, -2.0, 5.0], &[1.0, -2.0, 4.0, 5.0]],
    )?;
    check(
        |show| {
            let a = base()?.reshape(6)?.mul(1)?;
            show(&[&a])?;
            let old = a.narrow(0, 0, 5)?.copy()?;
            a.narrow(0, 1, 5)?.copy_(&old)?;
            Ok(vec![a])
        },
        &[&[1.0, 1.0, -2.0, 3.0, 4.0, 5.0]],
    )?;
    // Rows change places.
    check(
        |show| {
            let a = base()?;
            let first = a.select(0, 0)?.copy()?;
            show(&[&first])?;
            a.select(0, 0)?.copy_(&a.select(0, 1)?)?;
            show(&[&a])?;
            a.select(0, 1)?.copy_(&first)?;
            Ok(vec![a])
        },
        &[&[4.0, 5.0, -6.0, 1.0, -2.0, 3.0]],
    )?;
    // Values of before a write, and a copy in another order.
    check(
        |show| {
            let mut a = base()?;
            let (twice, turned) = (a.mul(2)?, a.flip(1)?);
            show(&[&twice])?;
            a.chunk(3, 1)?.swap_remove(1).fill_(1)?;
            let seen = a.copy()?;
            a.zero_()?;
            Ok(vec![twice, turned, seen])
        },
        &[
            &[2.0, -4.0, 6.0, 8.0, 10.0, -12.0],
            &[3.0, -2.0, 1.0, -6.0, 5.0, 4.0],
            &[1.0, 1.0, 3.0, 4.0, 1.0, -6.0],
        ],
    )
}

#[test]
fn gradients_go_through_writes_by_masks_indices_and_views() -> Outcome {
    check(
        |show| {
            let w = leaf()?;
            let h = w.mul(3)?;
            let mut v = h.narrow(0, 0, 2)?;
            show(&[&v])?;
            let mask = v.lt(0)?;
            v.masked_fill_(&mask, 5.0)?;
            h.square()?.sum_all()?.backward()?;
            Ok(vec![gradient(&w), h])
        },
        &[&[18.0, 0.0, 9.0], &[3.0, 5.0, 1.5]],
    )?;
    check(
        |show| {
            let w = leaf()?;
            let mut h = Tensor::zeros((2, 3), DType::F32)?;
            h.index_put_(1, &w.mul(2)?, false)?;
            show(&[&h])?;
            h.index_put_((0, 2), &w.select(0, 0)?, false)?;
            h.mul(&h)?.sum_all()?.backward()?;
            Ok(vec![gradient(&w)])
        },
        &[&[10.0, -16.0, 4.0]],
    )?;
    check(
        |show| {
            let w = leaf()?;
            let mut h = Tensor::ones(4, DType::F32)?.mul(1)?;
            let mut v = h.narrow(0, 1, 3)?;
            let u = v.narrow(0, 0, 2)?;
            show(&[&u])?;
            v.copy_(&w)?;
            show(&[&h])?;
            h.mul_(2)?;
            u.sum_all()?.add(&h.square()?.sum_all()?)?.backward()?;
            Ok(vec![gradient(&w), u])
        },
        &[&[10.0, -14.0, 4.0], &[2.0, -4.0]],
    )?;
    check(
        |show| {
            let w = leaf()?;
            let mut e = w.expand((2, 3))?.mul(1)?;
            show(&[&e])?;
            e.select(0, 0)?.mul_(4)?;
            e.add_(&w)?;
            e.sum_all()?.backward()?;
            Ok(vec![gradient(&w), e])
        },
        &[&[7.0; 3], &[5.0, -10.0, 2.5, 2.0, -4.0, 1.0]],
    )?;
    check(
        |show| {
            let w = leaf()?;
            let m = Tensor::zeros((3, 2), DType::F32)?.mul(1)?;
            show(&[&m])?;
            m.t()?.select(0, 1)?.add_(&w)?;
            m.square()?.sum_all()?.backward()?;
            Ok(vec![gradient(&w), m])
        },
        &[&[2.0, -4.0, 1.0], &[0.0, 1.0, 0.0, -2.0, 0.0, 0.5]],
    )
}

#[test]
fn backward_passes_come_in_any_order() -> Outcome {
    check(
        |show| {
            let w = leaf()?;
            let (a, b) = (w.mul(2)?, w.mul(3)?);
            let first = a.mul(&b)?.sum_all()?;
            show(&[&first])?;
            let second = b.square()?.sum_all()?;
            second.backward_with(&GradOptions::default().retain_graph(true))?;
            show(&[&gradient(&w)])?;
            first.backward()?;
            Ok(vec![gradient(&w)])
        },
        &[&[30.0, -60.0, 15.0]],
    )?;
    check(
        |show| {
            let mut w = leaf()?;
            w.add(1)?.square()?.sum_all()?.backward()?;
            let step = gradient(&w);
            show(&[&step])?;
            no_grad(|| w.sub_(&step).map(|_| ()))?;
            w.set_grad(None)?;
            w.mul(&w)?.sum_all()?.backward()?;
            Ok(vec![gradient(&w), w])
        },
        &[&[-6.0, 0.0, -5.0], &[-3.0, 0.0, -2.5]],
    )?;
    // A write without a history is seen, and has no gradient.
    check(
        |show| {
            let w = leaf()?;
            let h = w.mul(2)?;
            let mut detached = h.detach();
            show(&[&h])?;
            detached.fill_(3)?;
            h.sum_all()?.backward()?;
            Ok(vec![gradient(&w), h])
        },
        &[&[2.0; 3], &[3.0; 3]],
    )
}

/// PyTorch refuses these, too.
#[test]
fn writes_that_have_no_meaning_are_refused() -> Outcome {
    for reads in [false, true] {
        let read = |x: &Tensor| if reads { x.eval().map(drop) } else { Ok(()) };
        let mut h = leaf()?.exp()?;
        read(&h)?;
        h.mul_(2)?;
        let lost = error(h.sum_all()?.backward());
        assert!(lost.contains("written over since by mul_"), "{lost}");
        let mut h = leaf()?.mul(1)?;
        let loss = h.square()?.sum_all()?;
        read(&loss)?;
        h.fill_(0)?;
        let lost = error(loss.backward());
        assert!(lost.contains("written over since by fill_"), "{lost}");
        let view = error(leaf()?.view(3)?.add_(1).map(drop));
        assert!(view.contains("outside no_grad"), "{view}");
        let row = Tensor::ones((1, 3), DType::F32)?;
        read(&row)?;
        let wide = error(row.expand((2, 3))?.add_(1).map(drop));
        assert!(wide.contains("do not overlap in memory"), "{wide}");
        let mut a = Tensor::ones((2, 3), DType::F32)?;
        read(&a)?;
        let larger = error(a.add_(Tensor::ones((3, 2, 3), DType::F32)?).map(drop));
        assert!(larger.contains("that broadcasts to [2, 3]"), "{larger}");
        let mut whole = tensor![1, 1, 1];
        read(&whole)?;
        let float = error(whole.add_(0.5).map(drop));
        assert!(float.contains("a result that i64 holds"), "{float}");
    }
    Ok(())
}

#[test]
fn a_reshape_that_copies_keeps_the_old_elements() -> Outcome {
    check(
        |show| {
            let mut a = tensor![[1.0, 2.0], [3.0, 4.0]];
            let columns = a.t()?;
            let copy = columns.reshape([4])?;
            let part = copy.narrow(0, 1, 2)?;
            show(&[&copy])?;
            a.mul_(&copy.reshape([2, 2])?)?;
            show(&[&a])?;
            Ok(vec![columns.neg()?, copy, part, a])
        },
        &[
            &[-1.0, -6.0, -6.0, -16.0],
            &[1.0, 3.0, 2.0, 4.0],
            &[3.0, 2.0],
            &[1.0, 6.0, 6.0, 16.0],
        ],
    )
}

#[test]
fn a_tracked_tensor_is_written_over_by_a_view_of_it() -> Outcome {
    check(
        |show| {
            let w = leaf()?;
            let a = w.expand((3, 3))?.mul(1)?;
            let columns = a.t()?;
            show(&[&columns])?;
            a.t()?.copy_(&columns)?;
            show(&[&a])?;
            let weights = tensor![[1.0], [2.0], [3.0]];
            a.mul(&weights)?.sum_all()?.backward()?;
            Ok(vec![a, gradient(&w)])
        },
        &[
            &[1.0, -2.0, 0.5, 1.0, -2.0, 0.5, 1.0, -2.0, 0.5],
            &[6.0, 6.0, 6.0],
        ],
    )
}

#[test]
fn a_write_that_reads_memory_is_done_before_that_is_written_over() -> Outcome {
    check(
        |show| {
            let (mut a, b) = (tensor![1.0, 2.0], tensor![3.0, 4.0]);
            let mut other = a.clone();
            a += 1;
            let sum = other.sum_all()?;
            other.copy_(&b)?;
            b.narrow(0, 0, 1)?.copy_(&sum)?;
            show(&[&b])?;
            Ok(vec![a, other, b])
        },
        &[&[3.0, 4.0], &[3.0, 4.0], &[5.0, 4.0]],
    )
}

#[test]
fn a_view_of_another_shape_is_written_with_a_gradient() -> Outcome {
    check(
        |show| {
            let w = leaf()?;
            let a = Tensor::full((3, 2), 0.5, DType::F32)?.mul(1)?;
            let mut v = a.view((2, 3))?;
            show(&[&a])?;
            let columns = a.t()?;
            drop(a);
            v.sub_(&w)?;
            show(&[&v])?;
            let weights = tensor![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
            (columns.mul(&weights)?.sum_all()?.add(&v.sum_all()?)?).backward()?;
            Ok(vec![columns, gradient(&w)])
        },
        &[&[-0.5, 0.0, 2.5, 2.5, -0.5, 0.0], &[-8.0, -9.0, -10.0]],
    )
}

#[test]
fn a_view_of_one_row_is_written_with_what_it_shows() -> Outcome {
    check(
        |show| {
            let x = tensor![[1.0, -2.0, 3.0]].mul(1)?;
            show(&[&x])?;
            x.reshape((1, 3))?.add_(&x)?;
            x.view((1, 3))?.mul_(&x)?;
            let y = tensor![1.0, 2.0].mul(1)?;
            show(&[&y])?;
            let mut rows = y.expand((1, 2))?;
            rows.add_(&y.unsqueeze(0)?)?;
            Ok(vec![x, y])
        },
        &[&[4.0, 16.0, 36.0], &[2.0, 4.0]],
    )
}

#[test]
fn what_could_not_be_recorded_is_written_nowhere() -> Outcome {
    type Write = fn(&mut Tensor, &Tensor) -> RusTorchResult<()>;
    let writes: [(&str, Write); 5] = [
        ("copy_", |x, y| x.copy_(y).map(drop)),
        ("add_", |x, y| x.add_(y).map(drop)),
        ("fill_", |x, y| x.fill_(y).map(drop)),
        ("masked_fill_", |x, y| {
            x.masked_fill_(&tensor![true, false], y).map(drop)
        }),
        ("index_put_", |x, y| {
            x.index_put_(tensor![0], y, false).map(drop)
        }),
    ];
    for (name, write) in writes {
        let counts = tensor![1.0, 2.0];
        let mut cell = tensor!(1.0);
        cell += tensor![1.0, 2.0, 3.0];
        let got = error(write(&mut counts.clone(), &cell));
        assert!(got.contains("add_assign"), "{name}: {got}");
        assert_eq!(counts.to_vec::<f32>()?, [1.0, 2.0], "{name}");
    }
    Ok(())
}
