//! Matrix products of floats by AMX, which knows one: bf16 times bf16, summed in f32. Products of
//! bf16 also use the vector instruction that does the same.
//!
//! Other types are split into planes of bf16 that add up to them ([`pack`]): an f16 is exactly two,
//! an f32 exactly three. A product is the sum of the products of the planes ([`block`]). Products
//! that are smaller than the rounding error are left out. Two f32 have six products left, with a
//! relative error of 2⁻²⁵ before summation. They still take less than half the time of
//! multiply-adds in f32. Sums are of 16 neighbours first, so that they lose less than one addition
//! after the other.
//!
//! Planes cannot hold infinities, NaN and products near the ends of f32's range. Packing notices
//! them, and leaves them to the caller. AMX counts denormal numbers as zero. So an element or a
//! product below 2⁻¹²⁶ is lost, if the largest elements of both operands are above 2⁻⁴⁰. The loss
//! is at most 2⁻⁴⁶ of the product of those two.

mod block;
mod pack;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::SharedMut;
use crate::pool::Pool;
use crate::product::{Batch, Matrix};
pub(crate) use block::Unit;
use block::{Sums, write};
pub(crate) use pack::Number;
use pack::{DEPTH, Pair, Role, SIDE, is_tame, pack};

/// Tiles along the sums whose panels, of `planes` planes, stay in a first-level cache. With one
/// plane each tile of `b` is read once, so panels of `a` alone count; else both count.
const fn deep(planes: usize) -> usize {
    if planes == 1 { 16 } else { 4 }
}

/// Pairs of tiles of `a` that are packed at once: 32 MiB.
const PACKED: usize = 16 << 10;

thread_local! {
    /// The operand `a` of this thread's product.
    static LEFT: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
    /// Part of `b` for this thread's task.
    static RIGHT: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
    /// The sums of this thread's task.
    static SUMS: RefCell<Vec<Sums>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether there are enough sums in each direction to fill tiles.
pub(crate) fn pays([m, k, n]: [usize; 3]) -> bool {
    m.min(n).min(k) >= SIDE && m * n >= 4 * SIDE * SIDE
}

/// Writes the products of `a [m, k]` with `b [k, n]`, as `P` and `Q` planes, to `out [m, n]`, for
/// all of a batch. False, with anything in `out`, if the planes cannot hold the operands.
///
/// # Panics
/// Panics unless `out` has room for the results, or if an operand has too few elements.
pub(crate) fn multiply<A: Number, B: Number, O: Number, const P: usize, const Q: usize>(
    unit: impl Unit,
    pool: &Pool,
    sizes: [usize; 3],
    a: &Batch<A>,
    b: &Batch<B>,
    out: &mut [O],
) -> bool {
    let [m, k, n] = sizes;
    assert_eq!(out.len(), a.len() * m * n, "results of a product");
    if out.is_empty() {
        return true;
    }
    LEFT.with_borrow_mut(|left| {
        Gemm::<_, A, B, O, P, Q> {
            unit,
            pool,
            sizes,
            a,
            b,
            out: SharedMut::new(out),
            steps: k.div_ceil(DEPTH),
            task: task(P.max(Q), pool, a.len(), sizes),
            peaks: Default::default(),
        }
        .run(left)
    })
}

/// Rows and columns of a task of `batches` products of some planes. Sums do not depend on it.
fn task(planes: usize, pool: &Pool, batches: usize, [m, _, n]: [usize; 3]) -> [usize; 2] {
    // Sums, and `b`'s part of them, stay in a second-level cache.
    let [height, width] = if planes == 1 { [512, 384] } else { [512, 256] };
    let even = |size: usize, most| size.div_ceil(size.div_ceil(most));
    let (mut height, width) = (even(m, height), even(n, width).next_multiple_of(SIDE));
    let across = n.div_ceil(width);
    // Rather than few tasks, some whose columns of `b` are packed more than once.
    while batches * m.div_ceil(height) * across < pool.threads() && height > SIDE {
        height = height.div_ceil(2);
    }
    [height.next_multiple_of(SIDE), width]
}

struct Gemm<'a, U, A, B, O, const P: usize, const Q: usize> {
    unit: U,
    pool: &'a Pool,
    sizes: [usize; 3],
    a: &'a Batch<'a, A>,
    b: &'a Batch<'a, B>,
    out: SharedMut<'a, O>,
    /// Tiles along the sums.
    steps: usize,
    task: [usize; 2],
    /// The bits of the largest magnitudes of `a` and `b`.
    peaks: [AtomicU32; 2],
}

impl<U: Unit, A: Number, B: Number, O: Number, const P: usize, const Q: usize>
    Gemm<'_, U, A, B, O, P, Q>
{
    fn run(self, left: &mut Vec<Pair>) -> bool {
        let [m, _, n] = self.sizes;
        let [height, width] = self.task;
        let (down, across) = (m.div_ceil(height), n.div_ceil(width));
        // The panels of as many rows as a task has.
        let panels = height / SIDE;
        let pairs = panels * self.steps * P;
        let (strips, together) = (self.a.len() * down, (PACKED / pairs.max(1)).max(1));
        for first in (0..strips).step_by(together) {
            let strips = first..strips.min(first + together);
            let needed = strips.len() * pairs;
            if left.len() < needed {
                left.resize(needed, Pair::ZERO);
            }
            let left = &mut left[..needed];
            if !left.is_empty() {
                self.pool
                    .for_each_chunk(left, self.steps * P, &|start, panel| {
                        let panel_index = start / (self.steps * P);
                        let strip = first + panel_index / panels;
                        let row = strip % down * height + panel_index % panels * SIDE;
                        if row < m {
                            self.pack::<A, P>(
                                self.a.get(strip / down),
                                row,
                                m,
                                Role::Left,
                                0,
                                panel,
                            );
                        }
                    });
            }
            let left = &left[..];
            self.pool.run(strips.len() * across, &|task| {
                // A thread goes on with the rows that it has just packed.
                let (strip, column) = (task / across, task % across * width);
                let left = &left[strip * pairs..][..pairs];
                let strip = first + strip;
                self.compute(left, strip / down, strip % down * height, column);
            });
        }
        (self.peaks.into_iter()).all(|peak| is_tame(f32::from_bits(peak.into_inner())))
    }

    /// Packs a panel: the rows of `a` or columns of `b` from `first` on, of `count`. Along the sums
    /// it has the tiles from `step` on.
    fn pack<T: Number, const N: usize>(
        &self,
        matrix: Matrix<T>,
        first: usize,
        count: usize,
        role: Role,
        step: usize,
        panel: &mut [Pair],
    ) {
        let (from, strides) = match role {
            Role::Left => (matrix.from(first, step * DEPTH), matrix.strides),
            Role::Right => {
                let [inner, outer] = matrix.strides;
                (matrix.from(step * DEPTH, first), [outer, inner])
            }
        };
        let sizes = [count - first, self.sizes[1] - step * DEPTH];
        let vectors = self.unit.vectors();
        // SAFETY: the machine has the vector instructions.
        let peak = unsafe { pack::<T, N>(vectors, from.data, strides, sizes, role, panel) };
        let highest = &self.peaks[role as usize];
        // It seldom is: threads would wait for each other.
        if peak > highest.load(Ordering::Relaxed) {
            highest.fetch_max(peak, Ordering::Relaxed);
        }
    }

    /// The products of the panels of `left` with a task's columns from `column` on. The panels
    /// belong to rows from `row` on.
    fn compute(&self, left: &[Pair], batch: usize, row: usize, column: usize) {
        let [m, _, n] = self.sizes;
        let rows = self.task[0].min(m - row).div_ceil(SIDE);
        let columns = self.task[1].min(n - column).div_ceil(SIDE);
        let deep = const { deep(if P > Q { P } else { Q }) };
        RIGHT.with_borrow_mut(|right| {
            SUMS.with_borrow_mut(|sums| {
                right.resize(right.len().max(columns * deep * Q), Pair::ZERO);
                sums.resize(sums.len().max(rows * columns), Sums::ZERO);
                // SAFETY: this is the only place that takes tiles, and nothing below comes here.
                let mut tiles = unsafe { self.unit.tiles() };
                // Without any steps sums are zero all the same.
                for step in (0..self.steps.max(1)).step_by(deep) {
                    let len = deep.min(self.steps - step);
                    let last = step + len == self.steps;
                    // Neighbours in memory one after the other: that is read faster.
                    let b = self.b.get(batch);
                    let by_rows = b.strides[1] <= b.strides[0];
                    for at in 0..columns * len {
                        let (j, k) = match by_rows {
                            true => (at % columns, at / columns),
                            false => (at / len, at % len),
                        };
                        let pairs = &mut right[(j * len + k) * Q..][..Q];
                        self.pack::<B, Q>(b, column + j * SIDE, n, Role::Right, step + k, pairs);
                    }
                    for i in 0..rows {
                        let panel = |i: usize| &left[(i * self.steps + step) * P..][..len * P];
                        let next = if i + 1 < rows { panel(i + 1) } else { &[] };
                        let share = next.len().div_ceil(columns).max(1);
                        let mut ahead = next.chunks(share);
                        for j in 0..columns {
                            let sums = &mut sums[i * columns + j];
                            let right = &right[j * len * Q..][..len * Q];
                            let ahead = ahead.next().unwrap_or_default();
                            let panels = [panel(i), right];
                            let first = step == 0;
                            self.unit
                                .multiply::<P, Q>(&mut tiles, panels, sums, first, ahead);
                            if last {
                                let (row, column) = (row + i * SIDE, column + j * SIDE);
                                // SAFETY: the rectangle lies within the result and is this task's
                                // alone; machines with a unit have the vector instructions.
                                unsafe {
                                    let out = self.out.at((batch * m + row) * n + column);
                                    write(sums, out, n, [m - row, n - column]);
                                }
                            }
                        }
                    }
                }
            });
        });
    }
}

#[cfg(test)]
mod tests;
