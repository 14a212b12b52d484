//! Operands in tiles of bf16.
//!
//! A word of a tile holds two values that are 16 apart along the sums, instead of neighbours: in
//! both operands, so that the sums are the same, and no value has to change its lane.

use std::arch::x86_64::*;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use crate::amx::{Bytes, ROWS};
use crate::qmatmul::{Avx512, transpose};

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

/// Which operand of the instruction a tile becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A row for each row of `a`.
    Left,
    /// A word in each row for each column of `b`.
    Right,
}

/// A type of elements. Its functions need AVX-512 F and BW.
pub(crate) trait Number: Pod + Send + Sync {
    /// Exactly these values.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn load(lanes: &[Self; 16]) -> __m512;

    /// Rounds to the nearest, ties to even.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn store(lanes: &[f32; 16], out: &mut [Self; 16]);
}

impl Number for f32 {
    #[inline(always)]
    unsafe fn load(lanes: &[f32; 16]) -> __m512 {
        // SAFETY: the reference is to all lanes.
        unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store(lanes: &[f32; 16], out: &mut [f32; 16]) {
        *out = *lanes;
    }
}

impl Number for f16 {
    #[inline(always)]
    unsafe fn load(lanes: &[f16; 16]) -> __m512 {
        // SAFETY: the reference is to all lanes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(lanes.as_ptr().cast())) }
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
    #[inline(always)]
    unsafe fn load(lanes: &[bf16; 16]) -> __m512 {
        // SAFETY: the reference is to all lanes.
        unsafe {
            let lanes = _mm512_cvtepu16_epi32(_mm256_loadu_si256(lanes.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(lanes))
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

/// Packs a panel from `data`, in which rows of `a` or columns of `b` and what is summed are
/// `strides` apart and as many as `sizes`: for each 32 along the sums a pair of tiles of each of
/// `N` planes, with zeros past the ends. Returns the bits of the largest magnitude, which compare as
/// magnitudes do, NaN above all.
///
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
        for half in 0..2 {
            let (first, k) = (half * ROWS, i * DEPTH);
            let rows = sizes[0].saturating_sub(first).min(ROWS);
            let depth = (sizes[1] - k).min(DEPTH);
            let data = &data[(first * outer + k * inner).min(data.len())..];
            let mut filled;
            let (data, stride, native) = if [rows, depth] == [ROWS, DEPTH] && inner == 1 {
                (data, outer, Role::Left)
            } else if [rows, depth] == [ROWS, DEPTH] && outer == 1 {
                (data, inner, Role::Right)
            } else {
                filled = [[T::zeroed(); DEPTH]; ROWS];
                for (row, values) in filled[..rows].iter_mut().enumerate() {
                    for (k, value) in values[..depth].iter_mut().enumerate() {
                        *value = data[row * outer + k * inner];
                    }
                }
                (filled.as_flattened(), DEPTH, Role::Left)
            };
            // The lanes are along the sums or across.
            let apart = if native == Role::Left { 1 } else { stride } * ROWS;
            for row in 0..ROWS {
                let lanes = |at: usize| data[at..].first_chunk();
                let (Some(low), Some(high)) = (lanes(row * stride), lanes(row * stride + apart))
                else {
                    panic!("an operand of a product ends too soon");
                };
                // SAFETY: the machine has the instructions.
                let (low, high) = unsafe { (T::load(low), T::load(high)) };
                peak = _mm512_max_epu32(peak, _mm512_castps_si512(_mm512_abs_ps(low)));
                peak = _mm512_max_epu32(peak, _mm512_castps_si512(_mm512_abs_ps(high)));
                let (low, high) = (planes::<N>(low), planes::<N>(high));
                for plane in 0..N {
                    let words = _mm512_srli_epi32::<16>(low[plane]);
                    let words = _mm512_or_si512(words, high[plane]);
                    let out = &mut pairs[plane].0[half][row];
                    // SAFETY: the reference is to 64 bytes, which are aligned.
                    unsafe { _mm512_store_si512(out.as_mut_ptr().cast(), words) };
                }
            }
            if native != role {
                for Pair(tiles) in pairs.iter_mut() {
                    transpose(s, &mut tiles[half]);
                }
            }
        }
    }
    _mm512_reduce_max_epu32(peak)
}

/// Splits values into `N` that add up to them, or nearly, each the bf16 that is nearest to what
/// those before leave, in the upper half of its lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn planes<const N: usize>(mut x: __m512) -> [__m512i; N] {
    let (half, upper) = (_mm512_set1_epi32(0x8000), _mm512_set1_epi32(-0x1_0000));
    let mut planes = [_mm512_setzero_si512(); N];
    for plane in &mut planes {
        let near = _mm512_add_epi32(_mm512_castps_si512(x), half);
        *plane = _mm512_and_si512(near, upper);
        x = _mm512_sub_ps(x, _mm512_castsi512_ps(*plane));
    }
    planes
}
