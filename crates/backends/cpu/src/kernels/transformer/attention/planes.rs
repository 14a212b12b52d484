//! The products of attention by AMX: each factor is the sum of two bf16. The product of the two
//! smaller terms is left out, so three products are made. Halves of the cache are such sums
//! exactly.
//!
//! A word of a tile holds two values that are 16 apart along the sums. So no value has to change
//! its lane.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::cached::{Cached, Rows};
use super::product::LANES;
use super::room;
use super::tile::{Products, QUERIES, Score};
use crate::simd::Simd;
use crate::simd::amx::{Amx, Bytes, ROWS};

/// Values along the sums in a tile.
const DEPTH: usize = 2 * LANES;

/// The rows of a tile.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Words([[u32; LANES]; ROWS]);

impl Words {
    fn bytes(&self) -> &Bytes {
        bytemuck::cast_ref(&self.0)
    }
}

/// A tile of the larger parts of values and one of the smaller.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Split([Words; 2]);

/// Products of two left with two right operands.
type Sums = [[[[f32; LANES]; ROWS]; 2]; 2];

/// Operands as tiles: for each 16 rows or columns those along the sums.
pub(super) struct Planes {
    amx: Amx,
    queries: Vec<Split>,
    /// Elements of a query.
    width: usize,
    keys: Vec<Split>,
    values: Vec<Split>,
    /// Keys of the block.
    count: usize,
    /// Weights of the first 16 queries, then of the others.
    weights: Vec<Split>,
}

impl Planes {
    pub(super) fn new(amx: Amx) -> Self {
        Self {
            amx,
            queries: Vec::new(),
            width: 0,
            keys: Vec::new(),
            values: Vec::new(),
            count: 0,
            weights: Vec::new(),
        }
    }
}

/// Two sixteens of values as words of both parts.
#[inline(always)]
fn split(first: &[f32; LANES], second: &[f32; LANES]) -> [[u32; LANES]; 2] {
    const UPPER: u32 = 0xFFFF_0000;
    let (mut large, mut small) = ([0; LANES], [0; LANES]);
    for (i, (x, y)) in first.iter().zip(second).enumerate() {
        let (x_bits, y_bits) = (x.to_bits() & UPPER, y.to_bits() & UPPER);
        large[i] = x_bits >> 16 | y_bits;
        // The rest is exact; it is rounded to the nearest bf16.
        let rest = |x: f32, bits: u32| (x - f32::from_bits(bits)).to_bits().wrapping_add(0x8000);
        small[i] = rest(*x, x_bits) >> 16 | rest(*y, y_bits) & UPPER;
    }
    [large, small]
}

/// Elements `32 · step` and up of a row, zeros behind its end.
#[inline(always)]
fn part(row: &[f32], step: usize) -> [[f32; LANES]; 2] {
    let mut part = [[0.0; LANES]; 2];
    let row = &row[step * DEPTH..];
    let len = row.len().min(DEPTH);
    part.as_flattened_mut()[..len].copy_from_slice(&row[..len]);
    part
}

/// Elements `16 · i` and up of a row of the cache, zeros behind its end.
#[inline(always)]
fn sixteen<S: Simd, T: Cached>(s: S, row: &[T], i: usize) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    if i * LANES < row.len() * T::ELEMENTS {
        s.store_f32(T::lanes(s, row, i), &mut lanes);
    }
    lanes
}

/// The products of two left with two right operands, of as many tiles along the sums.
#[inline(always)]
fn multiply(amx: Amx, [a0, a1]: [&[Split]; 2], [b0, b1]: [&[Split]; 2]) -> Sums {
    // SAFETY: tiles are taken here and by products of matrices, none of which calls the other.
    let mut tiles = unsafe { amx.tiles() };
    for ((a0, a1), (b0, b1)) in a0.iter().zip(a1).zip(b0.iter().zip(b1)) {
        for [a, b] in [[0, 0], [0, 1], [1, 0]] {
            tiles.load::<4>(a0.0[a].bytes());
            tiles.load::<5>(a1.0[a].bytes());
            tiles.load::<6>(b0.0[b].bytes());
            tiles.load::<7>(b1.0[b].bytes());
            tiles.dot_bf16::<0, 4, 6>();
            tiles.dot_bf16::<1, 4, 7>();
            tiles.dot_bf16::<2, 5, 6>();
            tiles.dot_bf16::<3, 5, 7>();
        }
    }
    let mut sums = [[Words::zeroed(); 2]; 2];
    tiles.store::<0>(bytemuck::cast_mut(&mut sums[0][0].0));
    tiles.store::<1>(bytemuck::cast_mut(&mut sums[0][1].0));
    tiles.store::<2>(bytemuck::cast_mut(&mut sums[1][0].0));
    tiles.store::<3>(bytemuck::cast_mut(&mut sums[1][1].0));
    bytemuck::cast(sums)
}

impl Products for Planes {
    #[inline(always)]
    fn queries<S: Simd>(&mut self, _: S, rows: &[f32], width: usize) {
        self.width = width;
        let (count, steps) = (rows.len() / width, width.div_ceil(DEPTH));
        let sixteens = count.next_multiple_of(QUERIES) / ROWS;
        let queries = room(&mut self.queries, sixteens * steps);
        for (i, splits) in queries.chunks_exact_mut(steps).enumerate() {
            for (r, row) in rows
                .chunks_exact(width)
                .skip(i * ROWS)
                .take(ROWS)
                .enumerate()
            {
                for (step, Split([large, small])) in splits.iter_mut().enumerate() {
                    let [first, second] = part(row, step);
                    [large.0[r], small.0[r]] = split(&first, &second);
                }
            }
        }
    }

    #[inline(always)]
    fn keys<S: Simd, T: Cached>(&mut self, s: S, rows: &Rows<T>, first: usize, count: usize) {
        self.count = count;
        let steps = rows.width.div_ceil(DEPTH);
        let sixteens = count.next_multiple_of(DEPTH) / LANES;
        let keys = room(&mut self.keys, sixteens * steps);
        for (i, splits) in keys.chunks_exact_mut(steps).enumerate() {
            for (step, Split([large, small])) in splits.iter_mut().enumerate() {
                let mut parts = [[s.splat(0); LANES]; 2];
                let [larges, smalls] = &mut parts;
                let here = first + i * LANES..first + count.min((i + 1) * LANES);
                for (key, (large, small)) in here.zip(larges.iter_mut().zip(smalls)) {
                    let row = rows.row(key);
                    let start = sixteen(s, row, 2 * step);
                    let words = split(&start, &sixteen(s, row, 2 * step + 1));
                    *large = s.load(bytemuck::cast_ref(&words[0]));
                    *small = s.load(bytemuck::cast_ref(&words[1]));
                }
                for (part, words) in parts.into_iter().zip([large, small]) {
                    for (word, out) in s.transpose(part).into_iter().zip(&mut words.0) {
                        s.store(word, bytemuck::cast_mut(out));
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn values<S: Simd, T: Cached>(
        &mut self,
        s: S,
        rows: &Rows<T>,
        first: usize,
        count: usize,
        hidden: usize,
    ) {
        let steps = count.div_ceil(DEPTH);
        let sixteens = rows.width.next_multiple_of(DEPTH) / LANES;
        let values = room(&mut self.values, sixteens * steps);
        for (i, splits) in values.chunks_exact_mut(steps).enumerate() {
            for (step, Split([large, small])) in splits.iter_mut().enumerate() {
                for w in 0..ROWS {
                    let mut pair = [[0.0; LANES]; 2];
                    for (half, lanes) in pair.iter_mut().enumerate() {
                        let key = step * DEPTH + half * LANES + w;
                        if (hidden..count).contains(&key) {
                            *lanes = sixteen(s, rows.row(first + key), i);
                        }
                    }
                    [large.0[w], small.0[w]] = split(&pair[0], &pair[1]);
                }
            }
        }
    }

    #[inline(always)]
    fn score<S: Simd>(&mut self, _: S, rows: Range<usize>, scores: &mut [Score]) {
        let steps = self.width.div_ceil(DEPTH);
        let queries = self.queries[rows.start / ROWS * steps..].chunks_exact(steps);
        let [Some(above), Some(below)] = [queries.clone().next(), queries.clone().nth(1)] else {
            return;
        };
        for pair in 0..self.count.div_ceil(DEPTH) {
            let keys = &self.keys[2 * pair * steps..][..2 * steps];
            let (left, right) = keys.split_at(steps);
            let sums = multiply(self.amx, [above, below], [left, right]);
            for (sums, scores) in sums.iter().zip(scores.as_chunks_mut::<ROWS>().0) {
                for (r, scores) in scores.iter_mut().enumerate() {
                    let scores = &mut scores.as_chunks_mut::<LANES>().0[2 * pair..][..2];
                    scores[0] = sums[0][r];
                    scores[1] = sums[1][r];
                }
            }
        }
    }

    #[inline(always)]
    fn sum<S: Simd>(&mut self, _: S, weights: &[Score], sums: &mut [f32]) {
        let (steps, width) = (self.count.div_ceil(DEPTH), sums.len() / weights.len());
        let operands = room(&mut self.weights, 2 * steps);
        for (row, weights) in weights.iter().enumerate() {
            let splits = &mut operands[row / ROWS * steps..][..steps];
            for (step, Split([large, small])) in splits.iter_mut().enumerate() {
                let [first, second] = part(weights, step);
                [large.0[row % ROWS], small.0[row % ROWS]] = split(&first, &second);
            }
        }
        let (above, below) = operands.split_at(steps);
        for pair in 0..width.div_ceil(DEPTH) {
            let values = &self.values[2 * pair * steps..][..2 * steps];
            let (left, right) = values.split_at(steps);
            let products = multiply(self.amx, [above, below], [left, right]);
            for (row, sums) in sums.chunks_exact_mut(width).enumerate() {
                let products = &products[row / ROWS];
                let sums = sums.as_chunks_mut::<LANES>().0.iter_mut().skip(2 * pair);
                for (sums, products) in sums.zip(products) {
                    for (sum, product) in sums.iter_mut().zip(products[row % ROWS]) {
                        *sum += product;
                    }
                }
            }
        }
    }
}
