//! Unpacking of each block format's codes, scales and minima into vectors.

mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;

use super::activations::lane_of;
use crate::simd::{Planes, Simd, map};

/// For each lane the group of 16 weights that it belongs to: the inverse of [`lane_of`].
static SIXTEENS: [u8; 16] = groups(16);
/// For each lane the group of 32 weights that it belongs to.
static THIRTY_TWOS: [u8; 16] = groups(32);

const fn groups(size: usize) -> [u8; 16] {
    let mut groups = [0; 16];
    let mut sixteen = 0;
    while sixteen < 16 {
        groups[lane_of(sixteen)] = (sixteen * 16 / size) as u8;
        sixteen += 1;
    }
    groups
}

/// The eight scales (or minima) of a slab of blocks of 32.
#[inline(always)]
fn scales_of_32<S: Simd, B>(s: S, slab: &[B; 8], scale: impl Fn(&B) -> half::f16) -> S::F {
    let halves = halves_of_32(slab, |block| scale(block).to_bits());
    s.pick_f16(&halves, &THIRTY_TWOS)
}

/// The eight scales of a slab of blocks of 32 that are numbers of bf16.
#[inline(always)]
fn short_scales_of_32<S: Simd, B>(s: S, slab: &[B; 8], scale: impl Fn(&B) -> f32) -> S::F {
    let halves = halves_of_32(slab, |block| (scale(block).to_bits() >> 16) as u16);
    s.pick_bf16(&halves, &THIRTY_TWOS)
}

/// A half for each block of a slab of blocks of 32.
#[inline(always)]
fn halves_of_32<B>(slab: &[B; 8], half: impl Fn(&B) -> u16) -> [u16; 8] {
    // Put together outside of the vector unit, which has enough to do.
    let halves = slab.as_chunks::<4>().0.iter().map(|blocks| {
        let bits = |i: usize| u64::from(half(&blocks[i])) << (16 * i);
        bits(0) | bits(1) | bits(2) | bits(3)
    });
    let mut words = [0_u64; 2];
    words
        .iter_mut()
        .zip(halves)
        .for_each(|(word, bits)| *word = bits.to_le());
    bytemuck::cast(words)
}

/// The 4-bit codes of a slab of blocks of 32 whose halves are planes.
#[inline(always)]
fn nibbles_of_32<S: Simd, B>(s: S, slab: &[B; 8], nibbles: impl Fn(&B) -> &[u8; 16]) -> [S::V; 4] {
    let mut codes = [s.splat(0); 4];
    for (codes, pair) in codes.iter_mut().zip(slab.as_chunks::<2>().0) {
        *codes = s.planes_of_16::<4>(nibbles(&pair[0]), nibbles(&pair[1]));
    }
    codes
}

/// The 5-bit codes of a slab of blocks of 32: the highest bits are in a word.
#[inline(always)]
fn fives_of_32<S: Simd, B>(
    s: S,
    slab: &[B; 8],
    nibbles: impl Fn(&B) -> &[u8; 16],
    high: impl Fn(&B) -> [u8; 4],
) -> [S::V; 4] {
    let mut codes = nibbles_of_32(s, slab, nibbles);
    for (codes, [first, second]) in codes.iter_mut().zip(slab.as_chunks::<2>().0) {
        let bits = map([first, second], |block| {
            u64::from(u32::from_le_bytes(high(block)))
        });
        *codes = s.or(*codes, s.spread_bits(bits[0] | bits[1] << 32, 1 << 4));
    }
    codes
}

/// The codes of a slab of blocks of 32 bytes with sign.
#[inline(always)]
fn bytes_of_32<S: Simd, B>(s: S, slab: &[B; 8], bytes: impl Fn(&B) -> &[i8; 32]) -> [S::V; 4] {
    let mut codes = [s.splat(S::BIAS); 4];
    for (codes, [first, second]) in codes.iter_mut().zip(slab.as_chunks::<2>().0) {
        let halves = map([first, second], |block| bytemuck::cast_ref(bytes(block)));
        *codes = s.xor(*codes, s.load_halves(halves[0], halves[1]));
    }
    codes
}

/// The eight 6-bit scales and minima that `Q4_K` and `Q5_K` keep in 12 bytes, as bytes:
/// `rustorch_quant::unpack_scales_mins`, a word at a time.
#[inline(always)]
fn six_bits(packed: &[u8; 12]) -> [[u8; 16]; 2] {
    let [a, b, c] = bytemuck::cast::<_, [u32; 3]>(*packed).map(u64::from);
    let scales = a & 0x3F3F_3F3F | (c & 0x0F0F_0F0F | a >> 2 & 0x3030_3030) << 32;
    let minima = b & 0x3F3F_3F3F | (c >> 4 & 0x0F0F_0F0F | b >> 2 & 0x3030_3030) << 32;
    [scales, minima].map(|eight| bytemuck::cast([eight.to_le(), 0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustorch_quant::unpack_scales_mins;

    #[test]
    fn six_bits_are_those_of_the_format() {
        let packed = std::array::from_fn(|i| (i * 89 + 41) as u8);
        let (scales, minima) = unpack_scales_mins(&packed);
        let unpacked = six_bits(&packed);
        assert_eq!(unpacked[0][..8], scales);
        assert_eq!(unpacked[1][..8], minima);
    }
}
