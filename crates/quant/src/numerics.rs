//! Rounding as ggml does it, on which the bytes of its files depend.

use half::f16;
use std::array::from_fn;

/// Groups whose largest magnitude is below this become zero (ggml's `GROUP_MAX_EPS`).
pub(crate) const NEGLIGIBLE: f32 = 1e-15;

/// The nearest integer, ties to even, for |x| < 2²².
///
/// Adding 1.5 × 2²³ leaves the integer in the low bits of the sum. Larger values wrap, infinities
/// give −2²² and NaN 0: odd, but ggml's files have it so where a scale overflowed.
#[inline(always)]
pub(crate) fn nearest_int(x: f32) -> i32 {
    let bits = (x + 12_582_912.0).to_bits();
    (bits & 0x007F_FFFF) as i32 - 0x0040_0000
}

/// The nearest integer from `min` to `max`, ties to even; NaN gives `min`.
///
/// Unlike [`nearest_int`] it stays in floating point, so that loops over it vectorise.
#[inline(always)]
pub(crate) fn nearest_level(x: f32, min: f32, max: f32) -> f32 {
    let rounded = (x + 12_582_912.0) - 12_582_912.0;
    let bounded = if rounded > min { rounded } else { min };
    if bounded < max { bounded } else { max }
}

/// The integer part; 0 for what an i32 cannot hold.
///
/// C leaves the latter undefined. x86 gives −2³¹, whose low byte, all that ggml keeps, is 0.
#[inline(always)]
pub(crate) fn truncate(x: f32) -> i32 {
    if x.abs() < 2_147_483_648.0 {
        x as i32
    } else {
        0
    }
}

/// The nearest integer, ties away from zero, like C's `roundf`; 0 for what an i32 cannot hold.
#[inline(always)]
pub(crate) fn round_ties_away(x: f32) -> i32 {
    // With a full half, the sum for the largest value below one half would round up to 1.
    truncate(x + const { 0.5_f32.next_down() }.copysign(x))
}

/// The largest magnitude. `N` is a multiple of the lanes, which a few vector registers hold.
#[inline(always)]
pub(crate) fn magnitude<const N: usize>(x: &[f32; N]) -> f32 {
    let mut lanes = [0.0; 8];
    for x in x.as_chunks::<8>().0 {
        lanes = from_fn(|i| {
            if x[i].abs() > lanes[i] {
                x[i].abs()
            } else {
                lanes[i]
            }
        });
    }
    lanes.into_iter().fold(0.0, f32::max)
}

/// The first value of the largest magnitude, with its sign; 0, never −0, if all are zero.
#[inline(always)]
pub(crate) fn peak<const N: usize>(x: &[f32; N]) -> f32 {
    match magnitude(x) {
        0.0 => 0.0,
        magnitude => x
            .iter()
            .copied()
            .find(|x| x.abs() == magnitude)
            .unwrap_or(0.0),
    }
}

/// The smallest and the largest value, the first of several zeros, whose sign a block keeps.
#[inline(always)]
pub(crate) fn range<const N: usize>(x: &[f32; N]) -> (f32, f32) {
    x.iter().fold((f32::MAX, f32::MIN), |(min, max), &x| {
        (if x < min { x } else { min }, if x > max { x } else { max })
    })
}

/// 1 / x, or 0 for 0.
#[inline(always)]
pub(crate) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Multiples of a scale.
#[inline(always)]
pub(crate) fn multiples<N: Copy + Into<f32>, const GROUPS: usize>(
    scale: f16,
    numbers: &[N; GROUPS],
) -> [f32; GROUPS] {
    let scale = scale.to_f32();
    numbers.map(|number| scale * number.into())
}

/// Groups of values to the groups' first values, second values, and so on.
pub(crate) fn transpose<const M: usize, const N: usize>(x: &[[f32; M]; N]) -> [[f32; N]; M] {
    from_fn(|m| from_fn(|n| x[n][m]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_int_takes_ties_to_even() {
        for (x, expected) in [
            (0.5, 0),
            (1.5, 2),
            (-2.5, -2),
            (-3.5, -4),
            (7.4, 7),
            (-7.6, -8),
        ] {
            assert_eq!(nearest_int(x), expected, "{x}");
        }
        assert_eq!(nearest_int(f32::INFINITY), -(1 << 22));
        assert_eq!(nearest_int(f32::NEG_INFINITY), -(1 << 22));
        assert_eq!(nearest_int(f32::NAN), 0);
    }

    #[test]
    fn nearest_level_is_bounded() {
        for (x, expected) in [
            (-3.0, 0.0),
            (1.5, 2.0),
            (2.5, 2.0),
            (99.0, 15.0),
            (f32::NAN, 0.0),
        ] {
            assert_eq!(nearest_level(x, 0.0, 15.0), expected, "{x}");
        }
    }

    #[test]
    fn round_ties_away_is_round() {
        for x in (-40_000..40_000).map(|i| i as f32 / 256.0) {
            for x in [x.next_down(), x, x.next_up()] {
                assert_eq!(round_ties_away(x), x.round() as i32, "{x}");
            }
        }
        assert_eq!(round_ties_away(f32::INFINITY), 0);
    }

    #[test]
    fn truncate_is_zero_out_of_range() {
        for (x, expected) in [(-1.9, -1), (1.9, 1), (3e9, 0), (-3e9, 0), (f32::NAN, 0)] {
            assert_eq!(truncate(x), expected, "{x}");
        }
    }

    #[test]
    fn peak_is_the_first_of_the_largest() {
        let mut x = [0.0; 16];
        assert_eq!(peak(&x).to_bits(), 0);
        x[0] = -0.0;
        assert_eq!(peak(&x).to_bits(), 0);
        (x[3], x[9], x[12]) = (1.0, -2.0, 2.0);
        assert_eq!(peak(&x), -2.0);
    }
}
