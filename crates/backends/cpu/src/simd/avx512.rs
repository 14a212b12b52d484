//! AVX-512 with its byte dot product: 64 bytes are one register.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// A machine with AVX-512 F, BW, DQ, VL and VNNI, AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn run<K: Kernel>(s: Avx512, kernel: K) {
    kernel.run(s);
}

impl Simd for Avx512 {
    type V = __m512i;
    type F = __m512;

    const TOKENS: usize = 6;
    const PAIRS: bool = true;
    const SUMS: usize = 24;
    const BIAS: u8 = 0x80;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        // SAFETY: `self` proves that the machine has the features.
        unsafe { run(self, kernel) }
    }

    instructions! {
        fn load(bytes: &[u8; 64]) -> __m512i {
            _mm512_loadu_si512(bytes.as_ptr().cast())
        }
        fn load_halves(low: &[u8; 32], high: &[u8; 32]) -> __m512i {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.as_ptr().cast()));
            _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.as_ptr().cast()))
        }
        fn load_quarters(low: &[u8; 16], high: &[u8; 16]) -> __m512i {
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast()));
            let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast()));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
        fn store(v: __m512i, out: &mut [u8; 64]) {
            _mm512_storeu_si512(out.as_mut_ptr().cast(), v);
        }
        fn splat(byte: u8) -> __m512i {
            _mm512_set1_epi8(byte as i8)
        }
        fn splat_i32(lane: i32) -> __m512i {
            _mm512_set1_epi32(lane)
        }
        fn spread_bits(bits: u64, one: u8) -> __m512i {
            _mm512_maskz_set1_epi8(bits, one as i8)
        }

        fn and(a: __m512i, b: __m512i) -> __m512i {
            _mm512_and_si512(a, b)
        }
        fn or(a: __m512i, b: __m512i) -> __m512i {
            _mm512_or_si512(a, b)
        }
        fn xor(a: __m512i, b: __m512i) -> __m512i {
            _mm512_xor_si512(a, b)
        }
        fn shl(v: __m512i, by: u32) -> __m512i {
            _mm512_sllv_epi16(v, _mm512_set1_epi16(by as i16))
        }
        fn shr_halves(v: __m512i, low: u32, high: u32) -> __m512i {
            let low = _mm512_castsi256_si512(_mm256_set1_epi16(low as i16));
            let high = _mm256_set1_epi16(high as i16);
            _mm512_srlv_epi16(v, _mm512_inserti64x4::<1>(low, high))
        }
        fn shr_quarters(v: __m512i, even: u32, odd: u32) -> __m512i {
            let (even, odd) = (_mm_set1_epi16(even as i16), _mm_set1_epi16(odd as i16));
            _mm512_srlv_epi16(v, _mm512_broadcast_i64x4(_mm256_set_m128i(odd, even)))
        }

        fn mul_add_16(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
            _mm512_add_epi16(sum, _mm512_mullo_epi16(a, b))
        }
        fn look_up(table: &'static [u8; 16], indices: __m512i) -> __m512i {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indices)
        }
        fn add(a: __m512i, b: __m512i) -> __m512i {
            _mm512_add_epi32(a, b)
        }
        fn dot4(sum: __m512i, codes: __m512i, x: __m512i, _wide: bool) -> __m512i {
            _mm512_dpbusd_epi32(sum, codes, x)
        }
        fn sum_quarters(vs: [__m512i; 4]) -> __m512i {
            let [a, b, c, d] = vs;
            let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
        }
        fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
            let mut pairs = rows;
            for i in (0..16).step_by(2) {
                pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
                pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
            }
            // Quarter q of quads[4i + j] is column 4q + j of rows 4i to 4i + 3.
            let mut quads = pairs;
            for i in (0..16).step_by(4) {
                quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
                quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
                quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
                quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
            }
            let mut columns = quads;
            for j in 0..4 {
                let [a, b, c, d] = [quads[j], quads[4 + j], quads[8 + j], quads[12 + j]];
                let (ab01, ab23) =
                    (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xEE>(a, b));
                let (cd01, cd23) =
                    (_mm512_shuffle_i32x4::<0x44>(c, d), _mm512_shuffle_i32x4::<0xEE>(c, d));
                columns[j] = _mm512_shuffle_i32x4::<0x88>(ab01, cd01);
                columns[4 + j] = _mm512_shuffle_i32x4::<0xDD>(ab01, cd01);
                columns[8 + j] = _mm512_shuffle_i32x4::<0x88>(ab23, cd23);
                columns[12 + j] = _mm512_shuffle_i32x4::<0xDD>(ab23, cd23);
            }
            columns
        }

        fn to_f32(v: __m512i) -> __m512 {
            _mm512_cvtepi32_ps(v)
        }
        fn bits(f: __m512) -> __m512i {
            _mm512_castps_si512(f)
        }
        fn load_f32(lanes: &[f32; 16]) -> __m512 {
            _mm512_loadu_ps(lanes.as_ptr())
        }
        fn load_f16(lanes: &[u16; 16]) -> __m512 {
            _mm512_cvtph_ps(_mm256_loadu_si256(lanes.as_ptr().cast()))
        }
        fn load_bf16(lanes: &[u16; 16]) -> __m512 {
            let lanes = _mm512_cvtepu16_epi32(_mm256_loadu_si256(lanes.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(lanes))
        }
        fn store_f32(f: __m512, out: &mut [f32; 16]) {
            _mm512_storeu_ps(out.as_mut_ptr(), f);
        }
        fn splat_f32(lane: f32) -> __m512 {
            _mm512_set1_ps(lane)
        }
        fn splat_f16(lane: u16) -> __m512 {
            _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(lane))))
        }
        fn splat_f16s(lanes: [u16; 2]) -> [__m512; 2] {
            let lanes = i32::from(lanes[0]) | i32::from(lanes[1]) << 16;
            let lanes = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128(lanes)));
            [
                _mm512_permutexvar_ps(_mm512_setzero_si512(), lanes),
                _mm512_permutexvar_ps(_mm512_set1_epi32(1), lanes),
            ]
        }
        fn pick_u8(bytes: &[u8; 16], order: &'static [u8; 16]) -> __m512 {
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let bytes = _mm_shuffle_epi8(_mm_loadu_si128(bytes.as_ptr().cast()), order);
            _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))
        }
        fn pick_i8(bytes: &[i8; 16], order: &'static [u8; 16]) -> __m512 {
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let bytes = _mm_shuffle_epi8(_mm_loadu_si128(bytes.as_ptr().cast()), order);
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
        }
        fn pick_f16(halves: &[u16; 8], order: &'static [u8; 16]) -> __m512 {
            let order = _mm512_cvtepu8_epi32(_mm_loadu_si128(order.as_ptr().cast()));
            let values = _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast()));
            _mm512_permutexvar_ps(order, _mm512_castps256_ps512(values))
        }
        fn pick_bf16(halves: &[u16; 8], order: &'static [u8; 16]) -> __m512 {
            let order = _mm512_cvtepu8_epi32(_mm_loadu_si128(order.as_ptr().cast()));
            let values = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.as_ptr().cast()));
            let values = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(values));
            _mm512_permutexvar_ps(order, _mm512_castps256_ps512(values))
        }

        fn peak(x: &[f32; 32]) -> u32 {
            let magnitude = _mm512_set1_epi32(i32::MAX);
            let low = _mm512_loadu_si512(x.as_ptr().cast());
            let high = _mm512_loadu_si512(x.as_ptr().add(16).cast());
            let low = _mm512_and_si512(low, magnitude);
            _mm512_reduce_max_epu32(_mm512_max_epu32(low, _mm512_and_si512(high, magnitude)))
        }
        fn round(x: &[f32; 32], factor: f32) -> [u8; 32] {
            let factor = _mm512_set1_ps(factor);
            let low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), factor));
            let high = _mm512_loadu_ps(x.as_ptr().add(16));
            let high = _mm512_cvtps_epi32(_mm512_mul_ps(high, factor));
            let mut codes = [0_u8; 32];
            let out = codes.as_mut_ptr().cast::<__m128i>();
            _mm_storeu_si128(out, _mm512_cvtepi32_epi8(low));
            _mm_storeu_si128(out.add(1), _mm512_cvtepi32_epi8(high));
            codes
        }

        fn add_f32(a: __m512, b: __m512) -> __m512 {
            _mm512_add_ps(a, b)
        }
        fn larger(a: __m512, b: __m512) -> __m512 {
            _mm512_max_ps(a, b)
        }
        fn mul(a: __m512, b: __m512) -> __m512 {
            _mm512_mul_ps(a, b)
        }
        fn mul_add(sum: __m512, a: __m512, b: __m512) -> __m512 {
            _mm512_fmadd_ps(a, b, sum)
        }
        fn mul_sub(sum: __m512, a: __m512, b: __m512) -> __m512 {
            _mm512_fnmadd_ps(a, b, sum)
        }
        fn sum(f: __m512) -> f32 {
            let f = _mm256_add_ps(_mm512_castps512_ps256(f), _mm512_extractf32x8_ps::<1>(f));
            let f = _mm_add_ps(_mm256_castps256_ps128(f), _mm256_extractf128_ps::<1>(f));
            let f = _mm_add_ps(f, _mm_movehl_ps(f, f));
            _mm_cvtss_f32(_mm_add_ss(f, _mm_movehdup_ps(f)))
        }
    }
}
