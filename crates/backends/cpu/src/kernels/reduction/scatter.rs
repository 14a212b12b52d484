//! Elements are put to places along a dimension, or combined with the elements there.

use std::cmp::Ordering;

use rustorch_ir::ops::{Scatter, ScatterMode};
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::{BLOCK, Check, Indices, unsigned};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::{Reader, Run, Runs};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Scatter,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Scatter(op) = args.op else {
        return Err(Misuse("not a scatter".to_owned()));
    };
    let dtype = args.output.dtype();
    match op.mode {
        ScatterMode::Set => with_type!(dtype, words T => {
            scatter::<T>(&mut args, op, |_, source| source)
        }),
        ScatterMode::Add if dtype == DType::F32 && has_many_addends(&args) => {
            scatter_in::<f32, f64>(&mut args, op, in_double_precision, |sum, x| {
                sum + f64::from(x)
            })
        }
        ScatterMode::Add if dtype.is_float() => with_type!(dtype, floats T => {
            scatter::<T>(&mut args, op, |x, source| x + source)
        }),
        ScatterMode::Add if dtype.is_complex() => with_type!(dtype, complex T => {
            scatter::<T>(&mut args, op, |x, source| x + source)
        }),
        ScatterMode::Add => with_type!(dtype, ints T => {
            scatter::<T>(&mut args, op, |x: T, source| x.wrapping_add(source))
        }),
        ScatterMode::Prod if dtype.is_float() => with_type!(dtype, floats T => {
            scatter::<T>(&mut args, op, |x, source| x * source)
        }),
        ScatterMode::Prod if dtype.is_complex() => with_type!(dtype, complex T => {
            scatter::<T>(&mut args, op, |x, source| x * source)
        }),
        ScatterMode::Prod => with_type!(dtype, ints T => {
            scatter::<T>(&mut args, op, |x: T, source| x.wrapping_mul(source))
        }),
        ScatterMode::Max => with_type!(dtype, reals T => {
            scatter::<T>(&mut args, op, larger)
        }),
        ScatterMode::Min => with_type!(dtype, reals T => {
            scatter::<T>(&mut args, op, smaller)
        }),
    }
}

/// The larger one; NaN if one is NaN.
fn larger<T: PartialOrd>(a: T, b: T) -> T {
    match b.partial_cmp(&a) {
        Some(Ordering::Greater) => b,
        None if is_nan(&b) => b,
        _ => a,
    }
}

/// The smaller one; NaN if one is NaN.
fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    match b.partial_cmp(&a) {
        Some(Ordering::Less) => b,
        None if is_nan(&b) => b,
        _ => a,
    }
}

fn is_nan<T: PartialOrd>(x: &T) -> bool {
    x.partial_cmp(x).is_none()
}

/// Elements that stay in the nearest caches between being copied and being combined.
const NEAR: usize = 4096;

/// Addends of a place, on average, from which on they are added in double precision. The conversions of places cost
/// little then.
const MANY: usize = 8;

fn has_many_addends(args: &Args) -> bool {
    let [x, index] = [0, 1].map(|i| args.inputs[i].layout.elements());
    index >= x.saturating_mul(MANY)
}

/// Combines elements from places of a slab with others: those of a run, and for each the index that its
/// place is that many strides behind.
type Step<T, P> = dyn Fn(&mut [P], Run, Picks, &[T]) + Sync;

/// Calls a function with places for these elements, and gives them the values there.
type Within<T, P> = fn(&mut [T], &mut dyn FnMut(&mut [P]));

fn in_double_precision(part: &mut [f32], steps: &mut dyn FnMut(&mut [f64])) {
    let mut sums: Vec<f64> = part.iter().map(|&x| x.into()).collect();
    steps(&mut sums);
    part.iter_mut()
        .zip(sums)
        .for_each(|(x, sum)| *x = sum as f32);
}

/// Indices of a dimension of a slab.
#[derive(Clone, Copy)]
struct Picks<'a> {
    indices: &'a [i64],
    /// The number of the first among all.
    first: usize,
    /// Stride of the dimension.
    stride: usize,
    check: &'a Check,
}

/// Copies `x` and puts `combine(old, new)` where the index says, in row-major order.
fn scatter<T: Element>(
    args: &mut Args,
    op: &Scatter,
    combine: impl Fn(T, T) -> T + Sync + 'static,
) -> Result<(), Misuse> {
    scatter_in::<T, T>(args, op, |part, steps| steps(part), combine)
}

/// The same in places of another type.
fn scatter_in<T: Element, P: Copy>(
    args: &mut Args,
    op: &Scatter,
    within: Within<T, P>,
    combine: impl Fn(P, T) -> P + Sync + 'static,
) -> Result<(), Misuse> {
    scatter_by::<T, P>(args, op, within, &move |slab, run, picks, new| {
        let slab = &mut slab[run.at..];
        let sources = (picks.first..).zip(picks.indices.iter().zip(new));
        if [run.stride, picks.stride] == [0, 1] {
            // One line, of neighbours.
            let line = &mut slab[..picks.check.size];
            for (number, (&index, &new)) in sources {
                match line.get_mut(unsigned(index)) {
                    Some(old) => *old = combine(*old, new),
                    None => picks.check.note(number),
                }
            }
            return;
        }
        for (i, (number, (&index, &new))) in sources.enumerate() {
            if let Some(index) = picks.check.inside(index, number) {
                let old = &mut slab[i * run.stride + index * picks.stride];
                *old = combine(*old, new);
            }
        }
    })
}

/// Copies `x` and combines with `step`. Work for different indices of the first dimension runs in
/// parallel, unless that dimension is indexed.
fn scatter_by<T: Element, P>(
    args: &mut Args,
    op: &Scatter,
    within: Within<T, P>,
    step: &Step<T, P>,
) -> Result<(), Misuse> {
    let [x, index, source] = [&args.inputs[0], &args.inputs[1], &args.inputs[2]];
    let slabs = if op.dim == 0 { 1 } else { x.shape()[0] };
    let indexed = if op.dim == 0 { 1 } else { index.shape()[0] };
    // Elements of the result and of the index in a slab.
    let slab = x.layout.elements() / slabs.max(1);
    let all = index.layout.elements();
    let picked = all / indexed.max(1);
    let mut lines = Layout::contiguous(&args.output.ty.shape);
    let stride = std::mem::take(&mut lines.strides[op.dim]);
    lines.shape = index.ty.shape.clone();
    let [lines] = Layout::collapse([&lines]);
    let check = Check::new(x.shape()[op.dim]);
    let old = Reader::<T>::whole(x);
    let (indices, new) = (Indices::whole(index), Reader::<T>::whole(source));
    let together = (NEAR / slab.max(1)).max(1);
    for_rows(
        args.pool,
        args.output.data::<T>(),
        slab,
        slab + 4 * picked,
        |first, part| {
            let (mut indices, mut new) = (indices.clone(), new.clone());
            let slabs = (first..).step_by(together);
            for (first, part) in slabs.zip(part.chunks_mut(together * slab)) {
                let base = first * slab;
                old.copy(base, part);
                let end = (first + part.len() / slab) * picked;
                within(part, &mut |part| {
                    for number in ((first * picked).min(all)..end.min(all)).step_by(BLOCK) {
                        let len = BLOCK.min(end.min(all) - number);
                        let (indices, new) = (indices.read(number, len), new.stored(number, len));
                        let mut done = 0;
                        for run in Runs::new(&lines, number..number + len) {
                            let some = done..done + run.len;
                            let picks = Picks {
                                indices: &indices[some.clone()],
                                first: number + done,
                                stride,
                                check: &check,
                            };
                            done = some.end;
                            let at = run.at - base;
                            step(part, Run { at, ..run }, picks, &new[some]);
                        }
                    }
                });
            }
        },
    );
    check.finish(index, x, op.dim)
}
