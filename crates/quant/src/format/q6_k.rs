//! `Q6_K`: value = d × scale × (q − 32), q of 6 bits, a scale of 8 bits for 16 values.

use super::block::groups;
use super::{Block, BlockFormat, Parts};
use crate::bits::{centre, pack, unpack};
use crate::numerics::{NEGLIGIBLE, multiples, nearest_int, nearest_level, peak, transpose};
use crate::symmetric::Symmetric;
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::array::from_fn;
use std::ops::RangeInclusive;

/// 256 values in 16 groups with their own scales.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// The low four bits of the codes: 128 values in 64 bytes, two planes of 64.
    pub ql: [u8; 128],
    /// The high two bits: 128 values in 32 bytes, four planes of 32.
    pub qh: [u8; 64],
    /// The groups' scales.
    pub scales: [i8; 16],
    /// The scale of the scales.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ6K>() == 210);

impl Block for BlockQ6K {
    const FORMAT: BlockFormat = BlockFormat::Q6K;
    const LEN: usize = 256;
    const GROUP: usize = 16;
    const CODES: RangeInclusive<i8> = -32..=31;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        unpack::<4, 64>(&self.ql, 0, parts.codes);
        unpack::<2, 32>(&self.qh, 4, parts.codes);
        centre::<32>(parts.codes);
        parts
            .scales
            .copy_from_slice(&multiples(self.d, &self.scales));
    }

    fn quantize(x: &[f32]) -> Self {
        let x = groups(x);
        let (scales, codes) = fit(x);
        let largest = peak(&scales);
        if largest.abs() < NEGLIGIBLE {
            return Self::zeroed();
        }
        let inverse = -128.0 / largest;
        let d = f16::from_f32(1.0 / inverse);
        let scales = scales.map(|scale| nearest_int(inverse * scale).min(127) as i8);
        let mut block = Symmetric::<32> { d, scales, codes };
        block.recode(x);
        let codes = block.codes.as_flattened();
        let (mut ql, mut qh) = ([0; 128], [0; 64]);
        pack::<4, 64>(codes, 0, &mut ql);
        pack::<2, 32>(codes, 4, &mut qh);
        Self { ql, qh, scales, d }
    }
}

/// Searches the groups' scales and codes of least squared error, weighted with the squares of the values: the
/// least-squares fits to the codes that 19 scales around that of the group's range give. Source of the method:
/// `make_qx_quants` in ggml-quants.c.
///
/// The sums over a group must be added up in order, which vectorises only across the groups.
fn fit(groups: &[[f32; 16]; 16]) -> ([f32; 16], [[u8; 16]; 16]) {
    let x = transpose(groups);
    let peaks = groups.each_ref().map(peak);
    let (mut inverse, mut scales) = ([0.0; 16], [0.0; 16]);
    let mut best = [f32::NEG_INFINITY; 16];
    for step in std::iter::once(0).chain(-9..=-1).chain(1..=9) {
        let levels = -(32.0 + 0.1 * step as f32);
        let candidate = peaks.map(|peak| levels / peak);
        let (mut sum_xl, mut sum_l2) = ([0.0; 16], [0.0; 16]);
        for x in &x {
            for g in 0..16 {
                let level = nearest_level(candidate[g] * x[g], -32.0, 31.0);
                sum_xl[g] += x[g] * x[g] * x[g] * level;
                sum_l2[g] += x[g] * x[g] * level * level;
            }
        }
        for g in 0..16 {
            // The error falls as sum_xl² / sum_l2 rises.
            if step == 0 || sum_l2[g] > 0.0 && sum_xl[g] * sum_xl[g] > best[g] * sum_l2[g] {
                scales[g] = if sum_l2[g] == 0.0 {
                    0.0
                } else {
                    sum_xl[g] / sum_l2[g]
                };
                best[g] = scales[g] * sum_xl[g];
                inverse[g] = candidate[g];
            }
        }
    }
    let mut codes =
        from_fn(|g| groups[g].map(|x| (nearest_level(inverse[g] * x, -32.0, 31.0) + 32.0) as u8));
    for g in 0..16 {
        if peaks[g].abs() < NEGLIGIBLE {
            (scales[g], codes[g]) = (0.0, [0; 16]);
        }
    }
    (scales, codes)
}
