//! Products of float weights with activations in f32.

use super::activations::SLAB;
use super::operand::{Operand, ROWS};
use crate::simd::Simd;
use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use std::marker::PhantomData;

/// A float type, as the kernels read it.
pub(crate) trait Float: Pod + Sync {
    fn load<S: Simd>(s: S, lanes: &[Self; 16]) -> S::F;
}

impl Float for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, lanes: &[f32; 16]) -> S::F {
        s.load_f32(lanes)
    }
}

impl Float for f16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, lanes: &[f16; 16]) -> S::F {
        s.load_f16(bytemuck::cast_ref(lanes))
    }
}

impl Float for bf16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, lanes: &[bf16; 16]) -> S::F {
        s.load_bf16(bytemuck::cast_ref(lanes))
    }
}

/// 256 activations.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Values([f32; SLAB]);

/// The slabs of 16 rows: value `i` of each row.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Panel([[f32; ROWS]; SLAB]);

/// Sums that grow side by side: one alone would wait for its last addition.
const CHAINS: usize = 4;

/// Weights of a float type `W`.
pub(crate) struct Floats<W>(PhantomData<W>);

impl<W: Float> Operand for Floats<W> {
    type Element = W;
    type Slab = [W; SLAB];
    type X = Values;
    type Panel = Panel;
    type Pairs = [[Panel; 2]; 1];

    const FLOATS: bool = true;

    #[inline(always)]
    fn convert<S: Simd>(_: S, values: &[f32; SLAB], x: &mut Values) {
        x.0 = *values;
    }

    #[inline(always)]
    fn dot<S: Simd, const T: usize>(s: S, slab: &[W; SLAB], x: &[Values; T], sums: &mut [S::F; T]) {
        let (slab, _) = slab.as_chunks::<16>();
        let mut chains = [[s.splat_f32(0.0); T]; CHAINS];
        for (i, slab) in slab.as_chunks::<CHAINS>().0.iter().enumerate() {
            for (j, lanes) in slab.iter().enumerate() {
                let weights = W::load(s, lanes);
                for (sum, x) in chains[j].iter_mut().zip(x) {
                    let (x, _) = x.0.as_chunks::<16>();
                    *sum = s.mul_add(*sum, weights, s.load_f32(&x[CHAINS * i + j]));
                }
            }
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            let pairs = [
                s.add_f32(chains[0][i], chains[1][i]),
                s.add_f32(chains[2][i], chains[3][i]),
            ];
            *sum = s.add_f32(*sum, s.add_f32(pairs[0], pairs[1]));
        }
    }

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[W; SLAB]; ROWS], panel: &mut Panel) {
        for (i, columns) in panel.0.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let mut vs = [s.splat(0); 16];
            for (v, row) in vs.iter_mut().zip(rows) {
                *v = s.bits(W::load(s, &row.as_chunks::<16>().0[i]));
            }
            for (v, column) in s.transpose(vs).into_iter().zip(columns) {
                s.store(v, bytemuck::cast_mut(column));
            }
        }
    }

    #[inline(always)]
    fn multiply<S: Simd, const T: usize, const P: usize>(
        s: S,
        panels: &[Panel; P],
        x: &[Values; T],
    ) -> [[S::F; P]; T] {
        let mut sums = [[s.splat_f32(0.0); P]; T];
        for i in 0..SLAB {
            let mut weights = [s.splat_f32(0.0); P];
            for (weights, panel) in weights.iter_mut().zip(panels) {
                *weights = s.load_f32(&panel.0[i]);
            }
            for (sums, x) in sums.iter_mut().zip(x) {
                let x = s.splat_f32(x.0[i]);
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = s.mul_add(*sum, weights, x);
                }
            }
        }
        sums
    }
}
