//! Writes through each kind of view, and through views of views: what they show has them, whenever anything is computed,
//! and gradients go through them. A view's places are those that it shows of a tensor of numbers.

use rustorch_ir::DType;
use rustorch_tensor::{Ellipsis, NewAxis, PadMode, RusTorchResult, Tensor, no_grad, tensor};

use crate::{Outcome, error};

type Show = fn(&Tensor) -> RusTorchResult<Tensor>;

const SHAPE: [usize; 3] = [3, 4, 6];
const COUNT: usize = 72;

/// Views of rank 3 that leave room for others.
const ARRANGEMENTS: [(&str, Show); 7] = [
    ("all", |x| Ok(x.clone())),
    ("narrow", |x| x.narrow(1, 1, 3)),
    ("transpose", |x| x.transpose(0, 2)),
    ("narrow of transpose", |x| {
        x.transpose(0, 1)?.narrow(0, 1, 2)
    }),
    ("permute of slice", |x| {
        x.slice(2, 1, 6, 2)?.permute([2, 0, 1])
    }),
    ("slices", |x| x.slice(1, 0, 4, 2)?.slice(2, 0, 6, 3)),
    ("row of view", |x| {
        x.view((2, 6, 6))?.select(0, 1)?.unsqueeze(1)
    }),
];

/// Views; PyTorch documents each as one.
const VIEWS: [(&str, Show); 56] = [
    ("same", |x| Ok(x.clone())),
    ("detach", |x| Ok(x.detach())),
    ("narrow", |x| x.narrow(-1, 0, 2)),
    ("narrow inside", |x| x.narrow(0, 1, x.size(0)? - 1)),
    ("select", |x| x.select(0, -1)),
    ("select inside", |x| x.select(1, 0)),
    ("slice", |x| x.slice(-1, 0, 9, 2)),
    ("transpose", |x| x.transpose(0, -1)),
    ("swapaxes", |x| x.swapaxes(0, 1)),
    ("permute", |x| x.permute([2, 0, 1])),
    ("movedim", |x| x.movedim(0, 2)),
    ("moveaxis", |x| x.moveaxis([0, 1], [1, 0])),
    ("t", |x| x.select(0, 0)?.t()),
    ("mt", Tensor::mt),
    ("adjoint", Tensor::adjoint),
    ("h", |x| x.select(0, 0)?.h()),
    ("view", |x| x.view((x.size(0)? * x.size(1)?, -1))),
    ("view of the last", |x| x.view((x.size(0)?, -1))),
    ("view_as", |x| x.unsqueeze(0)?.view_as(x)),
    ("unsqueeze", |x| x.unsqueeze(1)),
    ("squeeze", |x| x.unsqueeze(0)?.squeeze(None)),
    ("atleast_3d", Tensor::atleast_3d),
    ("unflatten", |x| x.unflatten(0, (1, -1))),
    ("expand_as", |x| x.unsqueeze(0)?.expand_as(x)),
    ("expand", |x| x.unsqueeze(0)?.expand((2, -1, -1, -1))),
    ("broadcast_to", |x| {
        x.narrow(0, 0, 1)?.broadcast_to(x.shape())
    }),
    ("diagonal", |x| x.diagonal(0, 0, 1)),
    ("diagonal above", |x| x.diagonal(1, 1, 2)),
    ("diagonal below", |x| x.diagonal(-1, -1, 0)),
    ("no diagonal", |x| x.diagonal(9, 0, 1)),
    ("unfold", |x| x.unfold(-1, 2, 2)),
    ("unfold with gaps", |x| x.unfold(1, 1, 2)),
    ("unfold over itself", |x| x.unfold(2, 2, 1)),
    ("as_strided", |x| x.as_strided((2, 2), (4, 1), None)),
    ("as_strided from", |x| x.as_strided((2, 3), (6, 1), 1)),
    ("split", |x| Ok(x.split(2, 1)?.remove(0))),
    ("split_with_sizes", |x| {
        Ok(x.split_with_sizes((1, x.size(0)? - 1), 0)?.remove(1))
    }),
    ("chunk", |x| Ok(x.chunk(2, -1)?.swap_remove(0))),
    ("unbind", |x| Ok(x.unbind(2)?.swap_remove(0))),
    ("tensor_split", |x| Ok(x.tensor_split([1], 1)?.remove(0))),
    ("hsplit", |x| Ok(x.hsplit(1)?.remove(0))),
    ("vsplit", |x| Ok(x.vsplit([1])?.remove(1))),
    ("dsplit", |x| Ok(x.dsplit([1])?.remove(1))),
    ("unsafe_chunk", |x| Ok(x.unsafe_chunk(2, 0)?.remove(0))),
    ("index", |x| x.index((.., 0, 1..))),
    ("index from the end", |x| x.index((Ellipsis, -1, NewAxis))),
    ("index of all", |x| x.index(..)),
    ("broadcast_tensors", |x| {
        Ok(Tensor::broadcast_tensors(&[x, x])?.remove(0))
    }),
    ("real", Tensor::real),
    ("conj", Tensor::conj),
    ("resolve_conj", Tensor::resolve_conj),
    ("positive", Tensor::positive),
    ("to_dtype", |x| x.to_dtype(x.dtype())),
    ("type_as", |x| x.type_as(x)),
    ("sum_to_size", |x| x.sum_to_size(x.shape())),
    ("swapdims", |x| x.swapdims(1, 2)),
];

/// Views where strides show the result, else copies.
const VIEWS_OR_COPIES: [(&str, Show); 5] = [
    ("reshape", |x| x.reshape((x.size(0)? * x.size(1)?, -1))),
    ("reshape_as", |x| x.reshape_as(&x.transpose(0, 1)?)),
    ("flatten", |x| x.flatten(1, 2)),
    ("ravel", Tensor::ravel),
    ("contiguous", Tensor::contiguous),
];

/// A view, and whether it may be a copy.
#[derive(Clone, Copy)]
struct View {
    name: &'static str,
    show: Show,
    may_copy: bool,
}

/// The places that some views show of a memory.
struct Places {
    all: Vec<usize>,
    is_copy: bool,
    /// Whether there are some that the view before does not show. Gradients do not go there.
    are_beyond: bool,
    /// Whether a call returned several of such views. They are not written over where gradients are recorded.
    are_of_several: bool,
}

/// Calls that return several views.
const SEVERAL: [&str; 4] = ["split", "split_with_sizes", "chunk", "unbind"];

fn places(views: &[View]) -> RusTorchResult<Places> {
    let numbers: Vec<i64> = (0..COUNT as i64).collect();
    let (mut x, mut is_copy) = (Tensor::from_vec(numbers, SHAPE)?, false);
    let (mut are_beyond, mut are_of_several) = (false, false);
    for view in views {
        let next = (view.show)(&x)?;
        let is_copied = match view.name {
            "contiguous" => !x.is_contiguous(),
            _ => view.may_copy && x.view(next.shape()).is_err(),
        };
        is_copy |= is_copied;
        are_of_several = SEVERAL.contains(&view.name) || are_of_several && !is_copied;
        let before = x.to_vec::<i64>()?;
        are_beyond |= next.to_vec::<i64>()?.iter().any(|at| !before.contains(at));
        x = next;
    }
    let all = x.to_vec::<i64>()?.into_iter().map(|at| at as usize);
    Ok(Places {
        all: all.collect(),
        is_copy,
        are_beyond,
        are_of_several,
    })
}

/// State of a memory when a view of it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Data,
    Pending,
    Constant,
    Computed,
    Written,
    Tracked,
    TrackedAndComputed,
    Leaf,
}

const KINDS: [Kind; 8] = [
    Kind::Data,
    Kind::Pending,
    Kind::Constant,
    Kind::Computed,
    Kind::Written,
    Kind::Tracked,
    Kind::TrackedAndComputed,
    Kind::Leaf,
];

fn element(kind: Kind, at: usize) -> f64 {
    match kind {
        Kind::Constant => 1.5,
        _ => at as f64 / 4.0 - 7.0,
    }
}

fn weight(at: usize) -> f64 {
    (at % 5) as f64 - 1.5
}

fn vector(of: impl Fn(usize) -> f64) -> RusTorchResult<Tensor> {
    Tensor::from_vec((0..COUNT).map(of).collect(), SHAPE)
}

/// A memory, and the leaf that its gradient goes to.
fn memory(kind: Kind) -> RusTorchResult<(Tensor, Option<Tensor>)> {
    let data = vector(|at| element(kind, at))?;
    let leaf = || data.clone().requires_grad_(true);
    Ok(match kind {
        Kind::Data => (data, None),
        Kind::Pending => (data.mul(1.0)?, None),
        Kind::Constant => (Tensor::full(SHAPE, 1.5, DType::F64)?, None),
        Kind::Computed => (data.mul(1.0)?.eval()?.clone(), None),
        Kind::Written => {
            let mut data = data;
            data.mul_(2.0)?.mul_(0.5)?;
            (data, None)
        }
        Kind::Tracked => {
            let leaf = leaf()?;
            (leaf.mul(1.0)?, Some(leaf))
        }
        Kind::TrackedAndComputed => {
            let leaf = leaf()?;
            (leaf.mul(1.0)?.eval()?.clone(), Some(leaf))
        }
        Kind::Leaf => (leaf()?, None),
    })
}

/// Writes through the last of some views, and reads the memory and the gradients.
fn check(kind: Kind, views: &[View], is_read: bool) -> Outcome {
    let Ok(Places {
        all: places,
        is_copy,
        are_beyond,
        are_of_several,
    }) = places(views)
    else {
        return Ok(());
    };
    let is_detached = views.iter().any(|view| view.name == "detach");
    let (memory, leaf) = memory(kind)?;
    let mut shown = memory.clone();
    for view in views {
        shown = (view.show)(&shown)?;
    }
    if is_read {
        drop(format!("{shown}"));
    }
    let times = |at: &usize| places.iter().filter(|place| *place == at).count();
    let overlaps = (0..COUNT).any(|at| times(&at) > 1) && !is_copy;
    let is_leaf = kind == Kind::Leaf && !is_copy && !is_detached;
    if is_leaf {
        assert!(shown.mul_(-2.0).is_err(), "a view of a leaf");
    }
    let written = match kind {
        Kind::Leaf => no_grad(|| shown.mul_(-2.0).map(drop)),
        _ => shown.mul_(-2.0).map(drop),
    };
    let is_limited = leaf.is_some() && are_of_several && !is_detached;
    assert_eq!(
        written.is_err(),
        is_limited || overlaps && !places.is_empty(),
        "{written:?}"
    );
    let is_refused = is_limited || overlaps;
    let factor = |at: usize| match times(&at) > 0 && !is_copy && !is_refused {
        true => -2.0,
        false => 1.0,
    };
    let expected: Vec<f64> = (0..COUNT)
        .map(|at| element(kind, at) * factor(at))
        .collect();
    let own = if is_refused { 1.0 } else { -2.0 };
    let seen: Vec<f64> = places.iter().map(|&at| element(kind, at) * own).collect();
    if let Some(leaf) = leaf.filter(|_| !is_detached && !are_beyond) {
        let loss = memory.mul(&vector(weight)?)?.sum_all()?;
        loss.add(&shown.sum_all()?)?.backward()?;
        let gradient = leaf.grad().expect("a gradient").to_vec::<f64>()?;
        let of = |at: usize| weight(at) * factor(at) + own * times(&at) as f64;
        assert_eq!(gradient, (0..COUNT).map(of).collect::<Vec<_>>(), "gradient");
    }
    assert_eq!(memory.detach().to_vec::<f64>()?, expected, "memory");
    assert_eq!(shown.detach().to_vec::<f64>()?, seen, "view");
    Ok(())
}

#[test]
fn what_a_view_shows_has_what_is_written_through_it() -> Outcome {
    let all = |list: &[(&'static str, Show)], may_copy| -> Vec<View> {
        let view = |&(name, show)| View {
            name,
            show,
            may_copy,
        };
        list.iter().map(view).collect()
    };
    let arrangements = all(&ARRANGEMENTS, false);
    let views = [all(&VIEWS, false), all(&VIEWS_OR_COPIES, true)].concat();
    let mut next = 0;
    let mut failed = Vec::new();
    for kind in KINDS {
        for &arrangement in &arrangements {
            for &view in &views {
                // Now and then another view of the view.
                next += 1;
                let behind = views[next * 7 % views.len()];
                let paths = [&[arrangement, view][..], &[arrangement, view, behind]];
                for path in &paths[..1 + usize::from(next % 4 == 0)] {
                    let is_read = next % 3 == 0;
                    let checked = std::panic::catch_unwind(|| check(kind, path, is_read));
                    if !matches!(checked, Ok(Ok(()))) {
                        let names: Vec<_> = path.iter().map(|view| view.name).collect();
                        failed.push(format!("{kind:?} {names:?} {is_read} {:?}", checked.ok()));
                    }
                }
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} {:#?}",
        failed.len(),
        &failed[..failed.len().min(60)]
    );
    Ok(())
}

#[test]
fn copies_in_the_place_of_views_are_not_written_while_their_origin_is_there() -> Outcome {
    let numbers = || Tensor::complex(&tensor![1.0, 2.0], &tensor![3.0, 4.0]);
    let parts = |z: &Tensor| -> RusTorchResult<Vec<Tensor>> {
        let pairs = z.view_as_real()?;
        Ok(vec![
            z.real()?,
            z.imag()?,
            z.conj()?,
            z.unsqueeze(0)?.adjoint()?,
            pairs.view_as_complex()?,
            pairs,
            z.narrow_at(0, &tensor![0], 1)?,
            z.index(tensor!(1))?,
            z.real()?.narrow(0, 0, 1)?,
            z.real()?.clone(),
        ])
    };
    for is_read in [false, true] {
        let z = numbers()?;
        let all = parts(&z)?;
        for mut part in all {
            if is_read {
                part.eval()?;
            }
            let refused = error(part.mul_(2));
            assert!(
                refused.contains("copy makes a tensor of its own"),
                "{refused}"
            );
            part.copy()?.mul_(2)?;
        }
        // Views of it are handles on its memory, too.
        let (view, mut part) = (z.narrow(0, 1, 1)?, z.imag()?);
        drop(z);
        assert!(part.zero_().is_err());
        drop(view);
        assert_eq!(part.add_(1)?.to_vec::<f32>()?, [4.0, 5.0]);
    }
    let mut real = numbers()?.mul(2)?.real()?;
    assert_eq!(real.mul_(3)?.to_vec::<f32>()?, [6.0, 12.0]);
    Ok(())
}

/// PyTorch gives memory of its own, also where nothing is changed.
#[test]
fn copies_are_apart_where_nothing_is_changed() -> Outcome {
    let whole = Tensor::from_vec((1..10).collect::<Vec<i64>>(), [3, 3])?;
    let copies: [(&str, Show); 18] = [
        ("round", Tensor::round),
        ("floor", Tensor::floor),
        ("ceil", Tensor::ceil),
        ("trunc", Tensor::trunc),
        ("nan_to_num", |x| x.nan_to_num(0.0, None, None)),
        ("abs", Tensor::abs),
        ("diff", |x| x.diff(0, 0, None, None)),
        ("rot90", |x| x.rot90(4, [0, 1])),
        ("pad", |x| x.pad([0, 0], 0)),
        ("pad of less", |x| x.pad([-1, 0], 0)),
        ("replicate", |x| {
            x.unsqueeze(0)?.pad([0, -1], PadMode::Replicate)
        }),
        ("circular", |x| {
            x.unsqueeze(0)?.pad([0, -1], PadMode::Circular)
        }),
        ("diag", |x| x.diag(1)),
        ("diagonal_scatter", |x| {
            x.diagonal_scatter(&tensor![1, 2].narrow(0, 0, 0)?, 7, 0, 1)
        }),
        ("cat", |x| Tensor::cat(&[x], 0)),
        ("flip", |x| x.flip([0isize; 0])),
        ("roll", |x| x.roll([0], [0])),
        ("repeat", |x| x.repeat([1, 1])),
    ];
    for (name, copy) in copies {
        for x in [whole.clone(), whole.copy()?] {
            let before = x.to_vec::<i64>()?;
            copy(&x)?.fill_(77)?;
            assert_eq!(x.to_vec::<i64>()?, before, "{name}");
        }
    }
    // Each row has a place of its own.
    let mut rows = tensor![[1, 2]].repeat([2, 1])?;
    rows.select(0, 0)?.zero_()?;
    assert_eq!(rows.add_(1)?.to_vec::<i64>()?, [1, 1, 2, 3]);
    let mask = tensor![true, false];
    mask.sign()?.fill_(0)?;
    assert_eq!(mask.to_vec::<bool>()?, [true, false]);
    Ok(())
}

#[test]
fn strides_and_offsets_are_those_of_the_memory_to_come() -> Outcome {
    let place = |x: &Tensor| (x.stride(), x.storage_offset());
    for is_read in [false, true] {
        let x = vector(|at| at as f64)?.mul(1.0)?;
        let view = x.transpose(0, 2)?.narrow(0, 1, 2)?.diagonal(1, 1, 2)?;
        if is_read {
            view.eval()?;
        }
        assert_eq!(place(&view), (vec![1, 30], 25));
        // A view whose base is gone is still at its place.
        let row = vector(|at| at as f64)?.mul(1.0)?.select(0, 1)?;
        if is_read {
            row.eval()?;
        }
        assert_eq!(place(&row), (vec![6, 1], 24));
        let first = row.as_strided([2], [5], 0)?;
        assert_eq!(first.to_vec::<f64>()?, [0.0, 5.0]);
        assert_eq!(
            row.as_strided([2], [5], None)?.to_vec::<f64>()?,
            [24.0, 29.0]
        );
    }
    Ok(())
}
