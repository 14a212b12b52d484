//! `Q3_K`: value = d × scale × (q − 4), q of 3 bits, a scale of 6 bits for 16 values.

use crate::bits::unpack;
use crate::block::exact_mut;
use crate::{Block, BlockFormat};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// 256 values in 16 groups with their own scales.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// The highest bits of the codes: eight planes of 32.
    pub hmask: [u8; 32],
    /// The low two bits: 128 values in 32 bytes, four planes of 32.
    pub qs: [u8; 64],
    /// The groups' scales plus 32: the low four bits in eight bytes, two planes of 8, then the high two bits in four bytes, four planes of 4.
    pub scales: [u8; 12],
    /// The scale of the scales.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ3K>() == 110);

impl BlockQ3K {
    /// The codes, 0 to 7, in the order of the values.
    #[inline]
    pub fn codes(&self) -> [u8; 256] {
        let mut codes = [0; 256];
        unpack::<2, 32>(&self.qs, 0, &mut codes);
        unpack::<1, 32>(&self.hmask, 2, &mut codes);
        codes
    }

    /// The groups' scales, −32 to 31.
    #[inline]
    pub fn scales(&self) -> [i8; 16] {
        let mut scales = [0; 16];
        unpack::<4, 8>(&self.scales[..8], 0, &mut scales);
        unpack::<2, 4>(&self.scales[8..], 4, &mut scales);
        scales.map(|scale| scale as i8 - 32)
    }
}

impl Block for BlockQ3K {
    const FORMAT: BlockFormat = BlockFormat::Q3K;
    const LEN: usize = 256;

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        let codes = self.codes();
        let groups = exact_mut::<256>(out)
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<16>().0);
        for ((out, codes), scale) in groups.zip(self.scales()) {
            let scale = d * f32::from(scale);
            for (out, &q) in out.iter_mut().zip(codes) {
                *out = scale * f32::from(q as i8 - 4);
            }
        }
    }
}
