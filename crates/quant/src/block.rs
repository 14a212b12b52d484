//! The compile-time view of a format: its block.

use crate::BlockFormat;
use bytemuck::Pod;

/// A block of a format: [`Self::LEN`] values in the bytes that a GGUF file holds for them.
///
/// Blocks need two-byte alignment at most (`Q8_K`, which no file holds: four), so the bytes of a mapped tensor can be viewed in place with
/// `bytemuck::try_cast_slice::<u8, Self>`.
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
}

/// Converts whole blocks of any alignment. The caller has matched the lengths.
pub(crate) fn dequantize_blocks<B: Block>(src: &[u8], dst: &mut [f32]) {
    for (bytes, out) in src
        .chunks_exact(size_of::<B>())
        .zip(dst.chunks_exact_mut(B::LEN))
    {
        bytemuck::pod_read_unaligned::<B>(bytes).dequantize(out);
    }
}

/// The block's output as an array, which makes the length known to the compiler.
pub(crate) fn exact_mut<const N: usize>(out: &mut [f32]) -> &mut [f32; N] {
    let len = out.len();
    out.try_into()
        .unwrap_or_else(|_| panic!("a block of {N} values cannot be written to a slice of {len}"))
}
