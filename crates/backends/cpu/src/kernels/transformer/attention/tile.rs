//! Attention of some queries over a part of the keys, block by block of keys. The largest score so
//! far, the sum of weights, and the weighted sum of values go along. See [Milakov and Gimelshein
//! 2018](https://arxiv.org/abs/1805.02867),
//! [Dao et al. 2022](https://arxiv.org/abs/2205.14135)).

use std::ops::Range;

use super::cached::{Cached, Rows};
use super::product::LANES;
use crate::math::Real;
use crate::simd::{Arithmetic, Kernel, Simd};

/// Keys of a block: with their values they stay in the cache while the queries pass.
pub(super) const KEYS: usize = 128;
/// Queries that pass together: their scores stay in the nearest cache.
pub(super) const QUERIES: usize = 32;
/// Keys between places where blocks may begin: as many as products take along their sums.
const STEP: usize = 32;

/// The scores of a query with a block of keys, then their weights.
pub(super) type Score = [f32; KEYS];

/// Computation of the two products.
pub(super) trait Products {
    /// Takes over rows of `width` as queries.
    fn queries<S: Simd>(&mut self, s: S, rows: &[f32], width: usize);
    /// Takes over the `count` keys from `first` on.
    fn keys<S: Simd, T: Cached>(&mut self, s: S, rows: &Rows<T>, first: usize, count: usize);
    /// Takes over the `count` values from `first` on, of which the first `hidden` are 0: no query sees them.
    fn values<S: Simd, T: Cached>(
        &mut self,
        s: S,
        rows: &Rows<T>,
        first: usize,
        count: usize,
        hidden: usize,
    );
    /// Products of at most [`QUERIES`] queries with the keys, and anything behind them.
    fn score<S: Simd>(&mut self, s: S, rows: Range<usize>, scores: &mut [Score]);
    /// `sums += weights · values`, in rows of whole vectors. Weights behind the last key are zero.
    fn sum<S: Simd>(&mut self, s: S, weights: &[Score], sums: &mut [f32]);
}

/// Changes to a score before the softmax.
#[derive(Clone, Copy)]
pub(super) struct Scoring {
    /// Factor of the score,
    pub(super) scale: f32,
    /// then becomes `c · tanh(score / c)`.
    pub(super) soft_cap: Option<f32>,
}

/// State of a query's weights after some keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Total {
    /// The largest score.
    pub(super) largest: f32,
    /// The sum of `e^(score − largest)`.
    pub(super) sum: f32,
}

impl Total {
    /// State before any key.
    pub(super) const NONE: Self = Self {
        largest: f32::NEG_INFINITY,
        sum: 0.0,
    };

    /// Base of the weights: the largest score, unless none is above −∞.
    #[inline(always)]
    pub(super) fn base(self) -> f32 {
        if self.largest == f32::NEG_INFINITY {
            0.0
        } else {
            self.largest
        }
    }
}

/// Some queries that share keys and values, and a part of those.
pub(super) struct Tile<'a, T, P, V, M> {
    /// Rows of the keys' width.
    pub(super) queries: &'a [f32],
    pub(super) keys: Rows<'a, T>,
    pub(super) values: Rows<'a, T>,
    /// Keys to go through.
    pub(super) range: Range<usize>,
    pub(super) scoring: Scoring,
    /// Keys that a query sees.
    pub(super) visible: V,
    /// Adds the mask of a query, from a key on, to scores.
    pub(super) mask: M,
    pub(super) products: &'a mut P,
    /// Room for those of [`QUERIES`].
    pub(super) scores: &'a mut [Score],
    /// The results, for each query: its weights' total,
    pub(super) totals: &'a mut [Total],
    /// and a row of `Σ weight · value`, of whole vectors.
    pub(super) sums: &'a mut [f32],
}

impl<T, P, V, M> Kernel for Tile<'_, T, P, V, M>
where
    T: Cached,
    P: Products,
    V: Fn(usize) -> Range<usize>,
    M: Fn(usize, usize, &mut [f32]),
{
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            products,
            scores,
            totals,
            sums,
            scoring,
            ..
        } = self;
        let m = Arithmetic::of(s);
        let width = self.values.width.next_multiple_of(LANES);
        totals.fill(Total::NONE);
        sums.fill(0.0);
        products.queries(s, self.queries, self.keys.width);
        let Range { start, end } = self.range;
        let mut next = start - start % STEP;
        while next < end {
            let first = next;
            // Blocks end at the same keys wherever they begin, so that sums have the same bits.
            next = (first / KEYS + 1) * KEYS;
            let count = next.min(end) - first;
            products.keys(s, &self.keys, first, count);
            products.values(s, &self.values, first, count, start.saturating_sub(first));
            for from in (0..totals.len()).step_by(QUERIES) {
                let rows = from..totals.len().min(from + QUERIES);
                let seen = |row: usize| {
                    let Range { start, end } = (self.visible)(row);
                    let [start, end] = [start, end].map(|key| key.saturating_sub(first).min(count));
                    start..end
                };
                if rows.clone().all(|row| seen(row).is_empty()) {
                    continue;
                }
                let sums = &mut sums[from * width..][..rows.len() * width];
                products.score(s, rows.clone(), scores);
                let scores = &mut scores[..rows.len()];
                let lines = scores.iter_mut().zip(sums.chunks_exact_mut(width));
                for (row, (scores, sums)) in rows.zip(lines) {
                    let seen = seen(row);
                    scores[..seen.start].fill(0.0);
                    scores[seen.end..].fill(0.0);
                    let before = seen.start;
                    let scores = &mut scores[seen];
                    for x in scores.iter_mut() {
                        *x *= scoring.scale;
                    }
                    if let Some(cap) = scoring.soft_cap {
                        for x in scores.iter_mut() {
                            *x = cap * (*x / cap).hyperbolic_tangent(m);
                        }
                    }
                    (self.mask)(row, first + before, scores);
                    weigh(s, scores, &mut totals[row], sums);
                }
                products.sum(s, scores, sums);
            }
        }
    }
}

/// Turns scores into weights relative to the largest score so far. Earlier sums are rescaled to it.
#[inline(always)]
fn weigh<S: Simd>(s: S, scores: &mut [f32], total: &mut Total, sums: &mut [f32]) {
    let m = Arithmetic::of(s);
    let largest = largest(s, scores).max(total.largest);
    let before = std::mem::replace(&mut total.largest, largest);
    let base = total.base();
    if largest > before {
        let factor = (before - base).exponential_of_negative(m);
        total.sum *= factor;
        for sum in sums.iter_mut() {
            *sum *= factor;
        }
    }
    for x in scores.iter_mut() {
        *x = (*x - base).exponential_of_negative(m);
    }
    let (chunks, rest) = scores.as_chunks::<LANES>();
    let mut sum = s.splat_f32(0.0);
    for chunk in chunks {
        sum = s.add_f32(sum, s.load_f32(chunk));
    }
    total.sum += s.sum(sum) + rest.iter().sum::<f32>();
}

/// The largest of some scores, among which NaN does not count.
#[inline(always)]
fn largest<S: Simd>(s: S, scores: &[f32]) -> f32 {
    let mut largest = s.splat_f32(f32::NEG_INFINITY);
    let (chunks, rest) = scores.as_chunks::<LANES>();
    for chunk in chunks {
        largest = s.larger(s.load_f32(chunk), largest);
    }
    let mut lanes = [f32::NEG_INFINITY; LANES];
    lanes[..rest.len()].copy_from_slice(rest);
    s.store_f32(s.larger(s.load_f32(&lanes), largest), &mut lanes);
    for half in [8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            *low = if *high > *low { *high } else { *low };
        }
    }
    lanes[0]
}
