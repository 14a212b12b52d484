//! `Q2_K`.

use super::SIXTEENS;
use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::simd::{Planes, Simd};
use rustorch_quant::BlockQ2K;

impl Unpack for BlockQ2K {
    type Slab = Self;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &Self) -> Unpacked<S> {
        let mut codes = [s.splat(0); 4];
        let chunks = codes
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(slab.qs.as_chunks::<32>().0);
        for (codes, chunk) in chunks {
            for (plane, codes) in (0..).step_by(2).zip(codes) {
                *codes = s.planes_of_32::<2>(chunk, plane);
            }
        }
        let packed = u128::from_le_bytes(slab.scales);
        let lower = u128::from_le_bytes([0x0F; 16]);
        let scales = s.pick_u8(&(packed & lower).to_le_bytes(), &SIXTEENS);
        let minima = s.pick_u8(&(packed >> 4 & lower).to_le_bytes(), &SIXTEENS);
        Unpacked {
            codes,
            scales,
            minima,
            units: s.splat_f16s([slab.d.to_bits(), slab.dmin.to_bits()]),
        }
    }
}
