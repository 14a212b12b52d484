//! The products of attention by vector instructions, in single precision.

use std::ops::Range;

use super::cached::{Cached, Rows};
use super::product::{LANES, Left, multiply};
use super::room;
use super::tile::{KEYS, Products, Score};
use crate::simd::Simd;

/// Elements of queries and keys that are multiplied in one go.
const DEPTH: usize = size_of::<Left>() / size_of::<f32>();

/// Operands in single precision.
#[derive(Default)]
pub(super) struct Vectors {
    /// Rows of the queries' first elements, then rows of their next.
    queries: Vec<Left>,
    /// Number of the queries, and of their elements.
    shape: [usize; 2],
    keys: Vec<[f32; LANES]>,
    values: Vec<[f32; LANES]>,
    /// Keys of the block.
    count: usize,
}

/// Parts of `width` elements that are multiplied in one go.
fn parts(width: usize) -> impl Iterator<Item = Range<usize>> {
    (0..width)
        .step_by(DEPTH)
        .map(move |start| start..width.min(start + DEPTH))
}

impl Products for Vectors {
    #[inline(always)]
    fn queries<S: Simd>(&mut self, _: S, rows: &[f32], width: usize) {
        let count = rows.len() / width.max(1);
        self.shape = [count, width];
        let queries = room(&mut self.queries, width.div_ceil(DEPTH) * count);
        for (part, queries) in parts(width).zip(queries.chunks_exact_mut(count)) {
            for (query, row) in queries.iter_mut().zip(rows.chunks_exact(width)) {
                query[..part.len()].copy_from_slice(&row[part.clone()]);
            }
        }
    }

    #[inline(always)]
    fn keys<S: Simd, T: Cached>(&mut self, s: S, rows: &Rows<T>, first: usize, count: usize) {
        self.count = count;
        let panels = count.div_ceil(LANES);
        let mut keys = room(&mut self.keys, panels * rows.width);
        for part in parts(rows.width) {
            let (these, rest) = keys.split_at_mut(panels * part.len());
            rows.as_columns(s, (first, count), part, these);
            keys = rest;
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
        let panels = rows.width.div_ceil(LANES);
        let values = room(&mut self.values, count * panels);
        rows.as_rows(s, (first, count), values);
        for panel in values.chunks_exact_mut(count) {
            panel[..hidden].fill([0.0; LANES]);
        }
    }

    #[inline(always)]
    fn score<S: Simd>(&mut self, s: S, rows: Range<usize>, scores: &mut [Score]) {
        let [count, width] = self.shape;
        let panels = self.count.div_ceil(LANES);
        let out = scores[..rows.len()].as_flattened_mut();
        if width == 0 {
            out.fill(0.0);
        }
        let mut keys = &self.keys[..];
        for (i, part) in parts(width).enumerate() {
            let (these, rest) = keys.split_at(panels * part.len());
            let queries = &self.queries[i * count..][rows.clone()];
            multiply(s, queries, (these, part.len()), (out, KEYS), i > 0);
            keys = rest;
        }
    }

    #[inline(always)]
    fn sum<S: Simd>(&mut self, s: S, weights: &[Score], sums: &mut [f32]) {
        let width = sums.len() / weights.len();
        let values = &self.values[..self.count * width / LANES];
        multiply(s, weights, (values, self.count), (sums, width), true);
    }
}
