//! Products of block formats with rounded activations, in integers within a group of weights.
//!
//! A group of weights is `a × code − b` with codes without sign. So its product with activations
//! `scale × x` is `scale × (a × Σ code·x − b × Σ x)`. The last sum comes with the activations.
//! Formats with a zero point have `b = a × zero point`; there the sum of products is corrected in
//! integers. A format's own part is [`Unpack`].

use super::activations::{Offset, Rounded, SCALED, SLAB, Scheme, lane_of};
#[cfg(target_arch = "x86_64")]
use super::gemm::Gemm;
use super::operand::{Operand, ROWS};
#[cfg(target_arch = "x86_64")]
use super::tiled::{self, Tiled};
#[cfg(target_arch = "x86_64")]
use crate::simd::Level;
use crate::simd::{Simd, from_fn, map, transpose};
use bytemuck::{Pod, Zeroable};
use rustorch_quant::Block;
use std::marker::PhantomData;

/// A block format, as the kernels read it.
pub(crate) trait Unpack: Block + Sync {
    /// The blocks of 256 weights.
    type Slab: Pod;
    const OFFSET: Offset = Offset::of::<Self>();
    /// Bytes that hold a scale times a code less the zero point, if scales are integers.
    #[cfg(target_arch = "x86_64")]
    const PRODUCT_BYTES: usize = 1;

    fn unpack<S: Simd>(s: S, slab: &Self::Slab) -> Unpacked<S>;
}

/// 256 weights: codes in their order, scales and minima in the order of [`lane_of`], groups of 32
/// twice. Scales and minima are integers if a block has 256 weights.
pub(crate) struct Unpacked<S: Simd> {
    pub(crate) codes: [S::V; 4],
    pub(crate) scales: S::F,
    /// Ignored for formats with a zero point.
    pub(crate) minima: S::F,
    /// Units of scales and minima, the same in all lanes.
    pub(crate) units: [S::F; 2],
}

/// The slabs of 16 rows side by side.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Panel {
    /// Codes `4i` to `4i + 3` of each row; ready to be multiplied, two steps of `i` are as
    /// [`Simd::interleave`] leaves them.
    pub(super) codes: [[u8; 64]; SLAB / 4],
    /// Each row's scale, for each [`lane_of`].
    pub(super) scales: [[f32; ROWS]; 16],
    /// Each row's minimum, for each [`lane_of`].
    pub(super) minima: [[f32; ROWS]; 16],
}

/// Whether codes are above 127.
const fn is_wide(offset: Offset) -> bool {
    matches!(offset, Offset::Bias)
}

/// Whether sums of products are corrected by [`Rounded::corrections`].
const fn is_corrected<S: Simd>(offset: Offset) -> bool {
    match offset {
        Offset::ZeroPoint(_) => true,
        Offset::Minimum => false,
        Offset::Bias => S::BIAS != 0,
    }
}

/// Weights in blocks `B`.
pub(crate) struct Blocks<B>(PhantomData<B>);

impl<B: Unpack> Blocks<B> {
    pub(super) const SCHEME: Scheme = Scheme {
        offset: B::OFFSET,
        group: if B::GROUP < SCALED { B::GROUP } else { SCALED },
        scaled: if B::LEN == SLAB { SLAB } else { SCALED },
    };

    /// Puts the slabs of rows side by side. Returns the units of each row's scales and minima
    /// there.
    #[inline(always)]
    pub(super) fn gather<S: Simd>(
        s: S,
        rows: [&B::Slab; ROWS],
        panel: &mut Panel,
    ) -> [[f32; ROWS]; 2] {
        let (codes, _) = panel.codes.as_chunks_mut::<ROWS>();
        // Each row's unit from its lane on.
        let mut units = [[0.0; 2 * ROWS]; 2];
        for (i, row) in rows.into_iter().enumerate() {
            let weights = B::unpack(s, row);
            for (codes, row) in codes.iter_mut().zip(weights.codes) {
                s.store(row, &mut codes[i]);
            }
            s.store_f32(weights.scales, &mut panel.scales[i]);
            if let Offset::Minimum = B::OFFSET {
                s.store_f32(weights.minima, &mut panel.minima[i]);
            }
            for (units, unit) in units.iter_mut().zip(weights.units) {
                if let Some(lanes) = units[i..].first_chunk_mut() {
                    s.store_f32(unit, lanes);
                }
            }
        }
        for codes in codes {
            transpose(s, codes);
        }
        transpose(s, bytemuck::cast_mut(&mut panel.scales));
        if let Offset::Minimum = B::OFFSET {
            transpose(s, bytemuck::cast_mut(&mut panel.minima));
        }
        map(units, |units| from_fn(|i| units[i]))
    }
}

impl<B: Unpack> Operand for Blocks<B> {
    type Element = B;
    type Slab = B::Slab;
    type X = Rounded;
    type Panel = Panel;
    type Pairs = [[Panel; 2]; 2];

    #[cfg(target_arch = "x86_64")]
    fn most_rows(level: Level) -> usize {
        match level.amx() {
            Some(_) => ROWS * tiled::PANELS,
            None => ROWS * size_of::<Self::Pairs>() / size_of::<Panel>(),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn multiply_many(level: Level, gemm: Gemm<'_, Self>) {
        match level.amx() {
            Some(amx) => amx.run(Tiled { amx, gemm }),
            None => level.run(gemm),
        }
    }

    #[inline(always)]
    fn convert<S: Simd>(s: S, values: &[f32; SLAB], x: &mut Rounded) {
        x.set(s, values, Self::SCHEME);
    }

    #[inline(always)]
    fn dot<S: Simd, const T: usize>(s: S, slab: &B::Slab, x: &[Rounded; T], sums: &mut [S::F; T]) {
        let weights = B::unpack(s, slab);
        let scales = s.mul(weights.scales, weights.units[0]);
        let minima = s.mul(weights.minima, weights.units[1]);
        for (x, sum) in x.iter().zip(sums) {
            let (chunks, _) = x.codes.as_chunks::<64>();
            let mut dots = [s.splat_i32(0); 4];
            for ((dot, codes), x) in dots.iter_mut().zip(weights.codes).zip(chunks) {
                *dot = s.dot4(*dot, codes, s.load(x), is_wide(B::OFFSET));
            }
            let mut dots = s.sum_quarters(dots);
            if is_corrected::<S>(B::OFFSET) {
                dots = s.add(dots, s.load(bytemuck::cast_ref(&x.corrections)));
            }
            let mut products = s.mul(scales, s.to_f32(dots));
            if let Offset::Minimum = B::OFFSET {
                products = s.mul_sub(products, minima, s.load_f32(&x.sums));
            }
            *sum = s.mul_add(*sum, products, s.load_f32(&x.scales));
        }
    }

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&B::Slab; ROWS], panel: &mut Panel) {
        let units = Self::gather(s, rows, panel);
        for [a, b] in panel.codes.as_chunks_mut().0 {
            let steps = s.interleave([s.load(a), s.load(b)]);
            s.store(steps[0], a);
            s.store(steps[1], b);
        }
        for (lanes, unit) in [&mut panel.scales, &mut panel.minima]
            .into_iter()
            .zip(&units)
        {
            for lanes in lanes {
                s.store_f32(s.mul(s.load_f32(lanes), s.load_f32(unit)), lanes);
            }
        }
    }

    #[inline(always)]
    fn multiply<S: Simd, const T: usize, const P: usize>(
        s: S,
        panels: &[Panel; P],
        x: &[Rounded; T],
    ) -> [[S::F; P]; T] {
        let one_scale = Self::SCHEME.scaled == SLAB;
        let size = Self::SCHEME.group;
        let steps = size / 4;
        let mut sums = [[s.splat_f32(0.0); P]; T];
        for group in 0..SLAB / size {
            let lane = lane_of(group * size / 16);
            let mut dots = [[s.splat_i32(0); P]; T];
            if is_corrected::<S>(B::OFFSET) {
                for (dots, x) in dots.iter_mut().zip(x) {
                    *dots = [s.splat_i32(x.corrections[lane]); P];
                }
            }
            let steps = group * steps..(group + 1) * steps;
            let codes = from_fn(|p| &panels[p].codes[steps.clone()]);
            let words = from_fn(|t| &x[t].codes.as_chunks::<4>().0[steps.clone()]);
            s.dot_panels(&mut dots, codes, words, is_wide(B::OFFSET));
            for (i, panel) in panels.iter().enumerate() {
                let scales = s.load_f32(&panel.scales[lane]);
                let minima = s.load_f32(&panel.minima[lane]);
                for ((sums, dots), x) in sums.iter_mut().zip(dots).zip(x) {
                    let sum = &mut sums[i];
                    let dots = s.to_f32(dots[i]);
                    let mut products = if one_scale {
                        s.mul_add(*sum, scales, dots)
                    } else {
                        s.mul(scales, dots)
                    };
                    if let Offset::Minimum = B::OFFSET {
                        products = s.mul_sub(products, minima, s.splat_f32(x.sums[lane]));
                    }
                    *sum = if one_scale {
                        products
                    } else {
                        s.mul_add(*sum, products, s.splat_f32(x.scales[lane]))
                    };
                }
            }
        }
        if one_scale {
            for (sums, x) in sums.iter_mut().zip(x) {
                for sum in sums {
                    *sum = s.mul(*sum, s.splat_f32(x.scales[0]));
                }
            }
        }
        sums
    }
}
