//! `Q3_K`: value = d × scale × (q − 4), q of 3 bits, a scale of 6 bits for 16 values.

use crate::bits::{pack, unpack};
use crate::block::{exact_mut, groups};
use crate::numerics::{NEGLIGIBLE, nearest_int, peak};
use crate::{Block, BlockFormat};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// 256 values in 16 groups with their own scales.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// The highest bits of the codes: eight planes of 32.
    pub hmask: [u8; 32],
    /// The low two bits: 128 values in 32 bytes, four planes of 32.
    pub qs: [u8; 64],
    /// The groups' scales plus 32: the low four bits in eight bytes, two planes of 8, then the high two bits in four bytes, four planes of 4.
    pub scales: [u8; 12],
    /// The scale of the scales.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ3K>() == 110);

impl BlockQ3K {
    /// The codes, 0 to 7, in the order of the values.
    #[inline]
    pub fn codes(&self) -> [u8; 256] {
        let mut codes = [0; 256];
        unpack::<2, 32>(&self.qs, 0, &mut codes);
        unpack::<1, 32>(&self.hmask, 2, &mut codes);
        codes
    }

    /// The groups' scales, −32 to 31.
    #[inline]
    pub fn scales(&self) -> [i8; 16] {
        let mut scales = [0; 16];
        unpack::<4, 8>(&self.scales[..8], 0, &mut scales);
        unpack::<2, 4>(&self.scales[8..], 4, &mut scales);
        scales.map(|scale| scale as i8 - 32)
    }
}

impl Block for BlockQ3K {
    const FORMAT: BlockFormat = BlockFormat::Q3K;
    const LEN: usize = 256;

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        let codes = self.codes();
        let pairs = exact_mut::<256>(out)
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<16>().0);
        for ((out, codes), scale) in pairs.zip(self.scales()) {
            let scale = d * f32::from(scale);
            for (out, &q) in out.iter_mut().zip(codes) {
                *out = scale * f32::from(q as i8 - 4);
            }
        }
    }

    fn quantize(x: &[f32]) -> Self {
        let x: &[[f32; 16]; 16] = groups(x);
        let fits = x.each_ref().map(fit);
        let largest = peak(&fits.each_ref().map(|fit| fit.scale));
        let mut block = Self::zeroed();
        if largest != 0.0 {
            let inverse = -32.0 / largest;
            let scales = fits
                .each_ref()
                .map(|fit| ((nearest_int(inverse * fit.scale) as i8).clamp(-32, 31) + 32) as u8);
            pack::<4, 8>(&scales, 0, &mut block.scales[..8]);
            pack::<2, 4>(&scales, 4, &mut block.scales[8..]);
            block.d = f16::from_f32(1.0 / inverse);
        }
        let mut codes = fits.map(|fit| fit.codes);
        for ((codes, x), scale) in codes.iter_mut().zip(x).zip(block.scales()) {
            let scale = block.d.to_f32() * f32::from(scale);
            if scale != 0.0 {
                *codes = x.map(|x| (nearest_int(x / scale).clamp(-4, 3) + 4) as u8);
            }
        }
        pack::<2, 32>(codes.as_flattened(), 0, &mut block.qs);
        pack::<1, 32>(codes.as_flattened(), 2, &mut block.hmask);
        block
    }
}

/// A group's scale and codes.
struct Fit {
    scale: f32,
    codes: [u8; 16],
}

/// Searches the codes of least squared error, weighted with the squares of the values: starting from those of the group's range, one code at a time moves where that
/// improves the fit, in at most five passes. Source of the method: `make_q3_quants` in ggml-quants.c.
fn fit(x: &[f32; 16]) -> Fit {
    let peak = peak(x);
    if peak.abs() < NEGLIGIBLE {
        return Fit {
            scale: 0.0,
            codes: [0; 16],
        };
    }
    let inverse = -4.0 / peak;
    let mut codes = x.map(|x| nearest_int(inverse * x).clamp(-4, 3));
    // Weighted sums of value × code and of code². The scale of least error is their quotient, and the error falls as sum_xl² / sum_l2 rises.
    let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
    for (x, &code) in x.iter().zip(&codes) {
        sum_xl += x * x * x * code as f32;
        sum_l2 += x * x * code as f32 * code as f32;
    }
    for _ in 0..5 {
        let mut changed = false;
        for (x, code) in x.iter().zip(&mut codes) {
            let weight = x * x;
            let (old, other_xl) = (*code as f32, sum_xl - weight * x * *code as f32);
            if other_xl <= 0.0 {
                continue;
            }
            let other_l2 = sum_l2 - weight * old * old;
            let moved = nearest_int(x * other_l2 / other_xl).clamp(-4, 3);
            if moved == *code {
                continue;
            }
            let new_xl = other_xl + weight * x * moved as f32;
            let new_l2 = other_l2 + weight * moved as f32 * moved as f32;
            if new_l2 > 0.0 && new_xl * new_xl * sum_l2 > sum_xl * sum_xl * new_l2 {
                (*code, sum_xl, sum_l2) = (moved, new_xl, new_l2);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let scale = if sum_l2 > 0.0 { sum_xl / sum_l2 } else { 0.0 };
    Fit {
        scale,
        codes: codes.map(|code| (code + 4) as u8),
    }
}
