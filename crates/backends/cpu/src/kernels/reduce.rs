//! Reductions over some dimensions, by rows or by columns.

use num_traits::{One, Zero};
use rustorch_ir::ops::{Reduce, ReduceOp};
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};
use smallvec::SmallVec;

use crate::element::{Element, with_type};
use crate::fold::{Addend, Ordered, fold};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::qmatmul::level::Level;
use crate::qmatmul::{Kernel, Simd};
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Reduce,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Elements of a row that are combined by themselves: longer rows are shared by threads.
/// A constant, so that results do not depend on how many threads there are.
const SEGMENT: usize = 64 * 1024;

/// Elements that are read at once.
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
        ReduceOp::Sum => {
            let step = |sum, x: T::Compute| sum + x.widen();
            reduce::<T, Y, _>(args, op, Zero::zero(), step, |a, b| a + b, narrow);
        }
        _ => {
            let step = |product, x: T::Compute| product * x.widen();
            reduce::<T, Y, _>(args, op, One::one(), step, |a, b| a * b, narrow);
        }
    }
    Ok(())
}

/// Largest or smallest element.
fn extreme<T: Element<Compute: Ordered>>(args: &mut Args, op: &Reduce) -> Result<(), Misuse> {
    let (least, greatest) = (T::Compute::LEAST, T::Compute::GREATEST);
    let (larger, smaller) = (T::Compute::larger, T::Compute::smaller);
    match op.op {
        ReduceOp::Max => reduce::<T, T, _>(args, op, least, larger, larger, |x| x),
        _ => reduce::<T, T, _>(args, op, greatest, smaller, smaller, |x| x),
    }
    Ok(())
}

/// Combines elements with `step` and partial results with `join`, for which `start` is
/// neutral.
fn reduce<T: Element, Y: Element, A: Copy + Send + Sync>(
    args: &mut Args,
    op: &Reduce,
    start: A,
    step: impl Fn(A, T::Compute) -> A + Copy + Sync,
    join: impl Fn(A, A) -> A + Copy + Sync,
    finish: impl Fn(A) -> Y::Compute + Sync,
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

    let segments = if by_columns {
        1
    } else {
        len.div_ceil(SEGMENT).max(1)
    };
    let mut partial = vec![start; count * segments];
    if by_columns {
        for_rows(pool, &mut partial, 1, len, |first, part| {
            let mut x = x.clone();
            for (block, results) in part.chunks_mut(BLOCK).enumerate() {
                let column = first + block * BLOCK;
                for row in 0..len {
                    let x = x.read(row * count + column, results.len());
                    level.run(Columns { results, x, step });
                }
            }
        });
    } else {
        for_rows(pool, &mut partial, 1, len.min(SEGMENT), |first, part| {
            let mut x = x.clone();
            for (i, result) in (first..).zip(part) {
                let (row, segment) = (i / segments, i % segments);
                let end = len.min((segment + 1) * SEGMENT);
                for at in (segment * SEGMENT..end).step_by(BLOCK) {
                    let x = x.read(row * len + at, BLOCK.min(end - at));
                    level.run(Row {
                        result,
                        x,
                        start,
                        step,
                        join,
                    });
                }
            }
        });
    }
    for_rows(pool, args.output.data::<Y>(), 1, segments, |first, part| {
        let partial = partial[first * segments..].chunks(segments);
        Y::write(part, &mut Vec::new(), |part| {
            for (y, partial) in part.iter_mut().zip(partial) {
                *y = finish(partial.iter().copied().fold(start, join));
            }
        });
    });
}

/// Combines all of `x` with a result.
struct Row<'a, X, A, Step, Join> {
    result: &'a mut A,
    x: &'a [X],
    start: A,
    step: Step,
    join: Join,
}

impl<X, A, Step, Join> Kernel for Row<'_, X, A, Step, Join>
where
    X: Copy,
    A: Copy,
    Step: Fn(A, X) -> A,
    Join: Fn(A, A) -> A,
{
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let sum = fold(self.x, self.start, self.step, &self.join);
        *self.result = (self.join)(*self.result, sum);
    }
}

/// Combines each of `x` with a result of its own.
struct Columns<'a, X, A, Step> {
    results: &'a mut [A],
    x: &'a [X],
    step: Step,
}

impl<X: Copy, A: Copy, Step: Fn(A, X) -> A> Kernel for Columns<'_, X, A, Step> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (result, &x) in self.results.iter_mut().zip(self.x) {
            *result = (self.step)(*result, x);
        }
    }
}
