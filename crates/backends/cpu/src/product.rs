//! Matrix products, cut into tiles that threads share.

#[cfg(not(feature = "simd"))]
use std::array::from_fn;
use std::ops::Range;

#[cfg(feature = "simd")]
use gemm::Parallelism;
use num_traits::{One, Zero};
use rustorch_ir::{Layout, Shape};
use smallvec::{SmallVec, smallvec};

use crate::kernel::{SharedMut, for_ranges};
use crate::pool::Pool;

/// Products that are added up one after the other. Longer sums add up sums of this length: in single precision
/// each addition rounds, later ones more.
#[cfg(feature = "simd")]
const CHAIN: usize = 256;

/// A matrix in a slice: element `(i, j)` is at `i · strides[0] + j · strides[1]`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    /// The elements, from the matrix's first on.
    pub(crate) data: &'a [T],
    /// Distances of rows and of columns.
    pub(crate) strides: [usize; 2],
}

impl<'a, T> Matrix<'a, T> {
    /// The matrix from `row` and `column` on.
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        let start = row * self.strides[0] + column * self.strides[1];
        Self {
            data: &self.data[start.min(self.data.len())..],
            ..self
        }
    }

    /// Does the slice hold `rows` times `columns` elements?
    fn holds(&self, rows: usize, columns: usize) -> bool {
        let last = |count: usize, stride| Some(count.checked_sub(1)? * stride);
        match (last(rows, self.strides[0]), last(columns, self.strides[1])) {
            (Some(row), Some(column)) => row + column < self.data.len(),
            _ => true,
        }
    }
}

/// A batch of matrices.
pub(crate) struct Batch<'a, T> {
    data: &'a [T],
    /// Start of each matrix.
    starts: SmallVec<[usize; 1]>,
    strides: [usize; 2],
}

impl<'a, T> Batch<'a, T> {
    /// The matrices of `layout`, whose last two dimensions they are, with the dimensions
    /// before broadcast to `lead`.
    pub(crate) fn new(data: &'a [T], layout: &Layout, lead: &Shape) -> Self {
        let matrix = layout.rank() - 2;
        let batch = Layout {
            shape: layout.shape[..matrix].into(),
            strides: layout.strides[..matrix].into(),
            offset: 0,
        };
        Self {
            data,
            starts: batch.broadcast_to(lead).positions().collect(),
            strides: [layout.strides[matrix], layout.strides[matrix + 1]],
        }
    }

    /// A single matrix.
    pub(crate) fn one(Matrix { data, strides }: Matrix<'a, T>) -> Self {
        let starts = smallvec![0];
        Self {
            data,
            starts,
            strides,
        }
    }

    /// Distances of rows and of columns.
    pub(crate) fn strides(&self) -> [usize; 2] {
        self.strides
    }

    /// The number of matrices.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Matrix `i`.
    pub(crate) fn get(&self, i: usize) -> Matrix<'a, T> {
        // Empty matrices may start behind the end.
        let start = self.starts[i].min(self.data.len());
        Matrix {
            data: &self.data[start..],
            strides: self.strides,
        }
    }
}

/// Writes `a [m, k] · b [k, n]` to `out [m, n]`, whose rows are `row` elements apart, on
/// this thread.
///
/// # Safety
/// The elements of `out` are writable, and no other thread uses them.
///
/// # Panics
/// Panics if `a` or `b` has too few elements.
pub(crate) unsafe fn multiply<T: Zero + One + Copy + 'static>(
    [m, k, n]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    out: *mut T,
    row: usize,
) {
    assert!(a.holds(m, k) && b.holds(k, n), "operands of a product");
    #[cfg(feature = "simd")]
    {
        // gemm adds products of a vector to the result one by one.
        let is_vector = m == 1 || n == 1;
        let mut apart = vec![T::zero(); if is_vector && k > CHAIN { m * n } else { 0 }];
        for depth in (0..k.max(1)).step_by(CHAIN) {
            let is_apart = is_vector && depth > 0;
            let (a, b) = (a.from(0, depth), b.from(depth, 0));
            let (to, row_to) = match is_apart {
                true => (apart.as_mut_ptr(), n),
                false => (out, row),
            };
            // SAFETY: the operands have just been checked. The result is the caller's promise, or as large.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    CHAIN.min(k - depth),
                    to,
                    1,
                    row_to as isize,
                    depth > 0 && !is_apart,
                    a.data.as_ptr(),
                    a.strides[1] as isize,
                    a.strides[0] as isize,
                    b.data.as_ptr(),
                    b.strides[1] as isize,
                    b.strides[0] as isize,
                    T::one(),
                    T::one(),
                    false,
                    false,
                    false,
                    Parallelism::None,
                );
            }
            for (i, &sum) in apart.iter().enumerate().filter(|_| is_apart) {
                // SAFETY: promised by the caller, and written by the first chain.
                let to = unsafe { &mut *out.add(i / n * row + i % n) };
                *to = *to + sum;
            }
        }
    }
    #[cfg(not(feature = "simd"))]
    // SAFETY: promised by the caller.
    multiply_rows([m, k, n], a, b, |i| unsafe {
        std::slice::from_raw_parts_mut(out.add(i * row), n)
    });
}

/// Writes `a [m, k] · b [k, n]` to `m` rows of `n`, by loops that the compiler makes vector instructions of.
#[cfg(not(feature = "simd"))]
fn multiply_rows<'o, T: Zero + One + Copy + 'o>(
    [m, k, n]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    row: impl Fn(usize) -> &'o mut [T],
) {
    /// Rows of `b` that are gone through together, so that each element of the result is loaded once
    /// for all.
    const TOGETHER: usize = 4;
    /// Rows of `b` that stay in the cache while those of the result go by.
    const DEPTH: usize = 64;

    let mut packed = vec![T::zero(); DEPTH * n];
    (0..m).for_each(|i| row(i).fill(T::zero()));
    for depth in (0..if n > 0 { k } else { 0 }).step_by(DEPTH) {
        let rows = depth..k.min(depth + DEPTH);
        let (some, rest) = packed.split_at_mut(rows.len() * n);
        for (to, at) in some.chunks_exact_mut(n).zip(rows.clone()) {
            let columns = (0..n).map(|j| b.data[at * b.strides[0] + j * b.strides[1]]);
            to.iter_mut().zip(columns).for_each(|(to, x)| *to = x);
        }
        rest.fill(T::zero());
        for i in 0..m {
            let out = row(i);
            let factor = |at: usize| match at < rows.end {
                true => a.data[i * a.strides[0] + at * a.strides[1]],
                false => T::zero(),
            };
            let fours = rows.clone().step_by(TOGETHER);
            for (b, at) in packed.chunks_exact(TOGETHER * n).zip(fours) {
                let factors: [T; TOGETHER] = from_fn(|i| factor(at + i));
                let b: [&[T]; TOGETHER] = from_fn(|i| &b[i * n..][..n]);
                for (j, y) in out.iter_mut().enumerate() {
                    let [p, q, r, s]: [T; TOGETHER] = from_fn(|i| factors[i] * b[i][j]);
                    *y = *y + ((p + q) + (r + s));
                }
            }
        }
    }
}

/// Writes the products of `a [m, k]` with `b [k, n]` to `out [m, n]`, for all of a batch.
///
/// # Panics
/// Panics unless `out` has room for the results, or if an operand has too few elements.
pub(crate) fn products<T: Zero + One + Copy + Send + Sync + 'static>(
    pool: &Pool,
    a: &Batch<T>,
    b: &Batch<T>,
    [m, k, n]: [usize; 3],
    out: &mut [T],
) {
    let out = SharedMut::new(out);
    for_tiles(pool, a.len(), [m, k, n], |batch, rows, columns| {
        let a = a.get(batch).from(rows.start, 0);
        let b = b.get(batch).from(0, columns.start);
        let sizes = [rows.len(), k, columns.len()];
        let start = (batch * m + rows.start) * n + columns.start;
        // SAFETY: tiles lie within the result, which nothing else uses, and are disjoint.
        unsafe { multiply(sizes, a, b, out.at(start), n) };
    });
}

/// Are products of f32 of these sizes so large that none are faster than [`products`]?
pub(crate) fn is_large([m, k, n]: [usize; 3]) -> bool {
    let fills = m >= 32 && n >= 64 && k >= 32;
    cfg!(feature = "simd") && fills && m.saturating_mul(k).saturating_mul(n) >= 1 << 21
}

/// Calls `body` with each of `batches` and each tile, as rows and columns, of a result
/// `[m, n]`, in parallel. `k` is the length of the sums. Tiles depend on nothing but the
/// sizes, for the order of summation depends on them.
pub(crate) fn for_tiles(
    pool: &Pool,
    batches: usize,
    [m, k, n]: [usize; 3],
    body: impl Fn(usize, Range<usize>, Range<usize>) + Sync,
) {
    let side =
        |size: usize, parts: usize, most| size.div_ceil(parts).next_multiple_of(64).min(most);
    // Tall and narrow ones are the fastest, by measurement, but for those so narrow that the left operand, which each
    // reads as a whole, takes longer than the products.
    let (height, width) = (side(m, 2, 1024), side(n, 3, 128));
    if height == 0 || width == 0 {
        return;
    }
    let (down, across) = (m.div_ceil(height), n.div_ceil(width));
    let work = height.min(m) * width.min(n) * k;
    for_ranges(pool, batches * down * across, work, |tiles| {
        for tile in tiles {
            let (batch, tile) = (tile / (down * across), tile % (down * across));
            let (row, column) = (tile / across * height, tile % across * width);
            let (rows, columns) = (row..m.min(row + height), column..n.min(column + width));
            body(batch, rows, columns);
        }
    });
}
