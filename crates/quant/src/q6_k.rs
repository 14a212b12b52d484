//! `Q6_K`: value = d × scale × (q − 32), q of 6 bits, a scale of 8 bits for 16 values.

use crate::bits::unpack;
use crate::block::exact_mut;
use crate::{Block, BlockFormat};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// 256 values in 16 groups with their own scales.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// The low four bits of the codes: 128 values in 64 bytes, two planes of 64.
    pub ql: [u8; 128],
    /// The high two bits: 128 values in 32 bytes, four planes of 32.
    pub qh: [u8; 64],
    /// The groups' scales.
    pub scales: [i8; 16],
    /// The scale of the scales.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ6K>() == 210);

impl BlockQ6K {
    /// The codes, 0 to 63, in the order of the values.
    #[inline]
    pub fn codes(&self) -> [u8; 256] {
        let mut codes = [0; 256];
        unpack::<4, 64>(&self.ql, 0, &mut codes);
        unpack::<2, 32>(&self.qh, 4, &mut codes);
        codes
    }
}

impl Block for BlockQ6K {
    const FORMAT: BlockFormat = BlockFormat::Q6K;
    const LEN: usize = 256;

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        let codes = self.codes();
        let groups = exact_mut::<256>(out)
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<16>().0);
        for ((out, codes), scale) in groups.zip(self.scales) {
            let scale = d * f32::from(scale);
            for (out, &q) in out.iter_mut().zip(codes) {
                *out = scale * f32::from(q as i8 - 32);
            }
        }
    }
}
