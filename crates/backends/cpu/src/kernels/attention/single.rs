//! Attention of a single query for each head, as a decode step has it: straight from the
//! cache, of which every element is read once for each query, and without memory to be taken
//! by whichever thread comes along.

use super::super::softmax::InPlace;
use crate::qmatmul::{Float, Kernel, Simd};

/// Lanes of a vector.
const LANES: usize = 16;
/// Vectors of a result that grow side by side.
const SUMS: usize = 4;

/// The queries of the heads that share keys and values.
pub(super) struct Single<'a, T> {
    /// Rows of `width`.
    pub(super) queries: &'a [f32],
    pub(super) width: usize,
    /// Rows of `width`, as many as are visible.
    pub(super) keys: &'a [T],
    /// As many rows.
    pub(super) values: &'a [T],
    pub(super) scale: f32,
    pub(super) soft_cap: Option<f32>,
    /// Added to the scores: a row for each query, of which the first elements count.
    pub(super) mask: Option<&'a [f32]>,
    /// Room for the scores of each query.
    pub(super) scores: &'a mut [f32],
    /// A row for each query.
    pub(super) out: &'a mut [f32],
}

impl<T: Float> Kernel for Single<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let queries = self.queries.chunks_exact(self.width);
        let (rows, seen) = (queries.len(), self.keys.len() / self.width);
        let scores = &mut self.scores[..rows * seen];
        for (j, key) in self.keys.chunks_exact(self.width).enumerate() {
            for (row, query) in queries.clone().enumerate() {
                scores[row * seen + j] = self.scale * dot(s, query, key);
            }
        }
        let value_width = self.out.len() / rows;
        let outs = self.out.chunks_exact_mut(value_width.max(1));
        for (row, (scores, out)) in scores.chunks_exact_mut(seen).zip(outs).enumerate() {
            if let Some(cap) = self.soft_cap {
                scores.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
            }
            if let Some(mask) = self.mask {
                let mask = &mask[row * (mask.len() / rows)..];
                scores.iter_mut().zip(mask).for_each(|(x, m)| *x += m);
            }
            InPlace(&mut *scores).run(s);
            weigh(s, scores, self.values, out);
        }
    }
}

/// `Σ query · key`.
#[inline(always)]
fn dot<S: Simd, T: Float>(s: S, query: &[f32], key: &[T]) -> f32 {
    let (queries, query) = query.as_chunks::<LANES>();
    let (keys, key) = key.as_chunks::<LANES>();
    let mut sum = s.splat_f32(0.0);
    for (query, key) in queries.iter().zip(keys) {
        sum = s.mul_add(sum, s.load_f32(query), T::load(s, key));
    }
    if !query.is_empty() {
        sum = s.mul_add(sum, s.load_f32(&filled(query)), T::load(s, &filled(key)));
    }
    s.sum(sum)
}

/// `out = Σ weight · row`.
#[inline(always)]
fn weigh<S: Simd, T: Float>(s: S, weights: &[f32], rows: &[T], out: &mut [f32]) {
    let width = out.len();
    for (i, out) in out.chunks_mut(SUMS * LANES).enumerate() {
        let start = i * SUMS * LANES;
        let mut sums = [s.splat_f32(0.0); SUMS];
        for (weight, row) in weights.iter().zip(rows.chunks_exact(width)) {
            let weight = s.splat_f32(*weight);
            let (lanes, rest) = row[start..][..out.len()].as_chunks::<LANES>();
            for (sum, lanes) in sums.iter_mut().zip(lanes) {
                *sum = s.mul_add(*sum, weight, T::load(s, lanes));
            }
            if !rest.is_empty() {
                let sum = &mut sums[lanes.len()];
                *sum = s.mul_add(*sum, weight, T::load(s, &filled(rest)));
            }
        }
        for (sum, out) in sums.into_iter().zip(out.chunks_mut(LANES)) {
            let mut lanes = [0.0; LANES];
            s.store_f32(sum, &mut lanes);
            out.copy_from_slice(&lanes[..out.len()]);
        }
    }
}

/// Fewer than a vector's lanes, with zeros behind.
#[inline(always)]
fn filled<T: bytemuck::Zeroable + Copy>(rest: &[T]) -> [T; LANES] {
    let mut lanes = [T::zeroed(); LANES];
    lanes[..rest.len()].copy_from_slice(rest);
    lanes
}
