//! `Q2_K`: value = d × scale × q − dmin × min, q of 2 bits, scale and min of 4 bits for 16 values.

use super::block::{groups, groups_mut};
use super::{Block, BlockFormat};
use crate::affine::{Affine, Search};
use crate::bits::{pack, unpack};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// 256 values in 16 groups with their own scales and minima.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    /// The groups' scales in the low halves, their minima in the high halves.
    pub scales: [u8; 16],
    /// Codes, two bits each: 128 values in 32 bytes, four planes of 32.
    pub qs: [u8; 64],
    /// The scale of the scales.
    pub d: f16,
    /// The scale of the minima.
    pub dmin: f16,
}

const _: () = assert!(size_of::<BlockQ2K>() == 84);

impl BlockQ2K {
    /// The codes, 0 to 3, in the order of the values.
    #[inline]
    pub fn codes(&self) -> [u8; 256] {
        let mut codes = [0; 256];
        unpack::<2, 32>(&self.qs, 0, &mut codes);
        codes
    }
}

impl Block for BlockQ2K {
    const FORMAT: BlockFormat = BlockFormat::Q2K;
    const LEN: usize = 256;

    fn dequantize(&self, out: &mut [f32]) {
        let scales = self.scales.map(|packed| packed & 0xF);
        let mins = self.scales.map(|packed| packed >> 4);
        let codes = bytemuck::cast(self.codes());
        let block = Affine {
            d: self.d,
            dmin: self.dmin,
            scales,
            mins,
            codes,
        };
        block.dequantize(groups_mut::<16, 16>(out));
    }

    fn quantize(x: &[f32]) -> Self {
        let search = Search {
            max_code: 3,
            max_scale: 15,
            first_step: -0.5,
            candidates: 16,
            weights: |x: &[f32; 16]| x.map(f32::abs),
            error: f32::abs,
        };
        let block = search.quantize::<16, 16>(groups(x));
        let mut qs = [0; 64];
        pack::<2, 32>(block.codes.as_flattened(), 0, &mut qs);
        let scales = std::array::from_fn(|j| block.scales[j] | block.mins[j] << 4);
        Self {
            scales,
            qs,
            d: block.d,
            dmin: block.dmin,
        }
    }
}
