//! `Q3_K`.

use super::SIXTEENS;
use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::simd::{Planes, Simd, map};
use rustorch_quant::BlockQ3K;

impl Unpack for BlockQ3K {
    type Slab = Self;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &Self) -> Unpacked<S> {
        let mut codes = [s.splat(0); 4];
        let chunks = codes
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(slab.qs.as_chunks::<32>().0);
        for (i, (codes, chunk)) in chunks.enumerate() {
            for (j, codes) in codes.iter_mut().enumerate() {
                let plane = 2 * j as u32;
                let low = s.planes_of_32::<2>(chunk, plane);
                let high = s.planes_of_32::<1>(&slab.hmask, 4 * i as u32 + plane);
                *codes = s.join(low, high, 2);
            }
        }
        // From -32 to 31. Negated, so that they times codes from -4 to 3 fit bytes.
        let scales = map(slab.group_scales(), |scale| -scale);
        Unpacked {
            codes,
            scales: s.pick_i8(&scales, &SIXTEENS),
            minima: s.splat_f32(0.0),
            units: [s.splat_f16((-slab.d).to_bits()); 2],
        }
    }
}
