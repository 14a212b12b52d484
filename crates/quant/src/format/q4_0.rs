//! `Q4_0`: value = d × (q − 8), q of 4 bits.

use super::block::exact;
use super::{Block, BlockFormat, Parts};
use crate::bits::{centre, pack, unpack};
use crate::numerics::{inverse, peak, truncate};
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::ops::RangeInclusive;

/// 32 values with a common scale.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// The scale.
    pub d: f16,
    /// Codes: the low halves are values 0 to 15, the high halves 16 to 31.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ4_0>() == 18);

impl Block for BlockQ4_0 {
    const FORMAT: BlockFormat = BlockFormat::Q4_0;
    const LEN: usize = 32;
    const GROUP: usize = 32;
    const CODES: RangeInclusive<i8> = -8..=7;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        unpack::<4, 16>(&self.qs, 0, parts.codes);
        centre::<8>(parts.codes);
        parts.scales[0] = self.d.to_f32();
    }

    fn quantize(x: &[f32]) -> Self {
        let x = exact::<32>(x);
        let d = peak(x) / -8.0;
        let inverse = inverse(d);
        let codes = x.map(|x| (truncate(x * inverse + 8.5) as i8).min(15) as u8);
        let mut qs = [0; 16];
        pack::<4, 16>(&codes, 0, &mut qs);
        Self {
            d: f16::from_f32(d),
            qs,
        }
    }
}
