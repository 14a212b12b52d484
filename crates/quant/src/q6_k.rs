//! `Q6_K`: value = d × scale × (q − 32), q of 6 bits, a scale of 8 bits for 16 values.

use crate::bits::{pack, unpack};
use crate::block::{exact_mut, groups};
use crate::numerics::{NEGLIGIBLE, nearest_int, peak};
use crate::{Block, BlockFormat};
use bytemuck::{Pod, Zeroable};
use half::f16;

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

impl BlockQ6K {
    /// The codes, 0 to 63, in the order of the values.
    #[inline]
    pub fn codes(&self) -> [u8; 256] {
        let mut codes = [0; 256];
        unpack::<4, 64>(&self.ql, 0, &mut codes);
        unpack::<2, 32>(&self.qh, 4, &mut codes);
        codes
    }
}

impl Block for BlockQ6K {
    const FORMAT: BlockFormat = BlockFormat::Q6K;
    const LEN: usize = 256;

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        let codes = self.codes();
        let pairs = exact_mut::<256>(out)
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<16>().0);
        for ((out, codes), scale) in pairs.zip(self.scales) {
            let scale = d * f32::from(scale);
            for (out, &q) in out.iter_mut().zip(codes) {
                *out = scale * f32::from(q as i8 - 32);
            }
        }
    }

    fn quantize(x: &[f32]) -> Self {
        let x: &[[f32; 16]; 16] = groups(x);
        let fits = x.each_ref().map(fit);
        let largest = peak(&fits.each_ref().map(|fit| fit.scale));
        let mut block = Self::zeroed();
        if largest.abs() < NEGLIGIBLE {
            return block;
        }
        let inverse = -128.0 / largest;
        block.d = f16::from_f32(1.0 / inverse);
        block.scales = fits
            .each_ref()
            .map(|fit| nearest_int(inverse * fit.scale).min(127) as i8);
        let mut codes = fits.map(|fit| fit.codes);
        for ((codes, x), scale) in codes.iter_mut().zip(x).zip(block.scales) {
            let scale = block.d.to_f32() * f32::from(scale);
            if scale != 0.0 {
                *codes = x.map(|x| (nearest_int(x / scale).clamp(-32, 31) + 32) as u8);
            }
        }
        pack::<4, 64>(codes.as_flattened(), 0, &mut block.ql);
        pack::<2, 32>(codes.as_flattened(), 4, &mut block.qh);
        block
    }
}

/// A group's scale and codes.
struct Fit {
    scale: f32,
    codes: [u8; 16],
}

/// Searches the scale of least squared error, weighted with the squares of the values: the least-squares fits to the codes that 19 scales around the one of
/// the group's range give. Source of the method: `make_qx_quants` in ggml-quants.c.
fn fit(x: &[f32; 16]) -> Fit {
    let peak = peak(x);
    if peak.abs() < NEGLIGIBLE {
        return Fit {
            scale: 0.0,
            codes: [0; 16],
        };
    }
    let (mut best_inverse, mut scale, mut best) = (0.0, 0.0, f32::NEG_INFINITY);
    for step in std::iter::once(0).chain(-9..=-1).chain(1..=9) {
        let inverse = -(32.0 + 0.1 * step as f32) / peak;
        let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
        for x in x {
            let level = nearest_int(inverse * x).clamp(-32, 31) as f32;
            sum_xl += x * x * x * level;
            sum_l2 += x * x * level * level;
        }
        // The error falls as sum_xl² / sum_l2 rises.
        if step == 0 || sum_l2 > 0.0 && sum_xl * sum_xl > best * sum_l2 {
            scale = if sum_l2 == 0.0 { 0.0 } else { sum_xl / sum_l2 };
            best = scale * sum_xl;
            best_inverse = inverse;
        }
    }
    Fit {
        scale,
        codes: x.map(|x| (nearest_int(best_inverse * x).clamp(-32, 31) + 32) as u8),
    }
}
