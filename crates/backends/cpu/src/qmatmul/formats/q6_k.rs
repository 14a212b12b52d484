//! `Q6_K`.

use super::SIXTEENS;
use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::simd::{Planes, Simd};
use rustorch_quant::BlockQ6K;

impl Unpack for BlockQ6K {
    type Slab = Self;
    #[cfg(target_arch = "x86_64")]
    const PRODUCT_BYTES: usize = 2;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &Self) -> Unpacked<S> {
        let mut codes = [s.splat(0); 4];
        let low = slab
            .ql
            .as_chunks::<64>()
            .0
            .iter()
            .zip(slab.qh.as_chunks::<32>().0);
        for (codes, (low, high)) in codes.as_chunks_mut::<2>().0.iter_mut().zip(low) {
            for (i, codes) in codes.iter_mut().enumerate() {
                let high = s.planes_of_32::<2>(high, 2 * i as u32);
                *codes = s.join(s.plane_of_64::<4>(low, i as u32), high, 4);
            }
        }
        Unpacked {
            codes,
            scales: s.pick_i8(&slab.scales, &SIXTEENS),
            minima: s.splat_f32(0.0),
            units: [s.splat_f16(slab.d.to_bits()); 2],
        }
    }
}
