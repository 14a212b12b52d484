//! Interface of a type of weights that can be multiplied.

use super::activations::SLAB;
use super::gemm::Gemm;
use crate::simd::{Level, Simd};
use bytemuck::{Pod, Zeroable};

/// Rows of weights in a panel: one for each lane.
pub(crate) const ROWS: usize = 16;

/// A type of weights.
pub(crate) trait Operand: Sized {
    /// Element of rows: a block of a format, or a float.
    type Element: Pod + Sync;
    /// 256 weights of a row.
    type Slab: Pod;
    /// The 256 activations that meet them.
    type X: Pod + Send + Sync;
    /// The slabs of 16 rows with the rows side by side, ready to be multiplied by many slabs of
    /// activations.
    type Panel: Pod;
    /// Pairs of panels that fit a first-level cache beside the activations.
    type Pairs: Pod + AsMut<[[Self::Panel; 2]]>;

    /// Whether they are floats. Their products need no registers but for the operands and the sums.
    const FLOATS: bool = false;

    /// The most rows of weights for one call of [`Self::multiply_many`].
    fn most_rows(_: Level) -> usize {
        ROWS * size_of::<Self::Pairs>() / size_of::<Self::Panel>()
    }

    /// Multiplies with many rows of activations in the best way of a level.
    fn multiply_many(level: Level, gemm: Gemm<'_, Self>) {
        level.run(gemm);
    }

    fn convert<S: Simd>(s: S, values: &[f32; SLAB], x: &mut Self::X);

    /// Adds the products of one row's slab with `T` slabs of activations to `sums`: lanes that are
    /// yet to be added up.
    fn dot<S: Simd, const T: usize>(
        s: S,
        slab: &Self::Slab,
        x: &[Self::X; T],
        sums: &mut [S::F; T],
    );

    fn pack<S: Simd>(s: S, rows: [&Self::Slab; ROWS], panel: &mut Self::Panel);

    /// The products of the rows of `P` panels, one a lane, with `T` slabs of activations.
    fn multiply<S: Simd, const T: usize, const P: usize>(
        s: S,
        panels: &[Self::Panel; P],
        x: &[Self::X; T],
    ) -> [[S::F; P]; T];
}

/// Rows of weights, each of whole elements.
pub(crate) struct Matrix<'a, O: Operand> {
    elements: &'a [O::Element],
    rows: usize,
    /// Elements of a row.
    len: usize,
}

impl<O: Operand> Clone for Matrix<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Operand> Copy for Matrix<'_, O> {}

impl<'a, O: Operand> Matrix<'a, O> {
    /// `rows` rows of equal length, one after the other.
    pub(crate) fn new(elements: &'a [O::Element], rows: usize) -> Self {
        Self {
            elements,
            rows,
            len: elements.len() / rows,
        }
    }

    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    /// Whole slabs of a row, and the rest.
    #[inline(always)]
    pub(crate) fn row(self, row: usize) -> (&'a [O::Slab], &'a [O::Element]) {
        let row = &self.elements[row * self.len..][..self.len];
        let in_slab = size_of::<O::Slab>() / size_of::<O::Element>();
        let (whole, rest) = row.split_at(self.len / in_slab * in_slab);
        (bytemuck::cast_slice(whole), rest)
    }

    /// A slab that starts with `rest` and goes on with zeros.
    #[inline(always)]
    pub(crate) fn fill(rest: &[O::Element]) -> O::Slab {
        let mut slab = O::Slab::zeroed();
        let elements = bytemuck::cast_slice_mut(std::slice::from_mut(&mut slab));
        elements[..rest.len()].copy_from_slice(rest);
        slab
    }
}
