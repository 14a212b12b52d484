//! Rows of the cache, as vectors of single precision and as the panels of products.

use std::ops::Range;

use rustorch_quant::BlockQ8_0;

use super::product::{LANES, Panel};
use crate::qmatmul::Float;
use crate::simd::{Simd, from_fn};

/// Elements of the rows of keys and values.
pub(super) trait Cached: Sync + Sized {
    /// Elements of a row in one of these.
    const ELEMENTS: usize;
    /// Is each element the sum of two bf16, exactly or nearly?
    #[cfg(target_arch = "x86_64")]
    const SPLITS: bool;

    /// Elements `16 · i` and up of a row, zeros behind its end.
    fn lanes<S: Simd>(s: S, row: &[Self], i: usize) -> S::F;
}

impl<T: Float> Cached for T {
    const ELEMENTS: usize = 1;
    #[cfg(target_arch = "x86_64")]
    const SPLITS: bool = size_of::<T>() == 2;

    #[inline(always)]
    fn lanes<S: Simd>(s: S, row: &[T], i: usize) -> S::F {
        let rest = &row[i * LANES..];
        match rest.first_chunk::<LANES>() {
            Some(lanes) => T::load(s, lanes),
            None => T::load(s, &from_fn(|j| rest.get(j).copied().unwrap_or(T::zeroed()))),
        }
    }
}

impl Cached for BlockQ8_0 {
    const ELEMENTS: usize = 32;
    // A product of 11 and 7 bits: as near to such a sum as queries in single precision are.
    #[cfg(target_arch = "x86_64")]
    const SPLITS: bool = true;

    #[inline(always)]
    fn lanes<S: Simd>(s: S, row: &[Self], i: usize) -> S::F {
        static IN_ORDER: [u8; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let Self { d, qs } = &row[i / 2];
        let qs = &qs.as_chunks::<LANES>().0[i % 2];
        s.mul(s.pick_i8(qs, &IN_ORDER), s.splat_f16(d.to_bits()))
    }
}

/// Rows of one width.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    items: &'a [T],
    /// Items of a row.
    each: usize,
    /// Elements of a row.
    pub(super) width: usize,
}

impl<'a, T: Cached> Rows<'a, T> {
    /// Rows of `width` elements.
    pub(super) fn new(items: &'a [T], width: usize) -> Self {
        let each = width / T::ELEMENTS;
        Self { items, each, width }
    }

    #[inline(always)]
    pub(super) fn row(&self, index: usize) -> &'a [T] {
        &self.items[index * self.each..][..self.each]
    }

    /// The bits of elements `16 · i` and up of 16 rows: `count` rows from `first` on, then zeros.
    #[inline(always)]
    fn sixteen<S: Simd>(&self, s: S, first: usize, count: usize, i: usize) -> [S::V; LANES] {
        let mut bits = [s.splat(0); LANES];
        // The usual case by itself, so that it becomes a row of instructions.
        if count >= LANES {
            let items = &self.items[first * self.each..][..LANES * self.each];
            for (r, bits) in bits.iter_mut().enumerate() {
                *bits = s.bits(T::lanes(s, &items[r * self.each..][..self.each], i));
            }
        } else {
            for (r, bits) in bits.iter_mut().enumerate().take(count) {
                *bits = s.bits(T::lanes(s, self.row(first + r), i));
            }
        }
        bits
    }

    /// Panels whose columns are elements `elements` of the rows from `first` on, `count` of them,
    /// with zeros behind the last.
    #[inline(always)]
    pub(super) fn as_columns<S: Simd>(
        &self,
        s: S,
        (first, count): (usize, usize),
        elements: Range<usize>,
        panels: &mut Panel,
    ) {
        for (i, panel) in panels.chunks_exact_mut(elements.len()).enumerate() {
            let (first, count) = (first + i * LANES, count - i * LANES);
            for (j, tile) in panel.chunks_mut(LANES).enumerate() {
                let rows = self.sixteen(s, first, count, elements.start / LANES + j);
                for (column, out) in s.transpose(rows).into_iter().zip(tile) {
                    s.store(column, bytemuck::cast_mut(out));
                }
            }
        }
    }

    /// Panels whose rows are parts of the rows from `first` on, `count` of them.
    #[inline(always)]
    pub(super) fn as_rows<S: Simd>(
        &self,
        s: S,
        (first, count): (usize, usize),
        panels: &mut Panel,
    ) {
        for (j, panel) in panels.chunks_exact_mut(count).enumerate() {
            for (r, out) in panel.iter_mut().enumerate() {
                s.store_f32(T::lanes(s, self.row(first + r), j), out);
            }
        }
    }
}
