//! `Q4_0`.

use super::{nibbles_of_32, scales_of_32};
use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::simd::Simd;
use rustorch_quant::BlockQ4_0;

impl Unpack for BlockQ4_0 {
    type Slab = [Self; 8];

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &[Self; 8]) -> Unpacked<S> {
        Unpacked {
            codes: nibbles_of_32(s, slab, |block| &block.qs),
            scales: scales_of_32(s, slab, |block| block.d),
            minima: s.splat_f32(0.0),
            units: [s.splat_f32(1.0); 2],
        }
    }
}
