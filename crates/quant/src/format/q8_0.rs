//! `Q8_0`: value = d × q, q of 8 bits with sign.

use super::block::exact;
use super::{Block, BlockFormat, Parts};
use crate::numerics::{inverse, magnitude, round_ties_away};
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::ops::RangeInclusive;

/// 32 values with a common scale.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// The scale.
    pub d: f16,
    /// The codes.
    pub qs: [i8; 32],
}

const _: () = assert!(size_of::<BlockQ8_0>() == 34);

impl Block for BlockQ8_0 {
    const FORMAT: BlockFormat = BlockFormat::Q8_0;
    const LEN: usize = 32;
    const GROUP: usize = 32;
    const CODES: RangeInclusive<i8> = i8::MIN..=i8::MAX;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        parts.codes.copy_from_slice(bytemuck::cast_slice(&self.qs));
        parts.scales[0] = self.d.to_f32();
    }

    fn quantize(x: &[f32]) -> Self {
        let x = exact::<32>(x);
        let d = magnitude(x) / 127.0;
        let inverse = inverse(d);
        Self {
            d: f16::from_f32(d),
            qs: x.map(|x| round_ties_away(x * inverse) as i8),
        }
    }
}
