//! Activations as the kernels read them: rows of `x` cut into slabs of 256 values.
//!
//! For float weights a slab is the values themselves. For block formats they are rounded to 8 bits
//! as llama.cpp rounds them, so that its logits are met closely. One scale is for as many values as
//! a block of the weights has. These are 32 (with the scale rounded to f16, its `Q8_0`) or 256 (its
//! `Q8_K`). They carry the sums that correct for weight codes being without sign.

use crate::simd::{Simd, map};
use bytemuck::{Pod, Zeroable};
use half::f16;
use rustorch_quant::Block;

/// Values in a slab, the unit in which kernels go along a row. The last slab of a row is filled up
/// with zeros.
pub(crate) const SLAB: usize = 256;

/// Values that share a scale at least.
pub(crate) const SCALED: usize = 32;

/// Relation of a weight format's codes to values: value = scale × (code − zero point), or = scale ×
/// code − minimum.
#[derive(Clone, Copy)]
pub(crate) enum Offset {
    ZeroPoint(u8),
    Minimum,
    /// Codes are bytes with sign, which [`Simd::BIAS`] is added to.
    Bias,
}

impl Offset {
    /// The relation of a format.
    pub(crate) const fn of<B: Block>() -> Self {
        let (least, most) = (*B::CODES.start(), *B::CODES.end());
        if B::HAS_MINIMA {
            Self::Minimum
        } else if most.abs_diff(least) > 127 {
            Self::Bias
        } else {
            Self::ZeroPoint(least.unsigned_abs())
        }
    }

    /// The code of zero, where there is one.
    pub(crate) const fn zero_point<S: Simd>(self) -> u8 {
        match self {
            Self::ZeroPoint(zero) => zero,
            Self::Bias => S::BIAS,
            Self::Minimum => 0,
        }
    }
}

/// Properties of weights that the rounding of activations depends on.
#[derive(Clone, Copy)]
pub(crate) struct Scheme {
    pub(crate) offset: Offset,
    /// Weights that share a scale: 16 or 32.
    pub(crate) group: usize,
    /// Activations that share a scale: 32 or 256.
    pub(crate) scaled: usize,
}

/// 256 rounded activations: value `i` is `scales[lane_of(i / 16)] × codes[i]`.
///
/// Data of 16 values lies in the order of [`lane_of`]. Sums over groups of 32 are in the lane of
/// their first half, with zero in the other.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Rounded {
    pub(crate) codes: [u8; SLAB],
    pub(crate) scales: [f32; 16],
    /// Sums of the codes, where weights have a minimum.
    pub(crate) sums: [f32; 16],
    /// The same sums, each as two bf16 that add up to it.
    pub(crate) split_sums: [u32; 16],
    /// Sums of the codes times minus the weights' zero point, where they have one.
    pub(crate) corrections: [i32; 16],
}

/// The lane of the data of values `16 × sixteen` and up of a slab: where
/// [`crate::simd::Simd::sum_quarters`] leaves their sum.
pub(crate) const fn lane_of(sixteen: usize) -> usize {
    4 * (sixteen % 4) + sixteen / 4
}

impl Rounded {
    #[inline(always)]
    pub(crate) fn set<S: Simd>(&mut self, s: S, x: &[f32; SLAB], scheme: Scheme) {
        let (groups, _) = x.as_chunks::<SCALED>();
        let (codes, _) = self.codes.as_chunks_mut::<SCALED>();
        // Magnitudes compare as their bits do, and NaN above all: it reaches the scale and through
        // it the result.
        let mut peaks = [0; SLAB / SCALED];
        for (peak, x) in peaks.iter_mut().zip(groups) {
            *peak = s.peak(x);
        }
        if scheme.scaled == SLAB {
            peaks = [peaks.into_iter().fold(0, u32::max); SLAB / SCALED];
        }
        for (i, (x, codes)) in groups.iter().zip(codes).enumerate() {
            let peak = f32::from_bits(peaks[i]);
            let scale = peak / 127.0;
            let inverse = if scale >= f32::MIN_POSITIVE {
                127.0 / peak
            } else {
                0.0
            };
            *codes = s.round(x, inverse);
            let scale = if scheme.scaled == SLAB {
                scale
            } else {
                half(scale)
            };
            self.scales[lane_of(2 * i)] = scale;
            self.scales[lane_of(2 * i + 1)] = scale;
        }
        let mut sums = [s.splat(0); 4];
        for (sum, codes) in sums.iter_mut().zip(self.codes.as_chunks().0) {
            *sum = s.dot4(*sum, s.splat(1), s.load(codes), false);
        }
        let mut lanes = [0; 64];
        s.store(s.sum_quarters(sums), &mut lanes);
        let mut sums: [i32; 16] = bytemuck::cast(lanes);
        if scheme.group == SCALED {
            for first in [0, 1, 2, 3, 8, 9, 10, 11] {
                sums[first] += sums[first + 4];
                sums[first + 4] = 0;
            }
        }
        match scheme.offset {
            Offset::ZeroPoint(_) | Offset::Bias => {
                let zero = i32::from(scheme.offset.zero_point::<S>());
                self.corrections = map(sums, |sum| -zero * sum);
            }
            Offset::Minimum => {
                self.sums = map(sums, |sum| sum as f32);
                for (split, sum) in self.split_sums.iter_mut().zip(sums) {
                    let (high, low) = ((sum & !63) as f32, (sum & 63) as f32);
                    *split = high.to_bits() >> 16 | low.to_bits();
                }
            }
        }
    }
}

/// The nearest f16, where that is a number with all of its bits.
fn half(scale: f32) -> f32 {
    let half = f16::from_f32(scale);
    if half.is_normal() {
        half.to_f32()
    } else {
        scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Plain;

    fn rounded(x: &[f32; SLAB], scheme: Scheme) -> Rounded {
        let mut rounded = Rounded::zeroed();
        rounded.set(Plain, x, scheme);
        rounded
    }

    fn wave(i: usize) -> f32 {
        (i as f32 * 0.37).sin() * (1.0 + (i / 32) as f32)
    }

    #[test]
    fn rounds_to_half_a_step() {
        let x = std::array::from_fn(wave);
        let rounded = rounded(
            &x,
            Scheme {
                offset: Offset::Minimum,
                group: 16,
                scaled: 256,
            },
        );
        for (i, x) in x.into_iter().enumerate() {
            let lane = lane_of(i / 16);
            let value = rounded.scales[lane] * f32::from(rounded.codes[i] as i8);
            assert!(
                (value - x).abs() <= 0.501 * rounded.scales[lane],
                "{i}: {value} for {x}"
            );
        }
    }

    #[test]
    fn sums_are_of_the_rounded_values() {
        let x = std::array::from_fn(wave);
        for group in [16, 32] {
            let minimum = rounded(
                &x,
                Scheme {
                    offset: Offset::Minimum,
                    group,
                    scaled: 256,
                },
            );
            let zero_point = rounded(
                &x,
                Scheme {
                    offset: Offset::ZeroPoint(8),
                    group,
                    scaled: 256,
                },
            );
            for (i, codes) in minimum.codes.chunks(group).enumerate() {
                let lane = lane_of(i * group / 16);
                let sum: i32 = codes.iter().map(|&code| i32::from(code as i8)).sum();
                assert_eq!(zero_point.corrections[lane], -8 * sum);
                assert_eq!(minimum.sums[lane], sum as f32);
            }
        }
    }

    #[test]
    fn odd_values() {
        let scheme = Scheme {
            offset: Offset::Bias,
            group: 32,
            scaled: 32,
        };
        assert_eq!(rounded(&[0.0; SLAB], scheme).scales, [0.0; 16]);
        assert!(rounded(&[f32::NAN; SLAB], scheme).scales[0].is_nan());
        assert_eq!(
            rounded(&[f32::INFINITY; SLAB], scheme).scales[0],
            f32::INFINITY
        );
        assert_eq!(rounded(&[1e-44; SLAB], scheme).codes, [0; SLAB]);
        assert_eq!(
            rounded(&[-3.0; SLAB], scheme).codes,
            [(-127_i8) as u8; SLAB]
        );
    }
}
