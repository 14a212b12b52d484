//! `MXFP4`.

use super::{nibbles_of_32, short_scales_of_32};
use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::simd::{Simd, map};
use rustorch_quant::{Block, BlockMxfp4};

/// The numbers as codes.
static CODES: [u8; 16] = {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = BlockMxfp4::NUMBERS[i].wrapping_sub(*BlockMxfp4::CODES.start()) as u8;
        i += 1;
    }
    codes
};

impl Unpack for BlockMxfp4 {
    type Slab = [Self; 8];

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &[Self; 8]) -> Unpacked<S> {
        let indices = nibbles_of_32(s, slab, |block| &block.qs);
        Unpacked {
            codes: map(indices, |indices| s.look_up(&CODES, indices)),
            scales: short_scales_of_32(s, slab, Self::half_scale),
            minima: s.splat_f32(0.0),
            units: [s.splat_f32(1.0); 2],
        }
    }
}
