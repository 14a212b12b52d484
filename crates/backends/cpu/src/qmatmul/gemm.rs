//! Products with many rows of activations: weights are unpacked into panels, each of which meets all of the activations.

use super::operand::{Matrix, Operand, ROWS};
use super::simd::{Kernel, Simd};
use super::tile::Tile;
use bytemuck::Zeroable;
use std::array::from_fn;

/// The product of the rows of weights from `first` on, one for each of `y`'s columns, with the rows of activations from `token` on, one for each of `y`'s rows.
pub(crate) struct Gemm<'a, O: Operand> {
    pub(crate) weights: Matrix<'a, O>,
    /// As many rows at most as [`Operand::Panels`] hold.
    pub(crate) first: usize,
    /// The first slabs of all rows of activations, then their second slabs and so on.
    pub(crate) x: &'a [O::X],
    /// Rows of activations in `x`.
    pub(crate) tokens: usize,
    pub(crate) token: usize,
    pub(crate) y: Tile<'a>,
}

impl<O: Operand> Kernel for Gemm<'_, O> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut panels = O::Panels::zeroed();
        let panels = &mut panels.as_mut()[..self.y.columns().div_ceil(ROWS)];
        for (slab, x) in self.x.chunks_exact(self.tokens).enumerate() {
            for (i, panel) in panels.iter_mut().enumerate() {
                self.pack(s, slab, i * ROWS, panel);
            }
            let x = &x[self.token..][..self.y.rows()];
            let fresh = slab == 0;
            let mut done = 0;
            done = self.multiply::<S, 12>(s, panels, x, done, fresh);
            done = self.multiply::<S, 8>(s, panels, x, done, fresh);
            done = self.multiply::<S, 4>(s, panels, x, done, fresh);
            done = self.multiply::<S, 3>(s, panels, x, done, fresh);
            done = self.multiply::<S, 2>(s, panels, x, done, fresh);
            self.multiply::<S, 1>(s, panels, x, done, fresh);
        }
    }
}

impl<O: Operand> Gemm<'_, O> {
    /// Packs a slab of the rows for the columns of `y` from `column` on. In place of rows past the last, that one is packed again: the product is dropped.
    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, slab: usize, column: usize, panel: &mut O::Panel) {
        let last = self.y.columns() - 1;
        let rows: [_; ROWS] = from_fn(|i| self.weights.row(self.first + last.min(column + i)));
        if slab < rows[0].0.len() {
            O::pack(s, rows.map(|(slabs, _)| &slabs[slab]), panel);
        } else {
            let slabs = rows.map(|(_, rest)| Matrix::<O>::fill(rest));
            O::pack(s, slabs.each_ref(), panel);
        }
    }

    /// Multiplies the panels with the slabs of activations from `done` on, `T` at a time while so many are left. Returns how many are done.
    #[inline(always)]
    fn multiply<S: Simd, const T: usize>(
        &mut self,
        s: S,
        panels: &[O::Panel],
        x: &[O::X],
        mut done: usize,
        fresh: bool,
    ) -> usize {
        if T > S::TOKENS {
            return done;
        }
        for x in x[done..].as_chunks::<T>().0 {
            for (i, panel) in panels.iter().enumerate() {
                let columns = i * ROWS..self.y.columns().min((i + 1) * ROWS);
                let mut sums = [s.splat_f32(0.0); T];
                if !fresh {
                    for (token, sum) in sums.iter_mut().enumerate() {
                        *sum = load(s, &self.y.row(done + token)[columns.clone()]);
                    }
                }
                O::multiply(s, panel, x, &mut sums);
                for (token, sum) in sums.into_iter().enumerate() {
                    store(s, sum, &mut self.y.row(done + token)[columns.clone()]);
                }
            }
            done += T;
        }
        done
    }
}

/// Loads up to 16 lanes, the others zero.
#[inline(always)]
fn load<S: Simd>(s: S, lanes: &[f32]) -> S::F {
    if let Ok(lanes) = lanes.try_into() {
        return s.load_f32(lanes);
    }
    let mut all = [0.0; ROWS];
    all[..lanes.len()].copy_from_slice(lanes);
    s.load_f32(&all)
}

/// Stores the first lanes.
#[inline(always)]
fn store<S: Simd>(s: S, sum: S::F, lanes: &mut [f32]) {
    if let Ok(lanes) = lanes.try_into() {
        return s.store_f32(sum, lanes);
    }
    let mut all = [0.0; ROWS];
    s.store_f32(sum, &mut all);
    lanes.copy_from_slice(&all[..lanes.len()]);
}
