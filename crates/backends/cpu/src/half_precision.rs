//! Half precision and 8-bit floats to single precision and back, many elements at a time.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rustorch_ir::{F8E4M3, F8E5M2};

use crate::simd::apply;

/// Converts each element exactly.
pub(crate) fn widen_f16(x: &[f16], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if f16c::is_present() {
        // SAFETY: the machine has the instructions.
        return unsafe { f16c::widen(x, to) };
    }
    x.convert_to_f32_slice(to);
}

/// Rounds each element to the nearest, ties to even.
pub(crate) fn round_f16(x: &[f32], to: &mut [f16]) {
    #[cfg(target_arch = "x86_64")]
    if f16c::is_present() {
        // SAFETY: the machine has the instructions.
        return unsafe { f16c::round(x, to) };
    }
    to.convert_from_f32_slice(x);
}

/// Converts each element exactly.
pub(crate) fn widen_bf16(x: &[bf16], to: &mut [f32]) {
    apply(x, to, single_of);
}

/// Rounds each element to the nearest, ties to even.
pub(crate) fn round_bf16(x: &[f32], to: &mut [bf16]) {
    apply(x, to, nearest_bf16);
}

/// The same number in single precision.
#[inline(always)]
pub(crate) fn single_of(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// The nearest number, ties to even.
#[inline(always)]
pub(crate) fn nearest_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let nearest = bits.wrapping_add(0x7FFF + even) >> 16;
    // The upper bits of a NaN's mantissa may all be zero, like those of an infinity.
    let quiet = bits >> 16 | 0x40;
    bf16::from_bits(if x.is_nan() { quiet } else { nearest } as u16)
}

/// Converts each element exactly.
pub(crate) fn widen_e4m3(x: &[F8E4M3], to: &mut [f32]) {
    apply(x, to, F8E4M3::to_f32);
}

/// Rounds each element to the nearest, ties to even.
pub(crate) fn round_e4m3(x: &[f32], to: &mut [F8E4M3]) {
    apply(x, to, F8E4M3::from_f32);
}

/// Converts each element exactly.
pub(crate) fn widen_e5m2(x: &[F8E5M2], to: &mut [f32]) {
    apply(x, to, F8E5M2::to_f32);
}

/// Rounds each element to the nearest, ties to even.
pub(crate) fn round_e5m2(x: &[f32], to: &mut [F8E5M2]) {
    apply(x, to, F8E5M2::from_f32);
}

/// By the instructions that x86-64 has for it since 2012.
#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps,
        _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps,
    };

    use half::f16;
    use half::slice::HalfFloatSliceExt;

    pub(super) fn is_present() -> bool {
        is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c")
    }

    #[target_feature(enable = "avx,f16c")]
    pub(super) fn widen(x: &[f16], to: &mut [f32]) {
        let ((x, x_rest), (to, to_rest)) = (x.as_chunks::<8>(), to.as_chunks_mut::<8>());
        for (x, to) in x.iter().zip(to) {
            // SAFETY: both are of eight elements.
            unsafe {
                let wide = _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()));
                _mm256_storeu_ps(to.as_mut_ptr(), wide);
            }
        }
        x_rest.convert_to_f32_slice(to_rest);
    }

    #[target_feature(enable = "avx,f16c")]
    pub(super) fn round(x: &[f32], to: &mut [f16]) {
        let ((x, x_rest), (to, to_rest)) = (x.as_chunks::<8>(), to.as_chunks_mut::<8>());
        for (x, to) in x.iter().zip(to) {
            // SAFETY: both are of eight elements.
            unsafe {
                let x = _mm256_loadu_ps(x.as_ptr());
                let near = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
                _mm_storeu_si128(to.as_mut_ptr().cast(), near);
            }
        }
        to_rest.convert_from_f32_slice(x_rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_comes_back() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        let f16s: Vec<f16> = bits.iter().map(|&b| f16::from_bits(b)).collect();
        let bf16s: Vec<bf16> = bits.iter().map(|&b| bf16::from_bits(b)).collect();
        let mut wide = vec![0.0; bits.len()];
        let (mut f16s_again, mut bf16s_again) = (f16s.clone(), bf16s.clone());
        widen_f16(&f16s, &mut wide);
        round_f16(&wide, &mut f16s_again);
        for ((x, wide), again) in f16s.iter().zip(&wide).zip(&f16s_again) {
            assert!(x.to_f32() == *wide || x.is_nan() && wide.is_nan());
            assert!(x.to_bits() == again.to_bits() || x.is_nan() && again.is_nan());
        }
        widen_bf16(&bf16s, &mut wide);
        round_bf16(&wide, &mut bf16s_again);
        for ((x, wide), again) in bf16s.iter().zip(&wide).zip(&bf16s_again) {
            assert!(x.to_f32() == *wide || x.is_nan() && wide.is_nan());
            assert!(x.to_bits() == again.to_bits() || x.is_nan() && again.is_nan());
        }
    }

    #[test]
    fn rounding_is_to_the_nearest() {
        // All exponents, around the bits that are cut off, and what is not a number.
        let upper = (0..=u16::MAX).map(|upper| u32::from(upper) << 16);
        let lower = [0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF];
        let x: Vec<f32> = upper
            .flat_map(|upper| lower.map(|lower| f32::from_bits(upper | lower)))
            .collect();
        let mut rounded = vec![f16::ZERO; x.len()];
        round_f16(&x, &mut rounded);
        for (x, rounded) in x.iter().zip(rounded) {
            let expected = f16::from_f32(*x);
            assert!(rounded.to_bits() == expected.to_bits() || x.is_nan() && rounded.is_nan());
        }
        let mut rounded = vec![bf16::ZERO; x.len()];
        round_bf16(&x, &mut rounded);
        for (x, rounded) in x.iter().zip(rounded) {
            let expected = bf16::from_f32(*x);
            assert!(rounded.to_bits() == expected.to_bits() || x.is_nan() && rounded.is_nan());
        }
    }
}
