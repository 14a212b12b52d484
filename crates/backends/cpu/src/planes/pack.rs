//! Operands in tiles of bf16.
//!
//! A word of a tile holds two values that are 16 apart along the sums, instead of neighbours: in
//! both operands, so that the sums are the same, and no value has to change its lane.

use std::arch::x86_64::*;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use crate::simd::amx::{Bytes, ROWS};
use crate::simd::{Avx512, transpose};

/// Values along the sums in a tile.
pub(crate) const DEPTH: usize = 32;
/// Rows of `a` or columns of `b` in a panel: those of two tiles.
pub(crate) const SIDE: usize = 2 * ROWS;

/// Do the planes and products of operands with these largest magnitudes keep clear of the ends of
/// f32's range? Not those of NaN.
pub(crate) fn is_tame(peak: f32) -> bool {
    const FAR: f32 = (1_u64 << 40) as f32;
    peak == 0.0 || (1.0 / FAR..=FAR).contains(&peak)
}

/// Two tiles of a panel, of one plane: its first 16 rows or columns, then the others.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Pair(pub(crate) [Bytes; 2]);

impl Pair {
    pub(crate) const ZERO: Self = Self([[[0; 64]; ROWS]; 2]);
}

/// Operand of the instruction that a tile becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A row for each row of `a`.
    Left,
    /// A word in each row for each column of `b`.
    Right,
}

/// A type of elements. Its functions need AVX-512 F and BW.
pub(crate) trait Number: Pod + Send + Sync {
    /// The words of a row of a tile of each of `N` planes. The values `low` belong into their lower
    /// halves, the others into the upper halves. Notes in `peak` how large they are.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn split<const N: usize>(
        low: &[Self; 16],
        high: &[Self; 16],
        peak: &mut __m512i,
    ) -> [__m512i; N];

    /// The bits, as f32, of the largest magnitude that was noted. They compare as magnitudes do, NaN
    /// above all.
    ///
    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    unsafe fn largest(peak: __m512i) -> u32 {
        // SAFETY: promised by the caller.
        unsafe { _mm512_reduce_max_epu32(peak) }
    }

    /// Rounds to the nearest, ties to even.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn store(lanes: &[f32; 16], out: &mut [Self; 16]);
}

impl Number for f32 {
    #[inline(always)]
    unsafe fn split<const N: usize>(
        low: &[f32; 16],
        high: &[f32; 16],
        peak: &mut __m512i,
    ) -> [__m512i; N] {
        // SAFETY: the references are to all lanes.
        unsafe {
            let [low, high] = [low, high].map(|lanes| _mm512_loadu_ps(lanes.as_ptr()));
            planes(low, high, peak)
        }
    }

    #[inline(always)]
    unsafe fn store(lanes: &[f32; 16], out: &mut [f32; 16]) {
        *out = *lanes;
    }
}

impl Number for f16 {
    #[inline(always)]
    unsafe fn split<const N: usize>(
        low: &[f16; 16],
        high: &[f16; 16],
        peak: &mut __m512i,
    ) -> [__m512i; N] {
        // SAFETY: the references are to all lanes.
        unsafe {
            let [low, high] =
                [low, high].map(|lanes| _mm512_cvtph_ps(_mm256_loadu_si256(lanes.as_ptr().cast())));
            planes(low, high, peak)
        }
    }

    #[inline(always)]
    unsafe fn store(lanes: &[f32; 16], out: &mut [f16; 16]) {
        // SAFETY: the references are to all lanes.
        unsafe {
            let x = _mm512_loadu_ps(lanes.as_ptr());
            let near = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), near);
        }
    }
}

impl Number for bf16 {
    /// The first plane is all of them; the others are zero.
    #[inline(always)]
    unsafe fn split<const N: usize>(
        low: &[bf16; 16],
        high: &[bf16; 16],
        peak: &mut __m512i,
    ) -> [__m512i; N] {
        // SAFETY: the references are to all lanes.
        unsafe {
            let [low, high] = [low, high]
                .map(|lanes| _mm512_cvtepu16_epi32(_mm256_loadu_si256(lanes.as_ptr().cast())));
            let words = _mm512_or_si512(low, _mm512_slli_epi32::<16>(high));
            let magnitudes = _mm512_and_si512(words, _mm512_set1_epi16(0x7FFF));
            *peak = _mm512_max_epu16(*peak, magnitudes);
            let mut planes = [_mm512_setzero_si512(); N];
            planes[0] = words;
            planes
        }
    }

    #[inline(always)]
    unsafe fn largest(peak: __m512i) -> u32 {
        // SAFETY: promised by the caller.
        unsafe {
            let halves = _mm512_max_epu32(peak, _mm512_slli_epi32::<16>(peak));
            _mm512_reduce_max_epu32(halves) & 0xFFFF_0000
        }
    }

    #[inline(always)]
    unsafe fn store(lanes: &[f32; 16], out: &mut [bf16; 16]) {
        // SAFETY: the references are to all lanes.
        unsafe {
            let x = _mm512_loadu_si512(lanes.as_ptr().cast());
            let even = _mm512_and_si512(_mm512_srli_epi32::<16>(x), _mm512_set1_epi32(1));
            let near = _mm512_add_epi32(x, _mm512_add_epi32(even, _mm512_set1_epi32(0x7FFF)));
            let x = _mm512_castsi512_ps(x);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let near = _mm512_mask_mov_epi32(near, nan, _mm512_set1_epi32(0x7FC0_0000));
            let near = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(near));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), near);
        }
    }
}

/// Packs a panel from `data`. The rows of `a` or columns of `b`, and the elements of a sum, are
/// `strides` apart. `sizes` has their numbers. Each 32 along the sums make a pair of tiles of each
/// of `N` planes, with zeros past the ends. Returns the bits of the largest magnitude, which
/// compare as magnitudes do, NaN above all.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn pack<T: Number, const N: usize>(
    s: Avx512,
    data: &[T],
    strides: [usize; 2],
    sizes: [usize; 2],
    role: Role,
    panel: &mut [Pair],
) -> u32 {
    let [outer, inner] = strides;
    let mut peak = _mm512_setzero_si512();
    for (i, pairs) in panel.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        let k = i * DEPTH;
        let (lines, depth) = (sizes[0].min(SIDE), (sizes[1] - k).min(DEPTH));
        let data = &data[(k * inner).min(data.len())..];
        let mut filled;
        let (data, stride, native) = if [lines, depth] == [SIDE, DEPTH] && inner == 1 {
            (data, outer, Role::Left)
        } else if [lines, depth] == [SIDE, DEPTH] && outer == 1 {
            (data, inner, Role::Right)
        } else {
            filled = [[T::zeroed(); DEPTH]; SIDE];
            for (line, values) in filled[..lines].iter_mut().enumerate() {
                for (k, value) in values[..depth].iter_mut().enumerate() {
                    *value = data[line * outer + k * inner];
                }
            }
            (filled.as_flattened(), DEPTH, Role::Left)
        };
        // How far the tiles and the values of a word lie apart: the lanes are along the sums or
        // across.
        let (tile, word) = match native {
            Role::Left => (ROWS * stride, ROWS),
            Role::Right => (ROWS, ROWS * stride),
        };
        for row in 0..ROWS {
            // Both tiles before the next row: their lanes may share a line of the cache.
            for half in 0..2 {
                let start = row * stride + half * tile;
                let lanes = |at: usize| data[at..].first_chunk();
                let (Some(low), Some(high)) = (lanes(start), lanes(start + word)) else {
                    panic!("an operand of a product ends too soon");
                };
                // SAFETY: the machine has the instructions.
                let planes = unsafe { T::split::<N>(low, high, &mut peak) };
                for (pair, words) in pairs.iter_mut().zip(planes) {
                    let out = &mut pair.0[half][row];
                    // SAFETY: the reference is to 64 bytes, which are aligned.
                    unsafe { _mm512_store_si512(out.as_mut_ptr().cast(), words) };
                }
            }
        }
        if native != role {
            let tiles = pairs.iter_mut().flat_map(|pair| &mut pair.0);
            tiles.for_each(|tile| transpose(s, tile));
        }
    }
    // SAFETY: the machine has the instructions.
    unsafe { T::largest(peak) }
}

/// The words of planes of values that add up to them, or nearly. Each is the bf16 nearest to the
/// rest that those before leave.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn planes<const N: usize>(mut low: __m512, mut high: __m512, peak: &mut __m512i) -> [__m512i; N] {
    for lanes in [low, high] {
        *peak = _mm512_max_epu32(*peak, _mm512_castps_si512(_mm512_abs_ps(lanes)));
    }
    let mut planes = [_mm512_setzero_si512(); N];
    for plane in &mut planes {
        let upper = [&mut low, &mut high].map(|lanes| {
            let near = _mm512_add_epi32(_mm512_castps_si512(*lanes), _mm512_set1_epi32(0x8000));
            let near = _mm512_and_si512(near, _mm512_set1_epi32(-0x1_0000));
            *lanes = _mm512_sub_ps(*lanes, _mm512_castsi512_ps(near));
            near
        });
        *plane = _mm512_or_si512(_mm512_srli_epi32::<16>(upper[0]), upper[1]);
    }
    planes
}
