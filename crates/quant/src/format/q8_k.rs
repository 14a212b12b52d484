//! `Q8_K`: value = d × q, q of 8 bits with sign, and sums of the codes.
//!
//! No file holds it: it is the other operand of dot products with the K formats.

use super::block::exact;
use super::{Block, BlockFormat, Parts};
use crate::numerics::{nearest_int, peak};
use bytemuck::{Pod, Zeroable};
use std::ops::RangeInclusive;

/// 256 values with a common scale.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8K {
    /// The scale.
    pub d: f32,
    /// The codes.
    pub qs: [i8; 256],
    /// The sums of 16 codes each.
    pub bsums: [i16; 16],
}

const _: () = assert!(size_of::<BlockQ8K>() == 292);

impl Block for BlockQ8K {
    const FORMAT: BlockFormat = BlockFormat::Q8K;
    const LEN: usize = 256;
    const GROUP: usize = 256;
    const CODES: RangeInclusive<i8> = i8::MIN..=i8::MAX;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        parts.codes.copy_from_slice(bytemuck::cast_slice(&self.qs));
        parts.scales[0] = self.d;
    }

    fn quantize(x: &[f32]) -> Self {
        let x = exact::<256>(x);
        let peak = peak(x);
        if peak == 0.0 {
            return Self::zeroed();
        }
        let inverse = -127.0 / peak;
        let qs = x.map(|x| nearest_int(inverse * x).min(127) as i8);
        let mut bsums = [0; 16];
        for (sum, qs) in bsums.iter_mut().zip(qs.as_chunks::<16>().0) {
            *sum = qs.iter().copied().map(i16::from).sum();
        }
        Self {
            d: 1.0 / inverse,
            qs,
            bsums,
        }
    }
}
