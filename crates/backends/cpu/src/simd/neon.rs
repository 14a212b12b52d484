//! NEON: 64 bytes are four registers. Its byte dot product is put together from four instructions,
//! or is one instruction with the extension `dotprod`. With `i8mm` one instruction multiplies two
//! rows of weights with two of activations, eight bytes each.

use super::{Kernel, Simd, dot_steps, from_fn, map};
use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

/// A machine with NEON, and with `dotprod` if `DOT`, and with `i8mm` if `MATRIX`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon<const DOT: bool, const MATRIX: bool>(());

impl<const DOT: bool, const MATRIX: bool> Neon<DOT, MATRIX> {
    pub(crate) fn detect() -> Option<Self> {
        (is_aarch64_feature_detected!("neon")
            && (!DOT || is_aarch64_feature_detected!("dotprod"))
            && (!MATRIX || is_aarch64_feature_detected!("i8mm")))
        .then_some(Self(()))
    }
}

#[target_feature(enable = "neon")]
fn run<K: Kernel>(s: impl Simd, kernel: K) {
    kernel.run(s);
}

#[target_feature(enable = "neon,dotprod")]
fn run_dot<K: Kernel>(s: impl Simd, kernel: K) {
    kernel.run(s);
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn run_matrix<K: Kernel>(s: impl Simd, kernel: K) {
    kernel.run(s);
}

/// Adds to each lane the sum of its four products.
#[target_feature(enable = "neon")]
#[inline]
fn dot4(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    // Two products of 128 × 127 fit 16 bits.
    vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(a, b)))
}

/// Functions of the instructions that Rust has no stable names for.
macro_rules! unnamed {
    ($($(#[$doc:meta])* fn $name:ident = $instruction:literal of $features:literal;)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = $features)]
        #[inline]
        fn $name(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
            // SAFETY: the function has the feature, and registers are all that the instruction
            // reads and writes.
            unsafe {
                asm!(
                    concat!($instruction, " {sum:v}.4s, {a:v}.16b, {b:v}.16b"),
                    sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            sum
        }
    )+};
}

unnamed! {
    /// [`dot4`] in one.
    fn sdot = "sdot" of "neon,dotprod";
    /// Adds the products of each half of `a` with each half of `b`: lane `2i + j` is of half `i`
    /// of `a` and half `j` of `b`.
    fn smmla = "smmla" of "neon,i8mm";
}

/// The products of interleaved steps of a panel with rows of activations.
#[target_feature(enable = "neon,i8mm")]
#[inline]
fn products<const T: usize>(steps: &[[u8; 64]], x: [&[[[u8; 4]; 2]]; T]) -> [[uint8x16_t; 4]; T] {
    // Sums of pairs of rows of activations. A last row without a partner counts twice.
    let mut sums = [[[vdupq_n_s32(0); 4]; 2]; T];
    for (i, steps) in steps.as_chunks::<2>().0.iter().enumerate() {
        let words: [_; T] = from_fn(|token| vcreate_s8(bytemuck::cast(x[token][i])));
        for (half, step) in steps.iter().enumerate() {
            for (q, codes) in step.as_chunks::<16>().0.iter().enumerate() {
                // SAFETY: the 16 bytes are there.
                let codes = unsafe { vld1q_s8(codes.as_ptr().cast()) };
                for token in (0..T).step_by(2) {
                    let x = vcombine_s8(words[token], words[(token + 1).min(T - 1)]);
                    let sum = &mut sums[token][half][q];
                    *sum = smmla(*sum, codes, x);
                }
            }
        }
    }
    from_fn(|token| {
        let [first, second] = sums[token / 2 * 2];
        from_fn(|q| {
            vreinterpretq_u8_s32(if token % 2 == 0 {
                vuzp1q_s32(first[q], second[q])
            } else {
                vuzp2q_s32(first[q], second[q])
            })
        })
    })
}

/// Shifts bytes to the left, or to the right by a negative number.
#[target_feature(enable = "neon")]
#[inline]
fn shift(v: uint8x16_t, by: i32) -> uint8x16_t {
    vshlq_u8(v, vdupq_n_s8(by as i8))
}

/// For each lane of quarter `q`, the bytes of a table that `at` says, or zeros.
#[target_feature(enable = "neon")]
#[inline]
fn lanes_of(q: usize, at: impl Fn(usize) -> [u8; 4]) -> uint8x16_t {
    let bytes: [[u8; 4]; 4] = from_fn(|lane| at(4 * q + lane));
    // SAFETY: both are 16 bytes of any value.
    unsafe { std::mem::transmute(bytes) }
}

/// An index that tables have nothing at.
const NONE: u8 = u8::MAX;

impl<const DOT: bool, const MATRIX: bool> Simd for Neon<DOT, MATRIX> {
    type V = [uint8x16_t; 4];
    type F = [float32x4_t; 4];

    const TOKENS: usize = 6;
    const PAIRS: bool = false;
    const SUMS: usize = 6;
    // Bytes with sign are what is multiplied.
    const BIAS: u8 = 0;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        // SAFETY: `self` proves that the machine has the features.
        unsafe {
            if MATRIX && K::DOTS {
                run_matrix(self, kernel);
            } else if DOT && K::DOTS {
                run_dot(self, kernel);
            } else {
                run(Neon::<false, false>(()), kernel);
            }
        }
    }

    #[inline(always)]
    fn dot_panels<const T: usize, const P: usize>(
        self,
        dots: &mut [[Self::V; P]; T],
        panels: [&[[u8; 64]]; P],
        x: [&[[u8; 4]]; T],
        wide: bool,
    ) {
        if !MATRIX {
            return dot_steps(self, dots, panels, x, wide);
        }
        for (p, steps) in panels.into_iter().enumerate() {
            // SAFETY: `self` proves that the machine has the instructions.
            let sums = unsafe { products(steps, x.map(|x| x.as_chunks::<2>().0)) };
            for (dots, sums) in dots.iter_mut().zip(sums) {
                dots[p] = self.add(dots[p], sums);
            }
        }
    }

    instructions! {
        fn load(bytes: &[u8; 64]) -> [uint8x16_t; 4] {
            from_fn(|i| vld1q_u8(bytes.as_ptr().add(16 * i)))
        }
        fn load_halves(low: &[u8; 32], high: &[u8; 32]) -> [uint8x16_t; 4] {
            [
                vld1q_u8(low.as_ptr()), vld1q_u8(low.as_ptr().add(16)),
                vld1q_u8(high.as_ptr()), vld1q_u8(high.as_ptr().add(16)),
            ]
        }
        fn load_quarters(low: &[u8; 16], high: &[u8; 16]) -> [uint8x16_t; 4] {
            let (low, high) = (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr()));
            [low, low, high, high]
        }
        fn store(v: [uint8x16_t; 4], out: &mut [u8; 64]) {
            for (v, out) in v.into_iter().zip(out.as_chunks_mut::<16>().0) {
                vst1q_u8(out.as_mut_ptr(), v);
            }
        }
        fn splat(byte: u8) -> [uint8x16_t; 4] {
            [vdupq_n_u8(byte); 4]
        }
        fn splat_i32(lane: i32) -> [uint8x16_t; 4] {
            [vreinterpretq_u8_s32(vdupq_n_s32(lane)); 4]
        }
        fn spread_bits(bits: u64, one: u8) -> [uint8x16_t; 4] {
            // Every byte of a quarter gets the byte that holds its bit, then keeps that bit.
            let word = vcombine_u8(vcreate_u8(bits), vcreate_u8(0));
            let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
            from_fn(|q| {
                let (low, high) = (vdup_n_u8(2 * q as u8), vdup_n_u8(2 * q as u8 + 1));
                let set = vtstq_u8(vqtbl1q_u8(word, vcombine_u8(low, high)), bit);
                vandq_u8(set, vdupq_n_u8(one))
            })
        }

        fn and(a: [uint8x16_t; 4], b: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
            from_fn(|i| vandq_u8(a[i], b[i]))
        }
        fn or(a: [uint8x16_t; 4], b: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
            from_fn(|i| vorrq_u8(a[i], b[i]))
        }
        fn xor(a: [uint8x16_t; 4], b: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
            from_fn(|i| veorq_u8(a[i], b[i]))
        }
        fn shl(v: [uint8x16_t; 4], by: u32) -> [uint8x16_t; 4] {
            map(v, |v| shift(v, by as i32))
        }
        fn shr_halves(v: [uint8x16_t; 4], low: u32, high: u32) -> [uint8x16_t; 4] {
            let (low, high) = (-(low as i32), -(high as i32));
            [shift(v[0], low), shift(v[1], low), shift(v[2], high), shift(v[3], high)]
        }
        fn shr_quarters(v: [uint8x16_t; 4], even: u32, odd: u32) -> [uint8x16_t; 4] {
            let (even, odd) = (-(even as i32), -(odd as i32));
            [shift(v[0], even), shift(v[1], odd), shift(v[2], even), shift(v[3], odd)]
        }

        fn look_up(table: &'static [u8; 16], indices: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
            let table = vld1q_u8(table.as_ptr());
            map(indices, |indices| vqtbl1q_u8(table, indices))
        }
        fn add(a: [uint8x16_t; 4], b: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
            from_fn(|i| {
                let sum = vaddq_u32(vreinterpretq_u32_u8(a[i]), vreinterpretq_u32_u8(b[i]));
                vreinterpretq_u8_u32(sum)
            })
        }
        fn dot4(
            sum: [uint8x16_t; 4], codes: [uint8x16_t; 4], x: [uint8x16_t; 4], _wide: bool
        ) -> [uint8x16_t; 4] {
            let mut sum = sum;
            for ((sum, codes), x) in sum.iter_mut().zip(codes).zip(x) {
                let lanes = vreinterpretq_s32_u8(*sum);
                let (codes, x) = (vreinterpretq_s8_u8(codes), vreinterpretq_s8_u8(x));
                let lanes = if DOT { sdot(lanes, codes, x) } else { dot4(lanes, codes, x) };
                *sum = vreinterpretq_u8_s32(lanes);
            }
            sum
        }
        fn interleave(steps: [[uint8x16_t; 4]; 2]) -> [[uint8x16_t; 4]; 2] {
            if !MATRIX {
                return steps;
            }
            // Eight codes of two rows to a register: in quarter q those of rows 4q and 4q + 1, then
            // those of the two after them.
            let [a, b] = map(steps, |step| map(step, |v| vreinterpretq_u32_u8(v)));
            [
                from_fn(|q| vreinterpretq_u8_u32(vzip1q_u32(a[q], b[q]))),
                from_fn(|q| vreinterpretq_u8_u32(vzip2q_u32(a[q], b[q]))),
            ]
        }
        fn sum_quarters(vs: [[uint8x16_t; 4]; 4]) -> [uint8x16_t; 4] {
            from_fn(|q| {
                let [a, b, c, d] = map(vs, |v| vreinterpretq_s32_u8(v[q]));
                vreinterpretq_u8_s32(vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)))
            })
        }
        fn transpose(rows: [[uint8x16_t; 4]; 16]) -> [[uint8x16_t; 4]; 16] {
            let mut columns = rows;
            for q in 0..4 {
                for i in 0..4 {
                    let [a, b, c, d] = from_fn(|j| vreinterpretq_u32_u8(rows[4 * i + j][q]));
                    let pairs = [
                        vtrn1q_u32(a, b), vtrn2q_u32(a, b), vtrn1q_u32(c, d), vtrn2q_u32(c, d),
                    ];
                    let [ab02, ab13, cd02, cd13] = map(pairs, |v| vreinterpretq_u64_u32(v));
                    let quads = [
                        vtrn1q_u64(ab02, cd02), vtrn1q_u64(ab13, cd13),
                        vtrn2q_u64(ab02, cd02), vtrn2q_u64(ab13, cd13),
                    ];
                    for (j, quad) in quads.into_iter().enumerate() {
                        columns[4 * q + j][i] = vreinterpretq_u8_u64(quad);
                    }
                }
            }
            columns
        }

        fn to_f32(v: [uint8x16_t; 4]) -> [float32x4_t; 4] {
            map(v, |v| vcvtq_f32_s32(vreinterpretq_s32_u8(v)))
        }
        fn bits(f: [float32x4_t; 4]) -> [uint8x16_t; 4] {
            map(f, |f| vreinterpretq_u8_f32(f))
        }
        fn load_f32(lanes: &[f32; 16]) -> [float32x4_t; 4] {
            from_fn(|i| vld1q_f32(lanes.as_ptr().add(4 * i)))
        }
        fn load_f16(lanes: &[u16; 16]) -> [float32x4_t; 4] {
            from_fn(|i| {
                vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(lanes.as_ptr().add(4 * i))))
            })
        }
        fn load_bf16(lanes: &[u16; 16]) -> [float32x4_t; 4] {
            from_fn(|i| {
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(lanes.as_ptr().add(4 * i))))
            })
        }
        fn store_f32(f: [float32x4_t; 4], out: &mut [f32; 16]) {
            for (f, out) in f.into_iter().zip(out.as_chunks_mut::<4>().0) {
                vst1q_f32(out.as_mut_ptr(), f);
            }
        }
        fn splat_f32(lane: f32) -> [float32x4_t; 4] {
            [vdupq_n_f32(lane); 4]
        }
        fn splat_f16(lane: u16) -> [float32x4_t; 4] {
            [vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(lane))); 4]
        }
        fn pick_u8(bytes: &[u8; 16], order: &'static [u8; 16]) -> [float32x4_t; 4] {
            let bytes = vld1q_u8(bytes.as_ptr());
            from_fn(|q| {
                let lanes = vqtbl1q_u8(bytes, lanes_of(q, |lane| [order[lane], NONE, NONE, NONE]));
                vcvtq_f32_u32(vreinterpretq_u32_u8(lanes))
            })
        }
        fn pick_i8(bytes: &[i8; 16], order: &'static [u8; 16]) -> [float32x4_t; 4] {
            let bytes = vreinterpretq_u8_s8(vld1q_s8(bytes.as_ptr()));
            from_fn(|q| {
                // The highest bytes of lanes carry their sign, and the conversion divides.
                let lanes = vqtbl1q_u8(bytes, lanes_of(q, |lane| [NONE, NONE, NONE, order[lane]]));
                vcvtq_n_f32_s32::<24>(vreinterpretq_s32_u8(lanes))
            })
        }
        fn pick_f16(halves: &[u16; 8], order: &'static [u8; 16]) -> [float32x4_t; 4] {
            let halves = vreinterpretq_u8_u16(vld1q_u16(halves.as_ptr()));
            from_fn(|q| {
                let lanes = lanes_of(q, |lane| [2 * order[lane], 2 * order[lane] + 1, NONE, NONE]);
                let lanes = vreinterpretq_u32_u8(vqtbl1q_u8(halves, lanes));
                vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(lanes)))
            })
        }
        fn pick_bf16(halves: &[u16; 8], order: &'static [u8; 16]) -> [float32x4_t; 4] {
            let halves = vreinterpretq_u8_u16(vld1q_u16(halves.as_ptr()));
            from_fn(|q| {
                let lanes = lanes_of(q, |lane| [NONE, NONE, 2 * order[lane], 2 * order[lane] + 1]);
                vreinterpretq_f32_u8(vqtbl1q_u8(halves, lanes))
            })
        }

        fn peak(x: &[f32; 32]) -> u32 {
            let mut peak = vdupq_n_u32(0);
            for x in x.as_chunks::<4>().0 {
                peak = vmaxq_u32(peak, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x.as_ptr()))));
            }
            vmaxvq_u32(peak)
        }
        fn round(x: &[f32; 32], factor: f32) -> [u8; 32] {
            let mut codes = [0; 32];
            for (x, codes) in x.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0) {
                let [a, b, c, d] = from_fn(|i| {
                    let x = vmulq_n_f32(vld1q_f32(x.as_ptr().add(4 * i)), factor);
                    vreinterpretq_s16_s32(vcvtnq_s32_f32(x))
                });
                // The lowest byte of every lane.
                let (low, high) = (vuzp1q_s16(a, b), vuzp1q_s16(c, d));
                let bytes = vuzp1q_u8(vreinterpretq_u8_s16(low), vreinterpretq_u8_s16(high));
                vst1q_u8(codes.as_mut_ptr(), bytes);
            }
            codes
        }

        fn add_f32(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
            from_fn(|i| vaddq_f32(a[i], b[i]))
        }
        fn larger(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
            from_fn(|i| vmaxnmq_f32(a[i], b[i]))
        }
        fn mul(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
            from_fn(|i| vmulq_f32(a[i], b[i]))
        }
        fn mul_add(
            sum: [float32x4_t; 4], a: [float32x4_t; 4], b: [float32x4_t; 4]
        ) -> [float32x4_t; 4] {
            from_fn(|i| vfmaq_f32(sum[i], a[i], b[i]))
        }
        fn mul_sub(
            sum: [float32x4_t; 4], a: [float32x4_t; 4], b: [float32x4_t; 4]
        ) -> [float32x4_t; 4] {
            from_fn(|i| vfmsq_f32(sum[i], a[i], b[i]))
        }
        fn sum(f: [float32x4_t; 4]) -> f32 {
            let f = vaddq_f32(vaddq_f32(f[0], f[2]), vaddq_f32(f[1], f[3]));
            let f = vadd_f32(vget_low_f32(f), vget_high_f32(f));
            vget_lane_f32::<0>(f) + vget_lane_f32::<1>(f)
        }
    }
}
