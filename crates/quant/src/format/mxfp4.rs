//! `MXFP4` of the OCP Microscaling Formats, version 1.0: value = d × q, q of 4 bits in floating point (E2M1), d a power
//! of two (E8M0).

use super::block::exact;
use super::{Block, BlockFormat, Parts};
use crate::bits::{pack, unpack};
use crate::numerics::magnitude;
use bytemuck::{Pod, Zeroable};
use std::ops::RangeInclusive;

/// 32 values with a common scale.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    /// The scale's exponent plus 127.
    pub e: u8,
    /// Indices of [`Self::NUMBERS`]: the low halves are values 0 to 15, the high halves 16 to 31.
    pub qs: [u8; 16],
}

const _: () = assert!(size_of::<BlockMxfp4>() == 17);

impl BlockMxfp4 {
    /// The numbers of E2M1, doubled.
    pub const NUMBERS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

    /// Half of the scale, for doubled numbers. ggml has no NaN: the largest exponent is one as any other.
    #[inline(always)]
    pub fn half_scale(&self) -> f32 {
        f32::from_bits(match self.e {
            // Below the normal numbers.
            0 | 1 => 0x0020_0000 << self.e,
            e => u32::from(e - 1) << 23,
        })
    }
}

/// The exponent of the scale that makes the largest magnitude about 4, plus 127.
fn exponent(magnitude: f32) -> u8 {
    if magnitude > 0.0 {
        // In double precision: a logarithm of less may differ from one system to the next.
        let log = f64::from(magnitude).log2() as f32;
        // Below −127 the lowest byte is kept, as x86 does with ggml's conversion.
        (log.floor() + 125.0) as i32 as u8
    } else {
        0
    }
}

impl Block for BlockMxfp4 {
    const FORMAT: BlockFormat = BlockFormat::Mxfp4;
    const LEN: usize = 32;
    const GROUP: usize = 32;
    const CODES: RangeInclusive<i8> = -12..=12;

    #[inline(always)]
    fn unpack_into(&self, parts: Parts<'_>) {
        unpack::<4, 16>(&self.qs, 0, parts.codes);
        for code in parts.codes {
            *code = Self::NUMBERS[usize::from(*code)] as u8;
        }
        parts.scales[0] = self.half_scale();
    }

    fn quantize(x: &[f32]) -> Self {
        let x = exact::<32>(x);
        let mut block = Self {
            e: exponent(magnitude(x)),
            qs: [0; 16],
        };
        let scale = block.half_scale();
        // The first of the nearest, which ties depend on.
        let (mut codes, mut least) = ([0; 32], [f32::INFINITY; 32]);
        for (code, number) in (0_u8..).zip(Self::NUMBERS) {
            let value = f32::from(number) * scale;
            for ((x, least), nearest) in x.iter().zip(&mut least).zip(&mut codes) {
                let error = (value - x).abs();
                if error < *least {
                    (*least, *nearest) = (error, code);
                }
            }
        }
        pack::<4, 16>(&codes, 0, &mut block.qs);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_scales_are_powers_of_two() {
        for e in 0..=u8::MAX {
            let block = BlockMxfp4 { e, qs: [0; 16] };
            let expected = 2_f64.powi(i32::from(e) - 128);
            assert_eq!(f64::from(block.half_scale()), expected, "{e}");
        }
    }

    #[test]
    fn numbers_are_those_of_e2m1() {
        for (bits, number) in (0_u8..).zip(BlockMxfp4::NUMBERS) {
            let (sign, exponent, mantissa) = (bits >> 3, bits >> 1 & 3, bits & 1);
            let magnitude = match exponent {
                0 => f32::from(mantissa) / 2.0,
                exponent => (1.0 + f32::from(mantissa) / 2.0) * 2_f32.powi(i32::from(exponent) - 1),
            };
            let expected = if sign == 1 { -magnitude } else { magnitude };
            assert_eq!(f32::from(number) / 2.0, expected, "{bits}");
        }
    }
}
