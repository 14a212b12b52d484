//! AVX2: 64 bytes are two registers. Its byte dot product is put together from two instructions, or
//! is one instruction with AVX-VNNI.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// A machine with AVX2, FMA and F16C, and with AVX-VNNI if `VNNI`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni")))
        .then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run<K: Kernel>(s: impl Simd, kernel: K) {
    kernel.run(s);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn run_vnni<K: Kernel>(s: impl Simd, kernel: K) {
    kernel.run(s);
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type V = [__m256i; 2];
    type F = [__m256; 2];

    const TOKENS: usize = 1;
    const PAIRS: bool = true;
    const SUMS: usize = 6;
    const BIAS: u8 = if VNNI { 0x80 } else { 0 };

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        // SAFETY: `self` proves that the machine has the features.
        unsafe {
            if VNNI && K::DOTS {
                run_vnni(self, kernel);
            } else {
                run(Avx2::<false>(()), kernel);
            }
        }
    }

    instructions! {
        fn load(bytes: &[u8; 64]) -> [__m256i; 2] {
            let halves = bytes.as_ptr().cast::<__m256i>();
            [_mm256_loadu_si256(halves), _mm256_loadu_si256(halves.add(1))]
        }
        fn load_halves(low: &[u8; 32], high: &[u8; 32]) -> [__m256i; 2] {
            [_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())]
        }
        fn load_quarters(low: &[u8; 16], high: &[u8; 16]) -> [__m256i; 2] {
            [
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
            ]
        }
        fn store(v: [__m256i; 2], out: &mut [u8; 64]) {
            let halves = out.as_mut_ptr().cast::<__m256i>();
            _mm256_storeu_si256(halves, v[0]);
            _mm256_storeu_si256(halves.add(1), v[1]);
        }
        fn splat(byte: u8) -> [__m256i; 2] {
            [_mm256_set1_epi8(byte as i8); 2]
        }
        fn splat_i32(lane: i32) -> [__m256i; 2] {
            [_mm256_set1_epi32(lane); 2]
        }
        fn spread_bits(bits: u64, one: u8) -> [__m256i; 2] {
            // Every byte of a half gets the byte that holds its bit, then keeps that bit.
            let bytes = _mm256_setr_epi64x(
                0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303,
            );
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            let mut halves = [bit; 2];
            for (i, half) in halves.iter_mut().enumerate() {
                let word = _mm256_set1_epi32((bits >> (32 * i)) as i32);
                let set = _mm256_and_si256(_mm256_shuffle_epi8(word, bytes), bit);
                *half = _mm256_and_si256(_mm256_cmpeq_epi8(set, bit), _mm256_set1_epi8(one as i8));
            }
            halves
        }

        fn and(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])]
        }
        fn or(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
        }
        fn xor(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])]
        }
        fn shl(v: [__m256i; 2], by: u32) -> [__m256i; 2] {
            let by = _mm_cvtsi32_si128(by as i32);
            [_mm256_sll_epi16(v[0], by), _mm256_sll_epi16(v[1], by)]
        }
        fn shr_halves(v: [__m256i; 2], low: u32, high: u32) -> [__m256i; 2] {
            let (low, high) = (_mm_cvtsi32_si128(low as i32), _mm_cvtsi32_si128(high as i32));
            [_mm256_srl_epi16(v[0], low), _mm256_srl_epi16(v[1], high)]
        }
        fn shr_quarters(v: [__m256i; 2], even: u32, odd: u32) -> [__m256i; 2] {
            let (even, odd) = (i64::from(even), i64::from(odd));
            // A whole quarter shifts alike, so lanes of 64 bits do as well as bytes.
            let by = _mm256_setr_epi64x(even, even, odd, odd);
            [_mm256_srlv_epi64(v[0], by), _mm256_srlv_epi64(v[1], by)]
        }

        fn mul_add_16(sum: [__m256i; 2], a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            let product = |i: usize| _mm256_mullo_epi16(a[i], b[i]);
            [_mm256_add_epi16(sum[0], product(0)), _mm256_add_epi16(sum[1], product(1))]
        }
        fn look_up(table: &'static [u8; 16], indices: [__m256i; 2]) -> [__m256i; 2] {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, indices[0]), _mm256_shuffle_epi8(table, indices[1])]
        }
        fn add(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])]
        }
        fn dot4(sum: [__m256i; 2], codes: [__m256i; 2], x: [__m256i; 2], wide: bool) -> [__m256i; 2] {
            let mut sum = sum;
            for ((sum, codes), x) in sum.iter_mut().zip(codes).zip(x) {
                if VNNI {
                    *sum = _mm256_dpbusd_avx_epi32(*sum, codes, x);
                    continue;
                }
                // The products of two neighbours are added in 16 bits, which two of 128 × 127 fit:
                // the sign of a wide code goes to its factor.
                let (codes, x) = match wide {
                    true => (_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)),
                    false => (codes, x),
                };
                let pairs = _mm256_maddubs_epi16(codes, x);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            }
            sum
        }
        fn sum_quarters(vs: [[__m256i; 2]; 4]) -> [__m256i; 2] {
            let mut sums = vs[0];
            for (half, sum) in sums.iter_mut().enumerate() {
                let ab = _mm256_hadd_epi32(vs[0][half], vs[1][half]);
                let cd = _mm256_hadd_epi32(vs[2][half], vs[3][half]);
                *sum = _mm256_hadd_epi32(ab, cd);
            }
            sums
        }
        fn transpose(rows: [[__m256i; 2]; 16]) -> [[__m256i; 2]; 16] {
            let mut columns = rows;
            for half in 0..2 {
                // Quarter q of quads[i][j] is column 4q + j of rows 4i to 4i + 3.
                let mut quads = [[rows[0][0]; 4]; 4];
                for (i, quads) in quads.iter_mut().enumerate() {
                    let (a, b) = (rows[4 * i][half], rows[4 * i + 1][half]);
                    let (c, d) = (rows[4 * i + 2][half], rows[4 * i + 3][half]);
                    let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
                    let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
                    quads[0] = _mm256_unpacklo_epi64(ab0, cd0);
                    quads[1] = _mm256_unpackhi_epi64(ab0, cd0);
                    quads[2] = _mm256_unpacklo_epi64(ab1, cd1);
                    quads[3] = _mm256_unpackhi_epi64(ab1, cd1);
                }
                for j in 0..4 {
                    let [a, b, c, d] = [quads[0][j], quads[1][j], quads[2][j], quads[3][j]];
                    columns[8 * half + j] = [
                        _mm256_permute2x128_si256::<0x20>(a, b),
                        _mm256_permute2x128_si256::<0x20>(c, d),
                    ];
                    columns[8 * half + 4 + j] = [
                        _mm256_permute2x128_si256::<0x31>(a, b),
                        _mm256_permute2x128_si256::<0x31>(c, d),
                    ];
                }
            }
            columns
        }

        fn to_f32(v: [__m256i; 2]) -> [__m256; 2] {
            [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])]
        }
        fn bits(f: [__m256; 2]) -> [__m256i; 2] {
            [_mm256_castps_si256(f[0]), _mm256_castps_si256(f[1])]
        }
        fn load_f32(lanes: &[f32; 16]) -> [__m256; 2] {
            [_mm256_loadu_ps(lanes.as_ptr()), _mm256_loadu_ps(lanes.as_ptr().add(8))]
        }
        fn load_f16(lanes: &[u16; 16]) -> [__m256; 2] {
            let halves = lanes.as_ptr().cast::<__m128i>();
            [
                _mm256_cvtph_ps(_mm_loadu_si128(halves)),
                _mm256_cvtph_ps(_mm_loadu_si128(halves.add(1))),
            ]
        }
        fn load_bf16(lanes: &[u16; 16]) -> [__m256; 2] {
            let halves = lanes.as_ptr().cast::<__m128i>();
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.add(1)));
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            ]
        }
        fn store_f32(f: [__m256; 2], out: &mut [f32; 16]) {
            _mm256_storeu_ps(out.as_mut_ptr(), f[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), f[1]);
        }
        fn splat_f32(lane: f32) -> [__m256; 2] {
            [_mm256_set1_ps(lane); 2]
        }
        fn splat_f16(lane: u16) -> [__m256; 2] {
            [_mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(lane)))); 2]
        }
        fn pick_u8(bytes: &[u8; 16], order: &'static [u8; 16]) -> [__m256; 2] {
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let bytes = _mm_shuffle_epi8(_mm_loadu_si128(bytes.as_ptr().cast()), order);
            let high = _mm_unpackhi_epi64(bytes, bytes);
            [
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high)),
            ]
        }
        fn pick_i8(bytes: &[i8; 16], order: &'static [u8; 16]) -> [__m256; 2] {
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let bytes = _mm_shuffle_epi8(_mm_loadu_si128(bytes.as_ptr().cast()), order);
            let high = _mm_unpackhi_epi64(bytes, bytes);
            [
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
            ]
        }
        fn pick_f16(halves: &[u16; 8], order: &'static [u8; 16]) -> [__m256; 2] {
            let values = _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast()));
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let high = _mm_unpackhi_epi64(order, order);
            [
                _mm256_permutevar8x32_ps(values, _mm256_cvtepu8_epi32(order)),
                _mm256_permutevar8x32_ps(values, _mm256_cvtepu8_epi32(high)),
            ]
        }
        fn pick_bf16(halves: &[u16; 8], order: &'static [u8; 16]) -> [__m256; 2] {
            let values = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.as_ptr().cast()));
            let values = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(values));
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let high = _mm_unpackhi_epi64(order, order);
            [
                _mm256_permutevar8x32_ps(values, _mm256_cvtepu8_epi32(order)),
                _mm256_permutevar8x32_ps(values, _mm256_cvtepu8_epi32(high)),
            ]
        }

        fn peak(x: &[f32; 32]) -> u32 {
            let magnitude = _mm256_set1_epi32(i32::MAX);
            let mut peak = _mm256_setzero_si256();
            for x in x.as_chunks::<8>().0 {
                let x = _mm256_loadu_si256(x.as_ptr().cast());
                peak = _mm256_max_epu32(peak, _mm256_and_si256(x, magnitude));
            }
            let peak = _mm_max_epu32(
                _mm256_castsi256_si128(peak),
                _mm256_extracti128_si256::<1>(peak),
            );
            let peak = _mm_max_epu32(peak, _mm_shuffle_epi32::<0b01_00_11_10>(peak));
            let peak = _mm_max_epu32(peak, _mm_shuffle_epi32::<0b10_11_00_01>(peak));
            _mm_cvtsi128_si32(peak).cast_unsigned()
        }
        fn round(x: &[f32; 32], factor: f32) -> [u8; 32] {
            let factor = _mm256_set1_ps(factor);
            let mut lanes = [_mm256_setzero_si256(); 4];
            for (lanes, x) in lanes.iter_mut().zip(x.as_chunks::<8>().0) {
                *lanes = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x.as_ptr()), factor));
            }
            let [a, b, c, d] = lanes;
            // Halves are packed each on its own, which leaves words of four codes in the order 0 2
            // 4 6 1 3 5 7.
            let codes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let mut out = [0; 32];
            _mm256_storeu_si256(
                out.as_mut_ptr().cast(),
                _mm256_permutevar8x32_epi32(codes, order),
            );
            out
        }

        fn add_f32(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]
        }
        fn larger(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])]
        }
        fn mul(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
        }
        fn mul_add(sum: [__m256; 2], a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            [_mm256_fmadd_ps(a[0], b[0], sum[0]), _mm256_fmadd_ps(a[1], b[1], sum[1])]
        }
        fn mul_sub(sum: [__m256; 2], a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            [_mm256_fnmadd_ps(a[0], b[0], sum[0]), _mm256_fnmadd_ps(a[1], b[1], sum[1])]
        }
        fn sum(f: [__m256; 2]) -> f32 {
            let f = _mm256_add_ps(f[0], f[1]);
            let f = _mm_add_ps(_mm256_castps256_ps128(f), _mm256_extractf128_ps::<1>(f));
            let f = _mm_add_ps(f, _mm_movehl_ps(f, f));
            _mm_cvtss_f32(_mm_add_ss(f, _mm_movehdup_ps(f)))
        }
    }
}
