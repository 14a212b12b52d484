//! Reductions over some dimensions, by rows or by columns.

use std::marker::PhantomData;

use num_traits::{One, Zero};
use rustorch_ir::ops::{Reduce, ReduceOp};
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};
use smallvec::SmallVec;

use crate::element::{Element, with_type};
use crate::fold::{Addend, Ordered, fold};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;
use crate::simd::{Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Reduce,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Elements that are combined by themselves, of a row or of columns side by side: where there
/// are more, threads share them. A constant, so that results do not depend on how many threads
/// there are.
const SEGMENT: usize = 64 * 1024;

/// The most columns of which rows are shared: of more, threads have columns of their own, since
/// partial results would be as many as elements.
const NARROW: usize = SEGMENT / 16;

/// Elements that are converted at once, or columns gone through together.
const BLOCK: usize = 2048;

/// Results that are worth going through by columns.
const COLUMNS: usize = 16;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Reduce(op) = args.op else {
        return Err(Misuse("not a reduce".to_owned()));
    };
    let dtype = args.inputs[0].dtype();
    match op.op {
        ReduceOp::Sum | ReduceOp::Prod => match dtype {
            d if d.is_float() => with_type!(d, floats T => total::<T, T>(&mut args, op)),
            d if d.is_complex() => with_type!(d, complex T => total::<T, T>(&mut args, op)),
            d => with_type!(d, ints T => total::<T, i64>(&mut args, op)),
        },
        ReduceOp::Max | ReduceOp::Min => with_type!(dtype, reals T => extreme::<T>(&mut args, op)),
    }
}

/// Sum or product.
fn total<T, Y>(args: &mut Args, op: &Reduce) -> Result<(), Misuse>
where
    T: Element<Compute: Addend<Result = Y::Compute>>,
    Y: Element,
{
    let narrow = T::Compute::narrow;
    match op.op {
        ReduceOp::Sum => reduce::<T, Y, Sum>(args, op, narrow),
        _ => reduce::<T, Y, Product>(args, op, narrow),
    }
    Ok(())
}

/// Largest or smallest element.
fn extreme<T: Element<Compute: Ordered>>(args: &mut Args, op: &Reduce) -> Result<(), Misuse> {
    match op.op {
        ReduceOp::Max => reduce::<T, T, Largest>(args, op, |x| x),
        _ => reduce::<T, T, Smallest>(args, op, |x| x),
    }
    Ok(())
}

/// How elements are combined. A trait, because its functions are compiled for the level where they
/// are called, and what is handed on as a value need not be.
trait Combine<X: Copy> {
    type Total: Copy + Send + Sync;
    /// Neutral for [`Self::join`].
    fn start() -> Self::Total;
    fn step(total: Self::Total, x: X) -> Self::Total;
    fn join(a: Self::Total, b: Self::Total) -> Self::Total;

    #[inline(always)]
    fn many(x: &[X]) -> Self::Total {
        fold(x, Self::start(), Self::step, Self::join)
    }
}

struct Sum;
struct Product;
struct Largest;
struct Smallest;

impl<X: Addend> Combine<X> for Sum {
    type Total = X::Total;

    #[inline(always)]
    fn start() -> X::Total {
        Zero::zero()
    }

    #[inline(always)]
    fn step(total: X::Total, x: X) -> X::Total {
        total + x.widen()
    }

    #[inline(always)]
    fn join(a: X::Total, b: X::Total) -> X::Total {
        a + b
    }

    #[inline(always)]
    fn many(x: &[X]) -> X::Total {
        X::sum(x)
    }
}

impl<X: Addend> Combine<X> for Product {
    type Total = X::Total;

    #[inline(always)]
    fn start() -> X::Total {
        One::one()
    }

    #[inline(always)]
    fn step(total: X::Total, x: X) -> X::Total {
        total * x.widen()
    }

    #[inline(always)]
    fn join(a: X::Total, b: X::Total) -> X::Total {
        a * b
    }
}

impl<X: Ordered> Combine<X> for Largest {
    type Total = X;

    #[inline(always)]
    fn start() -> X {
        X::LEAST
    }

    #[inline(always)]
    fn step(largest: X, x: X) -> X {
        largest.larger(x)
    }

    #[inline(always)]
    fn join(a: X, b: X) -> X {
        a.larger(b)
    }
}

impl<X: Ordered> Combine<X> for Smallest {
    type Total = X;

    #[inline(always)]
    fn start() -> X {
        X::GREATEST
    }

    #[inline(always)]
    fn step(smallest: X, x: X) -> X {
        smallest.smaller(x)
    }

    #[inline(always)]
    fn join(a: X, b: X) -> X {
        a.smaller(b)
    }
}

/// Combines elements with `C` and rounds the results with `finish`.
fn reduce<T: Element, Y: Element, C: Combine<T::Compute>>(
    args: &mut Args,
    op: &Reduce,
    finish: impl Fn(C::Total) -> Y::Compute + Sync,
) {
    let (x, pool, level) = (&args.inputs[0], args.pool, Level::current());
    let (reduced, kept): (SmallVec<[usize; 6]>, SmallVec<[usize; 6]>) =
        (0..x.shape().len()).partition(|d| op.dims.contains(d));
    let sizes = |dims: &[usize]| dims.iter().map(|&d| x.shape()[d]).product::<usize>();
    let (len, count) = (sizes(&reduced), sizes(&kept));
    let nearest = |dims: &[usize]| {
        let dims = dims.iter().filter(|&&d| x.shape()[d] > 1);
        dims.map(|&d| x.layout.strides[d]).min()
    };
    let neighbours_are_kept = match (nearest(&kept), nearest(&reduced)) {
        (Some(kept), Some(reduced)) => kept < reduced,
        _ => false,
    };
    let by_columns = count >= COLUMNS && neighbours_are_kept;
    let order = if by_columns {
        [reduced, kept]
    } else {
        [kept, reduced]
    };
    let x = Reader::<T>::new(x, &x.layout.permute(&order.concat()));

    // Elements of each result that a segment has.
    let each = match by_columns {
        true if count > NARROW => len,
        true => SEGMENT / count.max(1),
        false => SEGMENT,
    };
    let segments = len.div_ceil(each.max(1)).max(1);
    let mut partial = vec![C::start(); count * segments];
    if by_columns {
        // Threads share either segments, each with all columns, or the columns.
        let row = if segments > 1 { count } else { 1 };
        for_rows(
            pool,
            &mut partial,
            row,
            each.min(len) * row,
            |first, part| {
                let mut x = x.clone();
                let width = if segments > 1 { count } else { part.len() };
                for (i, results) in part.chunks_mut(width).enumerate() {
                    let (segment, column) = match segments {
                        1 => (0, first),
                        _ => (first + i, 0),
                    };
                    for (block, results) in results.chunks_mut(BLOCK).enumerate() {
                        let column = column + block * BLOCK;
                        for row in segment * each..len.min((segment + 1) * each) {
                            let x = x.read(row * count + column, results.len());
                            level.run(Columns::<_, _, C> {
                                results,
                                x,
                                combine: PhantomData,
                            });
                        }
                    }
                }
            },
        );
    } else {
        let block = if T::CONVERTED { BLOCK } else { SEGMENT };
        for_rows(pool, &mut partial, 1, len.min(SEGMENT), |first, part| {
            let mut x = x.clone();
            for (i, result) in (first..).zip(part) {
                let (row, segment) = (i / segments, i % segments);
                let end = len.min((segment + 1) * SEGMENT);
                for at in (segment * SEGMENT..end).step_by(block) {
                    let x = x.read(row * len + at, block.min(end - at));
                    level.run(Row::<_, _, C> {
                        result,
                        x,
                        combine: PhantomData,
                    });
                }
            }
        });
    }
    // Segments of a result are neighbours, or those of all results are.
    let [next, across] = if by_columns {
        [1, count]
    } else {
        [segments, 1]
    };
    for_rows(pool, args.output.data::<Y>(), 1, segments, |first, part| {
        Y::write(part, &mut Vec::new(), |part| {
            for (i, y) in (first..).zip(part) {
                let of_result = (0..segments).map(|s| partial[i * next + s * across]);
                *y = finish(of_result.fold(C::start(), C::join));
            }
        });
    });
}

/// Combines all of `x` with a result.
struct Row<'a, X, A, C> {
    result: &'a mut A,
    x: &'a [X],
    combine: PhantomData<C>,
}

impl<X: Copy, C: Combine<X>> Kernel for Row<'_, X, C::Total, C> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        *self.result = C::join(*self.result, C::many(self.x));
    }
}

/// Combines each of `x` with a result of its own.
struct Columns<'a, X, A, C> {
    results: &'a mut [A],
    x: &'a [X],
    combine: PhantomData<C>,
}

impl<X: Copy, C: Combine<X>> Kernel for Columns<'_, X, C::Total, C> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (result, &x) in self.results.iter_mut().zip(self.x) {
            *result = C::step(*result, x);
        }
    }
}
