//! `Q4_0`: value = d × (q − 8), q of 4 bits.

use super::block::{exact, exact_mut};
use super::{Block, BlockFormat};
use crate::bits::{pack, unpack};
use crate::numerics::{inverse, peak, truncate};
use bytemuck::{Pod, Zeroable};
use half::f16;

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

impl BlockQ4_0 {
    /// The codes, 0 to 15, in the order of the values.
    #[inline]
    pub fn codes(&self) -> [u8; 32] {
        let mut codes = [0; 32];
        unpack::<4, 16>(&self.qs, 0, &mut codes);
        codes
    }
}

impl Block for BlockQ4_0 {
    const FORMAT: BlockFormat = BlockFormat::Q4_0;
    const LEN: usize = 32;

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (out, q) in exact_mut::<32>(out).iter_mut().zip(self.codes()) {
            *out = f32::from(q as i8 - 8) * d;
        }
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
