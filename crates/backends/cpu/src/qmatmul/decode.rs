//! Products with a few rows of activations: weights are streamed from memory once, row by row.

use super::operand::{Matrix, Operand};
use super::simd::{Kernel, Simd};
use super::tile::Tile;

/// The most rows of activations for which this beats unpacking weights into panels.
pub(crate) const MAX_TOKENS: usize = 4;

/// How far ahead of its use memory is asked for.
const AHEAD: usize = 1536;

/// The product of the rows of weights from `first` on, one for each of `y`'s columns, with all rows
/// of activations, one for each of `y`'s rows.
pub(crate) struct Decode<'a, O: Operand> {
    pub(crate) weights: Matrix<'a, O>,
    pub(crate) first: usize,
    /// The first slabs of all rows of activations, then their second slabs and so on.
    pub(crate) x: &'a [O::X],
    pub(crate) y: Tile<'a>,
}

impl<O: Operand> Kernel for Decode<'_, O> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        for column in 0..self.y.columns() {
            let token = self.dot::<S, 4>(s, column, 0);
            let token = self.dot::<S, 2>(s, column, token);
            self.dot::<S, 1>(s, column, token);
        }
    }
}

impl<O: Operand> Decode<'_, O> {
    /// Multiplies a row of weights with the rows of activations from `token` on, `T` at a time
    /// while so many are left. Returns the first that is left.
    #[inline(always)]
    fn dot<S: Simd, const T: usize>(&mut self, s: S, column: usize, mut token: usize) -> usize {
        let tokens = self.y.rows();
        while T <= S::TOKENS && token + T <= tokens {
            let (slabs, rest) = self.weights.row(self.first + column);
            let mut sums = [s.splat_f32(0.0); T];
            let mut xs = self.x.chunks_exact(tokens).map(|x| &x[token..]);
            for (slab, x) in slabs.iter().zip(&mut xs) {
                let start: *const u8 = std::ptr::from_ref(slab).cast();
                for line in (0..size_of::<O::Slab>()).step_by(64) {
                    s.prefetch(start.wrapping_add(AHEAD + line));
                }
                if let Some(x) = x.first_chunk() {
                    O::dot(s, slab, x, &mut sums);
                }
            }
            if let Some(x) = xs.next().and_then(|x| x.first_chunk()) {
                O::dot(s, &Matrix::<O>::fill(rest), x, &mut sums);
            }
            for sum in sums {
                self.y.row(token)[column] = s.sum(sum);
                token += 1;
            }
        }
        token
    }
}
