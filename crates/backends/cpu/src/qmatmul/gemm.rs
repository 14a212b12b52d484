//! Products with many rows of activations: weights are unpacked into panels, each of which meets
//! all of the activations.

use super::operand::{Matrix, Operand, ROWS};
use super::tile::Tile;
use crate::cache::prefetch;
use crate::simd::{Kernel, Simd, from_fn, map};
use bytemuck::Zeroable;

/// Sums of a panel.
pub(crate) type Sums = [f32; ROWS];

/// Rows of `y` that are asked for ahead of being written.
const AHEAD: usize = 8;

/// The product of the rows of weights from `first` on with the rows of activations from `token` on.
/// Each row of weights is one of `y`'s columns, and each row of activations one of `y`'s rows.
pub(crate) struct Gemm<'a, O: Operand> {
    pub(crate) weights: Matrix<'a, O>,
    /// The first row of weights. There are at most as many as [`Operand::Pairs`] hold.
    pub(crate) first: usize,
    /// The first slabs of all rows of activations, then their second slabs and so on.
    pub(crate) x: &'a [O::X],
    /// Rows of activations in `x`.
    pub(crate) tokens: usize,
    pub(crate) token: usize,
    pub(crate) y: Tile<'a>,
    /// Sums of `y`, whatever its place in memory: a token's sums for each panel, then the next
    /// token's.
    pub(crate) sums: &'a mut Vec<Sums>,
}

impl<O: Operand> Kernel for Gemm<'_, O> {
    const DOTS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut pairs = O::Pairs::zeroed();
        let pairs = &mut pairs.as_mut()[..self.y.columns().div_ceil(2 * ROWS)];
        let panels = pairs.as_flattened_mut();
        self.sums.clear();
        self.sums.resize(self.y.rows() * panels.len(), [0.0; ROWS]);
        for (slab, x) in self.x.chunks_exact(self.tokens).enumerate() {
            for (i, panel) in panels.iter_mut().enumerate() {
                let mut filled = None;
                O::pack(s, self.rows(slab, i * ROWS, &mut filled), panel);
            }
            let mut x = &x[self.token..][..self.y.rows()];
            let mut sums = &mut self.sums[..];
            multiply::<O, S, 6>(s, panels, &mut x, &mut sums);
            multiply::<O, S, 2>(s, panels, &mut x, &mut sums);
            multiply::<O, S, 1>(s, panels, &mut x, &mut sums);
        }
        for (token, sums) in self.sums.chunks_exact(panels.len()).enumerate() {
            // The rows of `y` are far apart, where the processor does not look ahead by itself.
            if token + AHEAD < self.y.rows() {
                let row = self.y.row(token + AHEAD);
                prefetch(row.as_ptr().cast(), size_of_val(row));
            }
            let y = self.y.row(token);
            y.copy_from_slice(&sums.as_flattened()[..y.len()]);
        }
    }
}

impl<'a, O: Operand> Gemm<'a, O> {
    /// A slab of the rows for the columns of `y` from `column` on. In place of rows past the last,
    /// that one comes again: the product is dropped. Parts of slabs are copied to `filled`.
    #[inline(always)]
    pub(super) fn rows<'s>(
        &self,
        slab: usize,
        column: usize,
        filled: &'s mut Option<[O::Slab; ROWS]>,
    ) -> [&'s O::Slab; ROWS]
    where
        'a: 's,
    {
        let last = self.y.columns() - 1;
        let rows: [_; ROWS] = from_fn(|i| self.weights.row(self.first + last.min(column + i)));
        if slab < rows[0].0.len() {
            map(rows, |(slabs, _)| &slabs[slab])
        } else {
            let fill = rows.map(|(_, rest)| Matrix::<O>::fill(rest));
            let filled = &*filled.insert(fill);
            from_fn(|i| &filled[i])
        }
    }
}

/// Slabs of activations that are multiplied at a time.
const fn tokens<O: Operand, S: Simd>() -> usize {
    if O::FLOATS { S::SUMS } else { S::TOKENS }
}

/// Are panels multiplied in pairs?
const fn pairs<O: Operand, S: Simd>() -> bool {
    if O::FLOATS { S::SUMS >= 12 } else { S::PAIRS }
}

/// Adds the products of the panels with the first slabs of `x` to the first of `sums`. It takes `T`
/// slabs at a time while so many are left, and leaves the rest of both. Code for more registers than a
/// level has is not compiled: `const` decides.
#[inline(always)]
fn multiply<O: Operand, S: Simd, const T: usize>(
    s: S,
    panels: &[O::Panel],
    x: &mut &[O::X],
    sums: &mut &mut [Sums],
) {
    if const { T > tokens::<O, S>() } {
        return;
    }
    while let Some((slabs, rest)) = x.split_first_chunk::<T>() {
        let (lanes, more) = std::mem::take(sums).split_at_mut(T * panels.len());
        if const { pairs::<O, S>() } {
            add::<O, S, T, 2>(s, panels, slabs, lanes);
        } else {
            add::<O, S, T, 1>(s, panels, slabs, lanes);
        }
        (*x, *sums) = (rest, more);
    }
}

/// Adds the products of the panels, `P` at a time, with `T` slabs to `sums`.
#[inline(always)]
fn add<O: Operand, S: Simd, const T: usize, const P: usize>(
    s: S,
    panels: &[O::Panel],
    slabs: &[O::X; T],
    sums: &mut [Sums],
) {
    for (i, some) in panels.as_chunks::<P>().0.iter().enumerate() {
        let products = O::multiply(s, some, slabs);
        for (token, products) in products.into_iter().enumerate() {
            let sums = &mut sums[token * panels.len() + i * P..][..P];
            for (sum, product) in sums.iter_mut().zip(products) {
                s.store_f32(s.add_f32(s.load_f32(sum), product), sum);
            }
        }
    }
}
