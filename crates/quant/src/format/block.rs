//! The compile-time view of a format: its block.

use super::BlockFormat;
use bytemuck::Pod;
use std::ops::RangeInclusive;

/// The most values of a block.
pub const MOST_VALUES: usize = 256;
/// The fewest values of a group.
pub const LEAST_GROUP: usize = 16;
/// The most groups of a block.
const MOST_GROUPS: usize = MOST_VALUES / LEAST_GROUP;

/// Parts of a block, or of several one after the other.
#[derive(Debug)]
pub struct Parts<'a> {
    /// A code for each value: bytes in two's complement.
    pub codes: &'a mut [u8],
    /// A scale for each group.
    pub scales: &'a mut [f32],
    /// A minimum for each group.
    pub minima: &'a mut [f32],
}

/// A block of a format: [`Self::LEN`] values in the bytes that a GGUF file holds for them.
///
/// Blocks have an alignment of two bytes (`Q8_K`, which no file holds, of four). So the bytes of a mapped
/// tensor can be viewed in place with `bytemuck::try_cast_slice::<u8, Self>`.
///
/// A value is the scale of its group times its code, less the minimum of the group. All uses of a format follow
/// from that.
pub trait Block: Pod {
    /// The run-time name of this format.
    const FORMAT: BlockFormat;
    /// Values in a block: at most [`MOST_VALUES`].
    const LEN: usize;
    /// Values in a group: at least [`LEAST_GROUP`].
    const GROUP: usize;
    /// The range of the codes.
    const CODES: RangeInclusive<i8>;
    /// Do groups have a minimum? Then codes are not negative.
    const HAS_MINIMA: bool = false;

    /// Writes the block's codes, scales and minima to zeroed parts of its size.
    fn unpack_into(&self, parts: Parts<'_>);

    /// Writes the block's values to `out`.
    ///
    /// # Panics
    /// Panics unless `out` holds [`Self::LEN`] values.
    fn dequantize(&self, out: &mut [f32]) {
        let (len, expected) = (out.len(), Self::LEN);
        assert!(
            len == expected,
            "a block of {expected} values cannot be written to a slice of {len}"
        );
        if Self::LEN <= 32 {
            write_values::<Self, 32, 2>(self, out);
        } else {
            write_values::<Self, MOST_VALUES, MOST_GROUPS>(self, out);
        }
    }

    /// Quantises [`Self::LEN`] values. NaN and infinities give a block without meaning.
    ///
    /// # Panics
    /// Panics unless `x` holds [`Self::LEN`] values.
    fn quantize(x: &[f32]) -> Self;
}

/// Writes a block's values, with room for so many and their groups.
#[inline(always)]
fn write_values<B: Block, const VALUES: usize, const GROUPS: usize>(block: &B, out: &mut [f32]) {
    let (mut codes, [mut scales, mut minima]) = ([0; VALUES], [[0.0; GROUPS]; 2]);
    block.unpack_into(Parts {
        codes: &mut codes[..B::LEN],
        scales: &mut scales[..B::LEN / B::GROUP],
        minima: &mut minima[..B::LEN / B::GROUP],
    });
    let groups = out
        .chunks_exact_mut(B::GROUP)
        .zip(codes.chunks_exact(B::GROUP));
    for ((out, codes), (scale, minimum)) in groups.zip(scales.iter().zip(&minima)) {
        for (value, code) in out.iter_mut().zip(codes) {
            *value = scale * f32::from(*code as i8) - minimum;
        }
    }
}

/// Converts whole blocks of any alignment. The caller has matched the lengths.
pub(super) fn dequantize_blocks<B: Block>(src: &[u8], dst: &mut [f32]) {
    for (bytes, out) in src
        .chunks_exact(size_of::<B>())
        .zip(dst.chunks_exact_mut(B::LEN))
    {
        bytemuck::pod_read_unaligned::<B>(bytes).dequantize(out);
    }
}

/// Unpacks whole blocks of any alignment. The caller has matched the lengths.
pub(super) fn unpack_blocks<B: Block>(src: &[u8], parts: Parts<'_>) {
    let groups = B::LEN / B::GROUP;
    for (((bytes, codes), scales), minima) in src
        .chunks_exact(size_of::<B>())
        .zip(parts.codes.chunks_exact_mut(B::LEN))
        .zip(parts.scales.chunks_exact_mut(groups))
        .zip(parts.minima.chunks_exact_mut(groups))
    {
        bytemuck::pod_read_unaligned::<B>(bytes).unpack_into(Parts {
            codes,
            scales,
            minima,
        });
    }
}

/// Converts to whole blocks of any alignment. The caller has matched the lengths.
pub(super) fn quantize_blocks<B: Block>(src: &[f32], dst: &mut [u8]) {
    for (x, bytes) in src
        .chunks_exact(B::LEN)
        .zip(dst.chunks_exact_mut(size_of::<B>()))
    {
        bytes.copy_from_slice(bytemuck::bytes_of(&B::quantize(x)));
    }
}

/// A block's input as an array, which makes the length known to the compiler.
#[inline(always)]
pub(super) fn exact<const N: usize>(x: &[f32]) -> &[f32; N] {
    x.try_into().unwrap_or_else(|_| {
        panic!(
            "a block of {N} values cannot be made from a slice of {}",
            x.len()
        )
    })
}

/// A block's input as groups, likewise.
#[inline(always)]
pub(super) fn groups<const GROUP: usize, const GROUPS: usize>(
    x: &[f32],
) -> &[[f32; GROUP]; GROUPS] {
    bytemuck::cast_ref(exact::<256>(x))
}
