//! `Q2_K`: value = d × scale × q − dmin × min, q of 2 bits, scale and min of 4 bits for 16 values.

use super::block::groups;
use super::{Block, BlockFormat, Parts};
use crate::affine::Search;
use crate::bits::{pack, unpack};
use crate::numerics::multiples;
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::ops::RangeInclusive;

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

impl Block for BlockQ2K {
    const FORMAT: BlockFormat = BlockFormat::Q2K;
    const LEN: usize = 256;
    const GROUP: usize = 16;
    const CODES: RangeInclusive<i8> = 0..=3;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        unpack::<2, 32>(&self.qs, 0, parts.codes);
        let scales = self.scales.map(|packed| packed & 0xF);
        let mins = self.scales.map(|packed| packed >> 4);
        parts.scales.copy_from_slice(&multiples(self.d, &scales));
        parts.minima.copy_from_slice(&multiples(self.dmin, &mins));
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
