//! Reductions over some dimensions, by rows or by columns.

mod terms;

use std::marker::PhantomData;

use bytemuck::{cast_slice, cast_slice_mut};
use num_traits::{One, Zero};
use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{DType, Layout};
use smallvec::SmallVec;

use crate::element::{Element, with_type};
use crate::fold::{Addend, Ordered, fold, sum};
use crate::fused::Blocks;
use crate::kernel::{Misuse, for_rows};
use crate::math::Real;
use crate::pool::Pool;
use crate::reader::Reader;
use crate::simd::{Kernel, Level, Simd};
use crate::view::View;
use terms::Terms;

/// Elements that are combined by themselves, of a row or of columns side by side: where there
/// are more, threads share them. A constant, so that results do not depend on how many threads
/// there are.
const SEGMENT: usize = 64 * 1024;

/// The most columns whose rows are shared. With more, threads have their own columns, since partial
/// results would be as many as elements.
const NARROW: usize = SEGMENT / 16;

/// Elements that are converted or computed at once, or columns gone through together.
pub(crate) const BLOCK: usize = 2048;

/// Results that are worth going through by columns.
const COLUMNS: usize = 16;

/// A reduction of elements, in memory or computed.
pub(crate) struct Reduction<'r, 'a> {
    pub(crate) pool: &'r Pool,
    pub(crate) op: ReduceOp,
    /// Dtype of the elements.
    pub(crate) dtype: DType,
    pub(crate) order: &'r Order,
    pub(crate) elements: &'r Elements<'a>,
    /// The results, of the dtype that the operation gives.
    pub(crate) out: &'r mut [u8],
}

/// Elements to reduce.
pub(crate) enum Elements<'a> {
    /// Elements in memory.
    View(View<'a>),
    /// The squares of singles in memory.
    Squares(View<'a>),
    /// Computed, in the order that [`Order::dims`] says.
    Blocks(Box<Blocks<'a>>),
}

/// The order that elements are gone through in.
pub(crate) struct Order {
    reduced: SmallVec<[usize; 6]>,
    kept: SmallVec<[usize; 6]>,
    /// Elements of a result, and results.
    len: usize,
    count: usize,
    by_columns: bool,
}

impl Order {
    /// For elements that lie like these, over `dims`.
    pub(crate) fn new(layout: &Layout, dims: &[usize]) -> Self {
        let (reduced, kept): (SmallVec<[usize; 6]>, SmallVec<[usize; 6]>) =
            (0..layout.rank()).partition(|d| dims.contains(d));
        let sizes = |dims: &[usize]| dims.iter().map(|&d| layout.shape[d]).product::<usize>();
        let (len, count) = (sizes(&reduced), sizes(&kept));
        let nearest = |dims: &[usize]| {
            let dims = dims.iter().filter(|&&d| layout.shape[d] > 1);
            dims.map(|&d| layout.strides[d]).min()
        };
        let neighbours_are_kept = match (nearest(&kept), nearest(&reduced)) {
            (Some(kept), Some(reduced)) => kept < reduced,
            _ => false,
        };
        Self {
            by_columns: count >= COLUMNS && neighbours_are_kept,
            reduced,
            kept,
            len,
            count,
        }
    }

    /// Elements of a result.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Elements of all results.
    pub(crate) fn elements(&self) -> usize {
        self.len * self.count
    }

    /// The dimensions as they are gone through.
    pub(crate) fn dims(&self) -> Vec<usize> {
        match self.by_columns {
            true => [&self.reduced[..], &self.kept].concat(),
            false => [&self.kept[..], &self.reduced].concat(),
        }
    }
}

impl Reduction<'_, '_> {
    pub(crate) fn run(self) -> Result<(), Misuse> {
        let dtype = self.dtype;
        if let (ReduceOp::Sum, Elements::Squares(_)) = (self.op, self.elements) {
            self.combined::<f32, f32, Squares>(f32::narrow);
            return Ok(());
        }
        match self.op {
            ReduceOp::Sum | ReduceOp::Prod => match dtype {
                d if d.is_float() => with_type!(d, floats T => self.total::<T, T>()),
                d if d.is_complex() => with_type!(d, complex T => self.total::<T, T>()),
                d => with_type!(d, ints T => self.total::<T, i64>()),
            },
            ReduceOp::Max | ReduceOp::Min => with_type!(dtype, reals T => self.extreme::<T>()),
        }
    }

    /// Sum or product.
    fn total<T, Y>(self) -> Result<(), Misuse>
    where
        T: Element<Compute: Addend<Result = Y::Compute>>,
        Y: Element,
    {
        let narrow = T::Compute::narrow;
        match self.op {
            ReduceOp::Sum => self.combined::<T, Y, Sum>(narrow),
            _ => self.combined::<T, Y, Product>(narrow),
        }
        Ok(())
    }

    /// Largest or smallest element.
    fn extreme<T: Element<Compute: Ordered>>(self) -> Result<(), Misuse> {
        match self.op {
            ReduceOp::Max => self.combined::<T, T, Largest>(|x| x),
            _ => self.combined::<T, T, Smallest>(|x| x),
        }
        Ok(())
    }

    fn combined<T: Element, Y: Element, C: Combine<T::Compute>>(
        self,
        finish: fn(C::Total) -> Y::Compute,
    ) {
        let (pool, order, out) = (self.pool, self.order, cast_slice_mut(self.out));
        let x = match self.elements {
            Elements::View(x) | Elements::Squares(x) => {
                let layout = x.layout.permute(&order.dims());
                Source::Memory(Reader::<T>::new(x, &layout))
            }
            Elements::Blocks(blocks) => Source::Computed {
                blocks: blocks.clone(),
                widened: Vec::new(),
            },
        };
        reduce::<T, Y, C::Total>(pool, &x, order, out, Loops::of::<C>(), finish);
    }
}

/// Elements in order, some at a time.
#[derive(Clone)]
enum Source<'a, T: Element> {
    Memory(Reader<'a, T>),
    Computed {
        blocks: Box<Blocks<'a>>,
        widened: Vec<T::Compute>,
    },
}

impl<T: Element> Source<'_, T> {
    /// Best number of elements to read at a time.
    fn block(&self) -> usize {
        match self {
            Self::Memory(_) if !T::CONVERTED => SEGMENT,
            _ => BLOCK,
        }
    }

    /// Cost of reading one beside an addition.
    fn work(&self) -> usize {
        match self {
            Self::Memory(_) => 0,
            Self::Computed { blocks, .. } => blocks.work(),
        }
    }

    // A call reads much at once. Inlined, it would be compiled for each loop that reads.
    #[inline(never)]
    fn read(&mut self, start: usize, len: usize) -> &[T::Compute] {
        match self {
            Self::Memory(reader) => reader.read(start, len),
            Self::Computed { blocks, widened } => {
                T::widen(cast_slice(blocks.read(start, len)), widened)
            }
        }
    }
}

/// Combination of elements. It is a trait, because its functions are compiled for the level of the
/// caller. Functions handed on as values need not be.
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
struct Squares;
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

impl Combine<f32> for Squares {
    type Total = f64;

    #[inline(always)]
    fn start() -> f64 {
        0.0
    }

    #[inline(always)]
    fn step(total: f64, x: f32) -> f64 {
        total + f64::from(x * x)
    }

    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        a + b
    }

    #[inline(always)]
    fn many(x: &[f32]) -> f64 {
        sum(x, |x| x * x)
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

/// A loop over some results and their elements; the number is that of the first result.
type Loop<'l, X, A> = &'l (dyn Fn(usize, &mut [A], &[X]) + Sync);

/// The loops of a [`Combine`], through which one function serves all that have these types.
struct Loops<'l, X, A> {
    start: A,
    join: fn(A, A) -> A,
    /// See [`Rows`].
    rows: Loop<'l, X, A>,
    /// See [`Columns`].
    columns: Loop<'l, X, A>,
}

impl<X: Copy, A> Loops<'_, X, A> {
    fn of<C: Combine<X, Total = A>>() -> Self {
        Self {
            start: C::start(),
            join: C::join,
            rows: &|_, results, x| Level::current().run(Rows::<_, _, C>::new(results, x)),
            columns: &|_, results, x| Level::current().run(Columns::<_, _, C>::new(results, x)),
        }
    }
}

/// The sum of each result's elements in double precision. With `centres`, one for each result, the sum of the
/// squares of their distances from it.
pub(crate) fn totals<T: Element<Compute: Real>>(
    pool: &Pool,
    x: &View,
    order: &Order,
    centres: Option<&[f64]>,
) -> Vec<f64> {
    let layout = x.layout.permute(&order.dims());
    let x = Source::Memory(Reader::<T>::new(x, &layout));
    let mut sums = vec![0.0; order.count];
    let terms = |by_columns| {
        move |first: usize, results: &mut [f64], x: &[T::Compute]| {
            Level::current().run(Terms {
                centres: centres.map(|centres| &centres[first..][..results.len()]),
                results,
                x,
                by_columns,
            })
        }
    };
    let loops = Loops {
        start: 0.0,
        join: |a, b| a + b,
        rows: &terms(false),
        columns: &terms(true),
    };
    reduce::<T, f64, f64>(pool, &x, order, &mut sums, loops, |sum| sum);
    sums
}

/// Combines elements with these loops and rounds the results with `finish`.
fn reduce<T: Element, Y: Element, A: Copy + Send + Sync>(
    pool: &Pool,
    x: &Source<T>,
    order: &Order,
    out: &mut [Y],
    combine: Loops<T::Compute, A>,
    finish: fn(A) -> Y::Compute,
) {
    let &Order {
        len,
        count,
        by_columns,
        ..
    } = order;
    let work = 1 + x.work();

    // Elements of each result that a segment has.
    let each = match by_columns {
        true if count > NARROW => len,
        true => SEGMENT / count.max(1),
        false => SEGMENT,
    };
    let segments = len.div_ceil(each.max(1)).max(1);
    let mut partial = vec![combine.start; count * segments];
    if by_columns {
        // Threads share either segments, each with all columns, or the columns.
        let row = if segments > 1 { count } else { 1 };
        for_rows(
            pool,
            &mut partial,
            row,
            each.min(len) * row * work,
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
                        // Whole rows follow each other.
                        let rows = match results.len() == count {
                            true => (x.block() / count).max(1),
                            false => 1,
                        };
                        let end = len.min((segment + 1) * each);
                        for row in (segment * each..end).step_by(rows) {
                            let some = rows.min(end - row) * results.len();
                            let x = x.read(row * count + column, some);
                            (combine.columns)(column, results, x);
                        }
                    }
                }
            },
        );
    } else {
        // Short rows are read together.
        let rows = match segments {
            1 => BLOCK / len.max(1),
            _ => 1,
        };
        for_rows(
            pool,
            &mut partial,
            1,
            len.min(SEGMENT) * work,
            |first, part| {
                let mut x = x.clone();
                if rows > 1 && len > 0 {
                    for (i, results) in part.chunks_mut(rows).enumerate() {
                        let row = first + i * rows;
                        let x = x.read(row * len, results.len() * len);
                        (combine.rows)(row, results, x);
                    }
                    return;
                }
                for (i, result) in (first..).zip(part.chunks_mut(1)) {
                    let (row, segment) = (i / segments, i % segments);
                    let end = len.min((segment + 1) * SEGMENT);
                    for at in (segment * SEGMENT..end).step_by(x.block()) {
                        let some = x.block().min(end - at);
                        (combine.rows)(row, result, x.read(row * len + at, some));
                    }
                }
            },
        );
    }
    // Segments of a result are neighbours, or those of all results are.
    let [next, across] = if by_columns {
        [1, count]
    } else {
        [segments, 1]
    };
    for_rows(pool, out, 1, segments, |first, part| {
        Y::write(part, &mut Vec::new(), |part| {
            for (i, y) in (first..).zip(part) {
                let of_result = (0..segments).map(|s| partial[i * next + s * across]);
                *y = finish(of_result.fold(combine.start, combine.join));
            }
        });
    });
}

/// Combines rows of `x` with a result each.
struct Rows<'a, X, A, C> {
    results: &'a mut [A],
    x: &'a [X],
    combine: PhantomData<C>,
}

impl<'a, X, A, C> Rows<'a, X, A, C> {
    fn new(results: &'a mut [A], x: &'a [X]) -> Self {
        let combine = PhantomData;
        Self {
            results,
            x,
            combine,
        }
    }
}

impl<X: Copy, C: Combine<X>> Kernel for Rows<'_, X, C::Total, C> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let len = self.x.len() / self.results.len();
        for (result, x) in self.results.iter_mut().zip(self.x.chunks_exact(len)) {
            *result = C::join(*result, C::many(x));
        }
    }
}

/// Combines each of `x`, which is one row of them or several, with the result of its column.
struct Columns<'a, X, A, C> {
    results: &'a mut [A],
    x: &'a [X],
    combine: PhantomData<C>,
}

impl<'a, X, A, C> Columns<'a, X, A, C> {
    fn new(results: &'a mut [A], x: &'a [X]) -> Self {
        let combine = PhantomData;
        Self {
            results,
            x,
            combine,
        }
    }
}

impl<X: Copy, C: Combine<X>> Kernel for Columns<'_, X, C::Total, C> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        /// Rows that are gone through together, so that results are loaded once for all of them.
        const TOGETHER: usize = 4;
        let width = self.results.len();
        let mut fours = self.x.chunks_exact(TOGETHER * width);
        for rows in &mut fours {
            let (first, last) = rows.split_at(2 * width);
            let ((a, b), (c, d)) = (first.split_at(width), last.split_at(width));
            let rows = a.iter().zip(b).zip(c.iter().zip(d));
            for (result, ((&a, &b), (&c, &d))) in self.results.iter_mut().zip(rows) {
                let two = C::step(C::step(*result, a), b);
                *result = C::step(C::step(two, c), d);
            }
        }
        for row in fours.remainder().chunks_exact(width) {
            for (result, &x) in self.results.iter_mut().zip(row) {
                *result = C::step(*result, x);
            }
        }
    }
}
