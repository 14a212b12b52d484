//! `Q8_K`.

use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::simd::Simd;
use rustorch_quant::BlockQ8K;

impl Unpack for BlockQ8K {
    type Slab = Self;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &Self) -> Unpacked<S> {
        let mut codes = [s.splat(S::BIAS); 4];
        for (codes, bytes) in codes.iter_mut().zip(slab.qs.as_chunks::<64>().0) {
            *codes = s.xor(*codes, s.load(bytemuck::cast_ref(bytes)));
        }
        Unpacked {
            codes,
            scales: s.splat_f32(1.0),
            minima: s.splat_f32(0.0),
            units: [s.splat_f32(slab.d); 2],
        }
    }
}
