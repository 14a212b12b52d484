//! Products of f32 whose operands are packed into panels
//! ([Goto and van de Geijn 2008](https://doi.org/10.1145/1356052.1356053)): a panel of rows stays in a first-level
//! cache and meets panels of columns that stay in a second-level one, tile by tile of the result, whose sums are
//! in registers.
//!
//! A sum's order follows from its length alone.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable, cast_slice_mut};

use super::{Batch, Matrix};
use crate::kernel::SharedMut;
use crate::pool::Pool;
use crate::simd::{Kernel, Level, Simd};

/// Values along the sums whose panels stay in the caches.
const DEPTH: usize = 512;
/// Columns whose panels stay in a second-level cache.
const WIDTH: usize = 256;
/// Rows and columns of a task at most: what it packs is to be small beside what it multiplies, and to take little memory.
const LARGEST: [usize; 2] = [1024, 2048];
/// Results of a task above which smaller ones pack little more.
const LARGE: usize = 512 * 512;
/// Rows and columns of a task are multiples of these, which are multiples of every level's tiles.
const STEP: [usize; 2] = [12, 32];

/// A vector's lanes, where vectors are read fastest.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Lanes([f32; 16]);

thread_local! {
    /// The panels of a task's rows.
    static LEFT: RefCell<Vec<Lanes>> = const { RefCell::new(Vec::new()) };
    /// The panels of some of its columns.
    static RIGHT: RefCell<Vec<Lanes>> = const { RefCell::new(Vec::new()) };
}

/// Writes the products of `a [m, k]` with `b [k, n]` to `out [m, n]`, for all of a batch.
///
/// # Panics
/// Unless `out` holds the results, or if an operand has fewer elements.
pub(super) fn multiply(
    level: Level,
    pool: &Pool,
    [m, k, n]: [usize; 3],
    a: &Batch<f32>,
    b: &Batch<f32>,
    out: &mut [f32],
) {
    assert_eq!(out.len(), a.len() * m * n, "results of a product");
    if k == 0 || out.is_empty() {
        return out.fill(0.0);
    }
    let [height, width] = task(pool.threads(), a.len(), [m, n]);
    let (down, across) = (m.div_ceil(height), n.div_ceil(width));
    let out = SharedMut::new(out);
    pool.run(a.len() * down * across, &|task| {
        let (batch, task) = (task / (down * across), task % (down * across));
        let (row, column) = (task / across * height, task % across * width);
        let sizes = [height.min(m - row), k, width.min(n - column)];
        LEFT.with_borrow_mut(|left| {
            RIGHT.with_borrow_mut(|right| {
                level.run(Task {
                    sizes,
                    a: a.get(batch).from(row, 0),
                    b: b.get(batch).from(0, column),
                    out: &out,
                    first: (batch * m + row) * n + column,
                    stride: n,
                    left,
                    right,
                });
            });
        });
    });
}

/// Rows and columns of a task: so many tasks that threads have equally much, and if they stay large so many that one which
/// is late is no great loss.
fn task(threads: usize, batches: usize, [m, n]: [usize; 2]) -> [usize; 2] {
    let [mut down, mut across] = [m.div_ceil(LARGEST[0]), n.div_ceil(LARGEST[1])];
    loop {
        let height = m.div_ceil(down).next_multiple_of(STEP[0]);
        let width = n.div_ceil(across).next_multiple_of(STEP[1]);
        let tasks = batches * m.div_ceil(height) * n.div_ceil(width);
        let is_even = tasks.is_multiple_of(threads) && height * width <= LARGE;
        if is_even || tasks >= 4 * threads || height.max(width) <= 2 * STEP[1] {
            return [height, width];
        }
        *(if height > width {
            &mut down
        } else {
            &mut across
        }) *= 2;
    }
}

/// The product of some rows with some columns.
struct Task<'a> {
    sizes: [usize; 3],
    a: Matrix<'a, f32>,
    b: Matrix<'a, f32>,
    out: &'a SharedMut<'a, f32>,
    /// Where in `out` the results begin, and how far apart their rows are. They are this task's alone.
    first: usize,
    stride: usize,
    left: &'a mut Vec<Lanes>,
    right: &'a mut Vec<Lanes>,
}

impl Kernel for Task<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if const { S::SUMS >= 24 } {
            self.compute::<S, 12, 2, 32>(s);
        } else {
            self.compute::<S, 6, 1, 16>(s);
        }
    }
}

impl Task<'_> {
    /// In tiles of `R` rows and `C` columns, which are `V` vectors.
    #[inline(always)]
    fn compute<S: Simd, const R: usize, const V: usize, const C: usize>(self, s: S) {
        let [m, k, n] = self.sizes;
        let deep = k.div_ceil(k.div_ceil(DEPTH));
        let left = room(self.left, m.next_multiple_of(R) * deep);
        let right = room(self.right, WIDTH.min(n.next_multiple_of(C)) * deep);
        for start in (0..k).step_by(deep) {
            let depth = deep.min(k - start);
            let a = self.a.from(0, start);
            pack::<S, R>(s, a.data, a.strides, [m, depth], left);
            for column in (0..n).step_by(WIDTH) {
                let columns = WIDTH.min(n - column);
                let b = self.b.from(start, column);
                let [inner, outer] = b.strides;
                pack::<S, C>(s, b.data, [outer, inner], [columns, depth], right);
                let panels = left.chunks_exact(depth * R);
                for (row, left) in (0..m).step_by(R).zip(panels) {
                    let panels = right.chunks_exact(depth * C);
                    for (next, right) in (column..column + columns).step_by(C).zip(panels) {
                        let sums = tile::<S, R, V>(s, left, right);
                        let count = C.min(n - next);
                        for (row, sums) in (row..m).zip(sums) {
                            let first = self.first + row * self.stride + next;
                            // SAFETY: the results are inside of `out` and this task's alone.
                            let out = unsafe { self.out.range(first, count) };
                            add::<S, V>(s, sums, start > 0, out);
                        }
                    }
                }
            }
        }
    }
}

/// Room for `count` elements, and for a vector that is written over the end.
fn room(lanes: &mut Vec<Lanes>, count: usize) -> &mut [f32] {
    let needed = count.div_ceil(16) + 1;
    if lanes.len() < needed {
        lanes.resize(needed, Lanes::zeroed());
    }
    cast_slice_mut(lanes)
}

/// The products of a panel of rows with one of columns.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize>(s: S, a: &[f32], b: &[f32]) -> [[S::F; V]; R] {
    let mut sums = [[s.splat_f32(0.0); V]; R];
    let b = b.as_chunks::<16>().0.as_chunks::<V>().0;
    for (a, b) in a.as_chunks::<R>().0.iter().zip(b) {
        let mut columns = [s.splat_f32(0.0); V];
        for (columns, b) in columns.iter_mut().zip(b) {
            *columns = s.load_f32(b);
        }
        for (sums, a) in sums.iter_mut().zip(a) {
            let a = s.splat_f32(*a);
            for (sum, columns) in sums.iter_mut().zip(columns) {
                *sum = s.mul_add(*sum, a, columns);
            }
        }
    }
    sums
}

/// Writes the first sums of a row to `out`, or adds them to it.
#[inline(always)]
fn add<S: Simd, const V: usize>(s: S, sums: [S::F; V], is_more: bool, out: &mut [f32]) {
    if out.len() == 16 * V {
        for (sum, out) in sums.into_iter().zip(out.as_chunks_mut::<16>().0) {
            let sum = if is_more {
                s.add_f32(s.load_f32(out), sum)
            } else {
                sum
            };
            s.store_f32(sum, out);
        }
        return;
    }
    let mut lanes = [[0.0; 16]; V];
    for (sum, lanes) in sums.into_iter().zip(&mut lanes) {
        s.store_f32(sum, lanes);
    }
    for (out, sum) in out.iter_mut().zip(lanes.as_flattened()) {
        *out = if is_more { *out + sum } else { *sum };
    }
}

/// Packs rows or columns, `outer` apart, of `depth` elements, `inner` apart, into panels of `L`, the last filled with
/// zeros: of a panel the first elements, then the second and so on. A vector behind the panels holds anything afterwards.
#[inline(always)]
fn pack<S: Simd, const L: usize>(
    s: S,
    data: &[f32],
    [outer, inner]: [usize; 2],
    [lines, depth]: [usize; 2],
    out: &mut [f32],
) {
    /// Panels whose parts are neighbours in memory, and whole lines of the cache together.
    const TOGETHER: usize = 4;
    let mut first = 0;
    while outer == 1 && first + TOGETHER * L <= lines {
        let out = &mut out[first * depth..];
        for k in 0..depth {
            let parts = data[first + k * inner..][..TOGETHER * L].as_chunks::<L>().0;
            for (i, part) in parts.iter().enumerate() {
                out[(i * depth + k) * L..][..L].copy_from_slice(part);
            }
        }
        first += TOGETHER * L;
    }
    while first < lines {
        let (out, count) = (&mut out[first * depth..], L.min(lines - first));
        let data = &data[first * outer..];
        let transposed = if inner == 1 && count == L {
            depth / 16 * 16
        } else {
            0
        };
        for k in (0..transposed).step_by(16) {
            for line in (0..L).step_by(16) {
                let mut rows = [s.splat(0); 16];
                for (i, row) in rows[..16.min(L - line)].iter_mut().enumerate() {
                    let lanes = data[(line + i) * outer + k..][..16].as_chunks::<16>().0;
                    *row = s.bits(s.load_f32(&lanes[0]));
                }
                for (i, column) in s.transpose(rows).into_iter().enumerate() {
                    // What is too much of a vector is written over by the next.
                    let lanes = out[(k + i) * L + line..][..16].as_chunks_mut::<16>().0;
                    s.store(column, bytemuck::cast_mut(&mut lanes[0]));
                }
            }
        }
        for k in transposed..depth {
            let out = &mut out[k * L..][..L];
            if outer == 1 && count == L {
                out.copy_from_slice(&data[k * inner..][..L]);
                continue;
            }
            for (line, out) in out.iter_mut().enumerate() {
                *out = if line < count {
                    data[line * outer + k * inner]
                } else {
                    0.0
                };
            }
        }
        first += L;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of values between -1 and 1.
    fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// Sums are within what rounding makes of them, and the same ones with any number of threads.
    #[test]
    fn products_of_any_strides_at_every_level() {
        let pools = [1, 3].map(Pool::new);
        for [m, k, n] in [
            [1, 1, 1],
            [13, 17, 33],
            [40, 600, 100],
            [130, 33, 270],
            [7, 0, 5],
        ] {
            let (x, y) = (values(m * k * 3, 1), values(k * n * 3, 2));
            for strides in [[k, 1], [1, m], [2 * k, 2], [0, 1]] {
                for other in [[n, 1], [1, k], [3 * n, 3], [1, 0]] {
                    let a = Matrix { data: &x, strides };
                    let b = Matrix {
                        data: &y,
                        strides: other,
                    };
                    let at = |matrix: Matrix<f32>, i: usize, j: usize| {
                        f64::from(matrix.data[i * matrix.strides[0] + j * matrix.strides[1]])
                    };
                    let exact = (0..m * n).map(|place| {
                        let (i, j) = (place / n, place % n);
                        (0..k).map(|l| at(a, i, l) * at(b, l, j)).sum()
                    });
                    let exact: Vec<f64> = exact.collect();
                    for level in Level::available() {
                        let [one, three] = pools.each_ref().map(|pool| {
                            let mut out = vec![f32::NAN; m * n];
                            let (a, b) = (Batch::one(a), Batch::one(b));
                            multiply(level, pool, [m, k, n], &a, &b, &mut out);
                            out
                        });
                        assert_eq!(one, three);
                        for (sum, exact) in one.into_iter().zip(&exact) {
                            let error = (f64::from(sum) - exact).abs();
                            assert!(error <= 1e-6 * (k as f64 + 1.0), "{error} at {level}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn tasks_are_large_and_shared_evenly() {
        for threads in [1, 2, 3, 7, 64] {
            for (batches, [m, n]) in [
                (1, [1024, 384]),
                (24, [256, 64]),
                (1, [33, 24576]),
                (3, [5000, 1]),
            ] {
                let [height, width] = task(threads, batches, [m, n]);
                assert!(height >= 1 && width >= 1 && height <= LARGEST[0] + STEP[0]);
                assert!(width <= LARGEST[1] + STEP[1]);
            }
        }
        assert_eq!(task(2, 1, [1024, 384]), [516, 384]);
        assert_eq!(task(2, 1, [1024, 24576]), [1032, 2048]);
    }
}
