//! `Q5_K`.

use super::{THIRTY_TWOS, six_bits};
use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::simd::{Planes, Simd};
use rustorch_quant::BlockQ5K;

impl Unpack for BlockQ5K {
    type Slab = Self;
    #[cfg(target_arch = "x86_64")]
    const PRODUCT_BYTES: usize = 2;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &Self) -> Unpacked<S> {
        let mut codes = [s.splat(0); 4];
        for (i, (codes, chunk)) in codes
            .iter_mut()
            .zip(slab.qs.as_chunks::<32>().0)
            .enumerate()
        {
            let high = s.planes_of_32::<1>(&slab.qh, 2 * i as u32);
            *codes = s.join(s.planes_of_32::<4>(chunk, 0), high, 4);
        }
        let [scales, minima] = six_bits(&slab.scales);
        Unpacked {
            codes,
            scales: s.pick_u8(&scales, &THIRTY_TWOS),
            minima: s.pick_u8(&minima, &THIRTY_TWOS),
            units: s.splat_f16s([slab.d.to_bits(), slab.dmin.to_bits()]),
        }
    }
}
