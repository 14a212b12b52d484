//! `Q2_K`.

use super::SIXTEENS;
use crate::qmatmul::activations::Offset;
use crate::qmatmul::quantized::{Unpack, Unpacked};
use crate::qmatmul::simd::{Planes, Simd};
use rustorch_quant::BlockQ2K;

impl Unpack for BlockQ2K {
    type Slab = Self;
    const GROUP: usize = 16;
    const OFFSET: Offset = Offset::Minimum;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, slab: &Self) -> Unpacked<S> {
        let mut codes = [s.splat(0); 4];
        for (codes, chunk) in codes
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(slab.qs.as_chunks::<32>().0)
        {
            *codes = [0, 2].map(|plane| s.planes_of_32::<2>(chunk, plane));
        }
        let packed = u128::from_le_bytes(slab.scales);
        let [scales, minima] = [packed, packed >> 4].map(|nibbles| {
            let bytes = (nibbles & u128::from_le_bytes([0x0F; 16])).to_le_bytes();
            s.pick_u8(&bytes, &SIXTEENS)
        });
        Unpacked {
            codes,
            scales,
            minima,
            units: [slab.d, slab.dmin].map(|unit| s.splat_f16(unit.to_bits())),
        }
    }
}
