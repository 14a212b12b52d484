//! The compile-time view of a format: its block.

use super::BlockFormat;
use bytemuck::Pod;

/// A block of a format: [`Self::LEN`] values in the bytes that a GGUF file holds for them.
///
/// Blocks have an alignment of two bytes (`Q8_K`, which no file holds, of four), so the bytes of a
/// mapped tensor can be viewed in place with `bytemuck::try_cast_slice::<u8, Self>`.
pub trait Block: Pod {
    /// The run-time name of this format.
    const FORMAT: BlockFormat;
    /// Values in a block.
    const LEN: usize;

    /// Writes the block's values to `out`.
    ///
    /// # Panics
    /// Unless `out` holds [`Self::LEN`] values.
    fn dequantize(&self, out: &mut [f32]);

    /// Quantises [`Self::LEN`] values. NaN and infinities give a block without meaning.
    ///
    /// # Panics
    /// Unless `x` holds [`Self::LEN`] values.
    fn quantize(x: &[f32]) -> Self;
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

/// A block's output as an array, likewise.
#[inline(always)]
pub(super) fn exact_mut<const N: usize>(out: &mut [f32]) -> &mut [f32; N] {
    let len = out.len();
    out.try_into()
        .unwrap_or_else(|_| panic!("a block of {N} values cannot be written to a slice of {len}"))
}

/// A block's output as groups, likewise.
#[inline(always)]
pub(super) fn groups_mut<const GROUP: usize, const GROUPS: usize>(
    out: &mut [f32],
) -> &mut [[f32; GROUP]; GROUPS] {
    bytemuck::cast_mut(exact_mut::<256>(out))
}
