//! `Q3_K`: value = d × scale × (q − 4), q of 3 bits, a scale of 6 bits for 16 values.

use super::block::groups;
use super::{Block, BlockFormat, Parts};
use crate::bits::{centre, pack, unpack};
use crate::numerics::{NEGLIGIBLE, multiples, nearest_int, peak};
use crate::symmetric::Symmetric;
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::ops::RangeInclusive;

/// 256 values in 16 groups with their own scales.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// The highest bits of the codes: eight planes of 32.
    pub hmask: [u8; 32],
    /// The low two bits: 128 values in 32 bytes, four planes of 32.
    pub qs: [u8; 64],
    /// The groups' scales plus 32: the low four bits in eight bytes, two planes of 8. Then the high two bits in
    /// four bytes, four planes of 4.
    pub scales: [u8; 12],
    /// The scale of the scales.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ3K>() == 110);

impl BlockQ3K {
    /// The groups' scales, −32 to 31.
    #[inline]
    pub fn group_scales(&self) -> [i8; 16] {
        unpack_scales(&self.scales)
    }
}

#[inline(always)]
fn unpack_scales(packed: &[u8; 12]) -> [i8; 16] {
    let mut scales = [0; 16];
    unpack::<4, 8>(&packed[..8], 0, &mut scales);
    unpack::<2, 4>(&packed[8..], 4, &mut scales);
    scales.map(|scale| scale as i8 - 32)
}

impl Block for BlockQ3K {
    const FORMAT: BlockFormat = BlockFormat::Q3K;
    const LEN: usize = 256;
    const GROUP: usize = 16;
    const CODES: RangeInclusive<i8> = -4..=3;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        unpack::<2, 32>(&self.qs, 0, parts.codes);
        unpack::<1, 32>(&self.hmask, 2, parts.codes);
        centre::<4>(parts.codes);
        let scales = unpack_scales(&self.scales);
        parts.scales.copy_from_slice(&multiples(self.d, &scales));
    }

    fn quantize(x: &[f32]) -> Self {
        let x: &[[f32; 16]; 16] = groups(x);
        let fits = x.each_ref().map(fit);
        let fit_scales = fits.map(|(scale, _)| scale);
        let largest = peak(&fit_scales);
        let (mut d, mut scales) = (f16::ZERO, [0; 12]);
        if largest != 0.0 {
            let inverse = -32.0 / largest;
            d = f16::from_f32(1.0 / inverse);
            let rounded = fit_scales.map(|scale| nearest_int(inverse * scale) as i8);
            let offset = rounded.map(|scale| (scale.clamp(-32, 31) + 32) as u8);
            pack::<4, 8>(&offset, 0, &mut scales[..8]);
            pack::<2, 4>(&offset, 4, &mut scales[8..]);
        }
        let codes = fits.map(|(_, codes)| codes);
        let mut block = Symmetric::<4> {
            d,
            scales: unpack_scales(&scales),
            codes,
        };
        block.recode(x);
        let codes = block.codes.as_flattened();
        let (mut hmask, mut qs) = ([0; 32], [0; 64]);
        pack::<2, 32>(codes, 0, &mut qs);
        pack::<1, 32>(codes, 2, &mut hmask);
        Self {
            hmask,
            qs,
            scales,
            d,
        }
    }
}

/// Searches a group's codes and scale of least squared error, weighted with the squares of the values: starting from
/// the codes of the group's range, one at a time moves if that improves the fit. There are at most five passes.
/// Source of the method: `make_q3_quants` in ggml-quants.c.
fn fit(x: &[f32; 16]) -> (f32, [u8; 16]) {
    let peak = peak(x);
    if peak.abs() < NEGLIGIBLE {
        return (0.0, [0; 16]);
    }
    let inverse = -4.0 / peak;
    let mut codes = x.map(|x| nearest_int(inverse * x).clamp(-4, 3) as f32);
    // Weighted sums of value × code and code²: the scale of least error is their quotient, and the
    // error falls as sum_xl² / sum_l2 rises.
    let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
    for (x, code) in x.iter().zip(codes) {
        sum_xl += x * x * x * code;
        sum_l2 += x * x * code * code;
    }
    for _ in 0..5 {
        let mut changed = false;
        for (x, code) in x.iter().zip(&mut codes) {
            let weight = x * x;
            let others_xl = sum_xl - weight * x * *code;
            let others_l2 = sum_l2 - weight * *code * *code;
            if others_xl <= 0.0 {
                continue;
            }
            let moved = nearest_int(x * others_l2 / others_xl).clamp(-4, 3) as f32;
            if moved == *code {
                continue;
            }
            let moved_xl = others_xl + weight * x * moved;
            let moved_l2 = others_l2 + weight * moved * moved;
            if moved_l2 > 0.0 && moved_xl * moved_xl * sum_l2 > sum_xl * sum_xl * moved_l2 {
                (*code, sum_xl, sum_l2) = (moved, moved_xl, moved_l2);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let scale = if sum_l2 > 0.0 { sum_xl / sum_l2 } else { 0.0 };
    (scale, codes.map(|code| (code + 4.0) as u8))
}
