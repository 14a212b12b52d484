//! Products with a few rows of activations: weights are streamed from memory once, some rows side
//! by side.

use super::operand::{Matrix, Operand};
use super::tile::Tile;
use crate::cache::prefetch;
use crate::simd::{Kernel, Simd, from_fn, map};

/// The most rows of activations for which this beats unpacking weights into panels. A row has the same bits whatever
/// the number of the others.
pub(crate) const MAX_TOKENS: usize = 8;

/// Rows of weights that are read side by side, from places far apart: a core waits less for memory
/// when it reads several streams.
pub(crate) const STREAMS: usize = 4;

/// Slabs of a row that is over before it is worth while to begin four at once: that shows with
/// weights that caches hold.
const SHORT: usize = 4;

/// Distance of prefetches before the use of memory, in bytes of a stream.
const AHEAD: usize = 1024;

/// The product of the rows of weights from `first` on with all rows of activations. Each row of
/// weights is one of `y`'s columns, and each row of activations one of `y`'s rows.
pub(crate) struct Decode<'a, O: Operand> {
    pub(crate) weights: Matrix<'a, O>,
    pub(crate) first: usize,
    /// The first slabs of all rows of activations, then their second slabs and so on.
    pub(crate) x: &'a [O::X],
    pub(crate) y: Tile<'a>,
}

impl<O: Operand> Kernel for Decode<'_, O> {
    const DOTS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let columns = self.y.columns();
        let (slabs, _) = self.weights.row(self.first);
        let step = match slabs.len() {
            ..=SHORT => 0,
            _ => columns / STREAMS,
        };
        for column in 0..step {
            self.dots(s, from_fn::<_, STREAMS>(|i| i * step + column));
        }
        for column in STREAMS * step..columns {
            self.dots(s, [column]);
        }
    }
}

impl<O: Operand> Decode<'_, O> {
    /// Multiplies some rows of weights with all rows of activations.
    #[inline(always)]
    fn dots<S: Simd, const R: usize>(&mut self, s: S, columns: [usize; R]) {
        let token = self.tokens::<S, R, 4>(s, columns, 0);
        let token = self.tokens::<S, R, 2>(s, columns, token);
        self.tokens::<S, R, 1>(s, columns, token);
    }

    /// Multiplies rows of weights with the rows of activations from `token` on. It takes `T` at a
    /// time while so many are left. Returns the first that is left.
    #[inline(always)]
    fn tokens<S: Simd, const R: usize, const T: usize>(
        &mut self,
        s: S,
        columns: [usize; R],
        mut token: usize,
    ) -> usize {
        // Decided while compiling, so that it is not compiled in vain.
        if const { T > S::TOKENS } {
            return token;
        }
        let tokens = self.y.rows();
        while token + T <= tokens {
            let rows = map(columns, |column| self.weights.row(self.first + column));
            let mut sums = [[s.splat_f32(0.0); T]; R];
            let mut xs = self.x.chunks_exact(tokens).map(|x| &x[token..]);
            for (slab, x) in (0..rows[0].0.len()).zip(&mut xs) {
                let Some(x) = x.first_chunk() else { continue };
                for ((slabs, _), sums) in rows.iter().zip(&mut sums) {
                    let start: *const u8 = std::ptr::from_ref(&slabs[slab]).cast();
                    prefetch(start.wrapping_add(AHEAD), size_of::<O::Slab>());
                    O::dot(s, &slabs[slab], x, sums);
                }
            }
            if let Some(x) = xs.next().and_then(|x| x.first_chunk()) {
                for ((_, rest), sums) in rows.iter().zip(&mut sums) {
                    O::dot(s, &Matrix::<O>::fill(rest), x, sums);
                }
            }
            for i in 0..T {
                let y = self.y.row(token);
                for (column, sums) in columns.iter().zip(&sums) {
                    y[*column] = s.sum(sums[i]);
                }
                token += 1;
            }
        }
        token
    }
}
