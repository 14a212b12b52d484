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
        ReduceOp::Sum => {
            let step = |sum, x: T::Compute| sum + x.widen();
            let many = T::Compute::sum;
            reduce::<T, Y, _>(args, op, Zero::zero(), step, |a, b| a + b, many, narrow);
        }
        _ => {
            let step = |product, x: T::Compute| product * x.widen();
            let join = |a, b| a * b;
            let many = |x: &[T::Compute]| fold(x, One::one(), step, join);
            reduce::<T, Y, _>(args, op, One::one(), step, join, many, narrow);
        }
    }
    Ok(())
}

/// Largest or smallest element.
fn extreme<T: Element<Compute: Ordered>>(args: &mut Args, op: &Reduce) -> Result<(), Misuse> {
    let (least, greatest) = (T::Compute::LEAST, T::Compute::GREATEST);
    let (larger, smaller) = (T::Compute::larger, T::Compute::smaller);
    match op.op {
        ReduceOp::Max => {
            let many = |x: &[T::Compute]| fold(x, least, larger, larger);
            reduce::<T, T, _>(args, op, least, larger, larger, many, |x| x);
        }
        _ => {
            let many = |x: &[T::Compute]| fold(x, greatest, smaller, smaller);
            reduce::<T, T, _>(args, op, greatest, smaller, smaller, many, |x| x);
        }
    }
    Ok(())
}

/// Combines elements with `step`, many of them with `many`, and partial results with `join`, for
/// which `start` is neutral.
fn reduce<T: Element, Y: Element, A: Copy + Send + Sync>(
    args: &mut Args,
    op: &Reduce,
    start: A,
    step: impl Fn(A, T::Compute) -> A + Copy + Sync,
    join: impl Fn(A, A) -> A + Copy + Sync,
    many: impl Fn(&[T::Compute]) -> A + Copy + Sync,
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

    // Elements of each result that a segment has.
    let each = match by_columns {
        true if count > NARROW => len,
        true => SEGMENT / count.max(1),
        false => SEGMENT,
    };
    let segments = len.div_ceil(each.max(1)).max(1);
    let mut partial = vec![start; count * segments];
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
                            level.run(Columns { results, x, step });
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
                    level.run(Row {
                        result,
                        x,
                        many,
                        join,
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
                *y = finish(of_result.fold(start, join));
            }
        });
    });
}

/// Combines all of `x` with a result.
struct Row<'a, X, A, F, Join> {
    result: &'a mut A,
    x: &'a [X],
    many: F,
    join: Join,
}

impl<X, A, F, Join> Kernel for Row<'_, X, A, F, Join>
where
    A: Copy,
    F: Fn(&[X]) -> A,
    Join: Fn(A, A) -> A,
{
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        *self.result = (self.join)(*self.result, (self.many)(self.x));
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
