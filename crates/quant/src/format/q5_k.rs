//! `Q5_K`: value = d × scale × q − dmin × min, q of 5 bits, scale and min of 6 bits for 32 values.

use super::block::groups;
use super::{Block, BlockFormat, Parts};
use crate::affine::{Search, magnitude_and_rms};
use crate::bits::{pack, unpack};
use crate::numerics::multiples;
use crate::packed_scales::{pack_scales_mins, unpack_scales_mins};
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::ops::RangeInclusive;

/// 256 values in 8 groups with their own scales and minima.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    /// The scale of the scales.
    pub d: f16,
    /// The scale of the minima.
    pub dmin: f16,
    /// The groups' scales and minima, see [`unpack_scales_mins`].
    pub scales: [u8; 12],
    /// The highest bits of the codes: eight planes of 32.
    pub qh: [u8; 32],
    /// The low four bits: 64 values in 32 bytes, two planes of 32.
    pub qs: [u8; 128],
}

const _: () = assert!(size_of::<BlockQ5K>() == 176);

impl Block for BlockQ5K {
    const FORMAT: BlockFormat = BlockFormat::Q5K;
    const LEN: usize = 256;
    const GROUP: usize = 32;
    const CODES: RangeInclusive<i8> = 0..=31;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        unpack::<4, 32>(&self.qs, 0, parts.codes);
        unpack::<1, 32>(&self.qh, 4, parts.codes);
        let (scales, mins) = unpack_scales_mins(&self.scales);
        parts.scales.copy_from_slice(&multiples(self.d, &scales));
        parts.minima.copy_from_slice(&multiples(self.dmin, &mins));
    }

    fn quantize(x: &[f32]) -> Self {
        let search = Search {
            max_code: 31,
            max_scale: 63,
            first_step: -0.5,
            candidates: 16,
            weights: magnitude_and_rms,
            error: |x| x * x,
        };
        let block = search.quantize::<32, 8>(groups(x));
        let codes = block.codes.as_flattened();
        let (mut qh, mut qs) = ([0; 32], [0; 128]);
        pack::<4, 32>(codes, 0, &mut qs);
        pack::<1, 32>(codes, 4, &mut qh);
        Self {
            d: block.d,
            dmin: block.dmin,
            scales: pack_scales_mins(&block.scales, &block.mins),
            qh,
            qs,
        }
    }
}
