//! `Q5_0`: value = d × (q − 16), q of 5 bits.

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
pub struct BlockQ5_0 {
    /// The scale.
    pub d: f16,
    /// The highest bits of the codes, one after the other.
    pub qh: [u8; 4],
    /// The low four bits: the low halves are values 0 to 15, the high halves 16 to 31.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ5_0>() == 22);

impl Block for BlockQ5_0 {
    const FORMAT: BlockFormat = BlockFormat::Q5_0;
    const LEN: usize = 32;
    const GROUP: usize = 32;
    const CODES: RangeInclusive<i8> = -16..=15;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        unpack::<4, 16>(&self.qs, 0, parts.codes);
        unpack::<1, 1>(&self.qh, 4, parts.codes);
        centre::<16>(parts.codes);
        parts.scales[0] = self.d.to_f32();
    }

    fn quantize(x: &[f32]) -> Self {
        let x = exact::<32>(x);
        let d = peak(x) / -16.0;
        let inverse = inverse(d);
        let codes = x.map(|x| (truncate(x * inverse + 16.5) as i8).min(31) as u8);
        let (mut qh, mut qs) = ([0; 4], [0; 16]);
        pack::<4, 16>(&codes, 0, &mut qs);
        pack::<1, 1>(&codes, 4, &mut qh);
        Self {
            d: f16::from_f32(d),
            qh,
            qs,
        }
    }
}
