//! `Q8_K`: value = d × q, q of 8 bits with sign, and sums of the codes.
//!
//! No file holds it: it is the other operand of dot products with the K formats.

use super::block::{exact, exact_mut};
use super::{Block, BlockFormat};
use crate::numerics::{nearest_int, peak};
use bytemuck::{Pod, Zeroable};

/// 256 values with a common scale.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8K {
    /// The scale.
    pub d: f32,
    /// The codes.
    pub qs: [i8; 256],
    /// The sums of 16 codes each.
    pub bsums: [i16; 16],
}

const _: () = assert!(size_of::<BlockQ8K>() == 292);

impl Block for BlockQ8K {
    const FORMAT: BlockFormat = BlockFormat::Q8K;
    const LEN: usize = 256;

    fn dequantize(&self, out: &mut [f32]) {
        for (out, q) in exact_mut::<256>(out).iter_mut().zip(self.qs) {
            *out = self.d * f32::from(q);
        }
    }

    fn quantize(x: &[f32]) -> Self {
        let x = exact::<256>(x);
        let peak = peak(x);
        if peak == 0.0 {
            return Self::zeroed();
        }
        let inverse = -127.0 / peak;
        let qs = x.map(|x| nearest_int(inverse * x).min(127) as i8);
        let mut bsums = [0; 16];
        for (sum, qs) in bsums.iter_mut().zip(qs.as_chunks::<16>().0) {
            *sum = qs.iter().copied().map(i16::from).sum();
        }
        Self {
            d: 1.0 / inverse,
            qs,
            bsums,
        }
    }
}
