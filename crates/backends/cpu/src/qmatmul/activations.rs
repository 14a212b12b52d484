//! Activations as the kernels read them: rows of `x` cut into slabs of 256 values.
//!
//! For float weights a slab is the values themselves. For block formats they are rounded to 8 bits with an f32 scale for every 32 values (a gaussian row loses
//! 2.5e-5 of its power, half of what one scale for 256 loses) and carry the sums that correct for weight codes being without sign.

use bytemuck::{Pod, Zeroable};

/// Values in a slab, the unit in which kernels go along a row. The last slab of a row is filled up with zeros.
pub(crate) const SLAB: usize = 256;

/// Values that share a scale.
const SCALED: usize = 32;

/// How the codes of a weight format relate to values: value = scale × (code − zero point), or = scale × code − minimum.
#[derive(Clone, Copy)]
pub(crate) enum Offset {
    ZeroPoint(u8),
    Minimum,
}

/// What the rounding of activations needs to know of the weights that meet them.
#[derive(Clone, Copy)]
pub(crate) struct Scheme {
    pub(crate) offset: Offset,
    /// Weights that share a scale: 16 or 32.
    pub(crate) group: usize,
}

/// 256 rounded activations: value `i` is `scales[lane_of(i / 16)] × codes[i]`.
///
/// What belongs to 16 values lies in the order of [`lane_of`]. Sums over groups of 32 are in the lane of their first half, with zero in the other.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Rounded {
    pub(crate) codes: [u8; SLAB],
    pub(crate) scales: [f32; 16],
    /// Sums of the values, where weights have a minimum.
    pub(crate) sums: [f32; 16],
    /// Sums of the codes times minus the weights' zero point.
    pub(crate) corrections: [i32; 16],
}

/// The lane that holds what belongs to values `16 × sixteen` and up of a slab: where [`super::simd::Simd::sum_quarters`] leaves their sum.
pub(crate) const fn lane_of(sixteen: usize) -> usize {
    4 * (sixteen % 4) + sixteen / 4
}

impl Rounded {
    #[inline(always)]
    pub(crate) fn new(x: &[f32; SLAB], scheme: Scheme) -> Self {
        let mut out = Self::zeroed();
        let (groups, _) = x.as_chunks::<SCALED>();
        let (codes, _) = out.codes.as_chunks_mut::<SCALED>();
        for (i, (x, codes)) in groups.iter().zip(codes).enumerate() {
            // Magnitudes compare as their bits do, and NaN above all: it reaches the scale and through it the result.
            let peak = x.iter().fold(0, |peak, x| peak.max(x.abs().to_bits()));
            let scale = f32::from_bits(peak) / 127.0;
            let inverse = if scale >= f32::MIN_POSITIVE {
                1.0 / scale
            } else {
                0.0
            };
            for (code, x) in codes.iter_mut().zip(x) {
                *code = round(x * inverse);
            }
            let sums = [sum(&codes[..16]), sum(&codes[16..])];
            let sums = if scheme.group == 32 {
                [sums[0] + sums[1], 0]
            } else {
                sums
            };
            for (j, sum) in sums.into_iter().enumerate() {
                let lane = lane_of(2 * i + j);
                out.scales[lane] = scale;
                match scheme.offset {
                    Offset::ZeroPoint(zero) => out.corrections[lane] = -i32::from(zero) * sum,
                    Offset::Minimum => out.sums[lane] = scale * sum as f32,
                }
            }
        }
        out
    }
}

/// The nearest integer, ties to even, of a value within ±127, as the bits of an i8: adding 1.5 × 2²³ leaves it in the lowest bits.
#[inline(always)]
fn round(x: f32) -> u8 {
    (x + 12_582_912.0).to_bits() as u8
}

#[inline(always)]
fn sum(codes: &[u8]) -> i32 {
    codes.iter().map(|&code| i32::from(code as i8)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(i: usize) -> f32 {
        (i as f32 * 0.37).sin() * (1.0 + (i / 32) as f32)
    }

    #[test]
    fn rounds_to_half_a_step() {
        let x = std::array::from_fn(wave);
        let rounded = Rounded::new(
            &x,
            Scheme {
                offset: Offset::Minimum,
                group: 16,
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
            let minimum = Rounded::new(
                &x,
                Scheme {
                    offset: Offset::Minimum,
                    group,
                },
            );
            let zero_point = Rounded::new(
                &x,
                Scheme {
                    offset: Offset::ZeroPoint(8),
                    group,
                },
            );
            for (i, codes) in minimum.codes.chunks(group).enumerate() {
                let lane = lane_of(i * group / 16);
                assert_eq!(zero_point.corrections[lane], -8 * sum(codes));
                assert_eq!(minimum.sums[lane], minimum.scales[lane] * sum(codes) as f32);
            }
        }
    }

    #[test]
    fn odd_values() {
        let scheme = Scheme {
            offset: Offset::ZeroPoint(128),
            group: 32,
        };
        assert_eq!(Rounded::new(&[0.0; SLAB], scheme).scales, [0.0; 16]);
        assert!(Rounded::new(&[f32::NAN; SLAB], scheme).scales[0].is_nan());
        assert_eq!(
            Rounded::new(&[f32::INFINITY; SLAB], scheme).scales[0],
            f32::INFINITY
        );
        assert_eq!(Rounded::new(&[1e-44; SLAB], scheme).codes, [0; SLAB]);
        assert_eq!(
            Rounded::new(&[-3.0; SLAB], scheme).codes,
            [(-127_i8) as u8; SLAB]
        );
    }
}
