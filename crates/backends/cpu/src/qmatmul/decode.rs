//! Products with a few rows of activations: weights are streamed from memory once, row by row.

use super::operand::{Matrix, Operand};
use super::simd::{Kernel, Simd};
use super::tile::Tile;

/// The most rows of activations for which this beats unpacking weights into panels.
pub(crate) const MAX_TOKENS: usize = 4;

/// How far ahead of its use memory is asked for.
const AHEAD: usize = 1024;

/// The product of the rows of weights from `first` on, one for each of `y`'s columns, with all rows of activations, one for each of `y`'s rows.
pub(crate) struct Decode<'a, O: Operand> {
    pub(crate) weights: Matrix<'a, O>,
    pub(crate) first: usize,
    /// The first slabs of all rows of activations, then their second slabs and so on.
    pub(crate) x: &'a [O::X],
    pub(crate) y: Tile<'a>,
}

impl<O: Operand> Kernel for Decode<'_, O> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.y.rows() {
            1 => self.stream::<S, 1>(s),
            2 => self.stream::<S, 2>(s),
            3 => self.stream::<S, 3>(s),
            MAX_TOKENS => self.stream::<S, MAX_TOKENS>(s),
            tokens => unreachable!("{tokens} rows of activations are too many to stream weights"),
        }
    }
}

impl<O: Operand> Decode<'_, O> {
    #[inline(always)]
    fn stream<S: Simd, const T: usize>(mut self, s: S) {
        let (x, _) = self.x.as_chunks::<T>();
        for column in 0..self.y.columns() {
            let (slabs, rest) = self.weights.row(self.first + column);
            let mut sums = [s.splat_f32(0.0); T];
            for (slab, x) in slabs.iter().zip(x) {
                let start: *const u8 = std::ptr::from_ref(slab).cast();
                for line in (0..size_of::<O::Slab>()).step_by(64) {
                    s.prefetch(start.wrapping_add(AHEAD + line));
                }
                O::dot(s, slab, x, &mut sums);
            }
            if !rest.is_empty() {
                O::dot(s, &Matrix::<O>::fill(rest), &x[slabs.len()], &mut sums);
            }
            for (token, sum) in sums.into_iter().enumerate() {
                self.y.row(token)[column] = s.sum(sum);
            }
        }
    }
}
