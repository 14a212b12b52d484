//! The K formats with minima: `Q2_K`, `Q4_K`, `Q5_K`.
//!
//! Quantising gives every group the scale and the minimum of least weighted error; those of all
//! groups are then rounded to a few bits. The values are coded again with the rounded ones. Source
//! of the method: `make_qkx2_quants` and its callers in ggml-quants.c.

use crate::numerics::{multiples, nearest_int, nearest_level, transpose};
use half::f16;
use std::array::from_fn;

/// A block unpacked: value = d × scale × code − dmin × min.
pub(crate) struct Affine<const GROUP: usize, const GROUPS: usize> {
    pub(crate) d: f16,
    pub(crate) dmin: f16,
    pub(crate) scales: [u8; GROUPS],
    pub(crate) mins: [u8; GROUPS],
    pub(crate) codes: [[u8; GROUP]; GROUPS],
}

/// The differences between the formats.
pub(crate) struct Search<W, E> {
    /// The largest code.
    pub(crate) max_code: u8,
    /// The largest scale and minimum after rounding.
    pub(crate) max_scale: u8,
    /// The first candidate for a scale maps the group's range to `max_code + first_step`, every
    /// further one to 0.1 more.
    pub(crate) first_step: f32,
    /// The number of candidates.
    pub(crate) candidates: u8,
    /// The weights of a group's values.
    pub(crate) weights: W,
    /// The error of a difference.
    pub(crate) error: E,
}

impl<W, E: Fn(f32) -> f32> Search<W, E> {
    /// Quantises a block's values.
    pub(crate) fn quantize<const GROUP: usize, const GROUPS: usize>(
        &self,
        x: &[[f32; GROUP]; GROUPS],
    ) -> Affine<GROUP, GROUPS>
    where
        W: Fn(&[f32; GROUP]) -> [f32; GROUP],
    {
        let (scales, mins, codes) = self.fit(x);
        let (d, scales) = round_scales(scales, self.max_scale);
        let (dmin, mins) = round_scales(mins, self.max_scale);
        let mut block = Affine {
            d,
            dmin,
            scales,
            mins,
            codes,
        };
        let max_code = i32::from(self.max_code);
        let (scales, mins) = (multiples(d, &scales), multiples(dmin, &mins));
        for (g, x) in x.iter().enumerate() {
            let (scale, min) = (scales[g], mins[g]);
            if scale != 0.0 {
                let code = |x| nearest_int((x + min) / scale).clamp(0, max_code) as u8;
                block.codes[g] = x.map(code);
            }
        }
        block
    }

    /// Searches the scales and minima (negated, as blocks store them) with the codes they give: the candidates
    /// begin with the group's range. Then every scale is the weighted least-squares fit to the codes that it
    /// gives.
    fn fit<const GROUP: usize, const GROUPS: usize>(
        &self,
        groups: &[[f32; GROUP]; GROUPS],
    ) -> ([f32; GROUPS], [f32; GROUPS], [[u8; GROUP]; GROUPS])
    where
        W: Fn(&[f32; GROUP]) -> [f32; GROUP],
    {
        let lanes = Lanes::new(groups, &groups.each_ref().map(&self.weights));
        let max_code = f32::from(self.max_code);
        let max = lanes.fold([f32::MIN; GROUPS], |max, x| if x > max { x } else { max });
        let mut min = lanes.fold([0.0; GROUPS], |min, x| if x < min { x } else { min });

        let mut inverse = from_fn(|g| max_code / (max[g] - min[g]));
        let mut scale = inverse.map(|inverse| 1.0 / inverse);
        inverse = inverse.map(finite_or_zero);
        // The codes of the best fit so far are those of (x − origin) × inverse.
        let mut origin = min;
        let levels = lanes.levels(&inverse, &origin, max_code);
        let mut least_error = lanes.error(&levels, &scale, &min, &self.error);

        for step in 0..self.candidates {
            let steps = self.first_step + 0.1 * f32::from(step) + max_code;
            let candidate = from_fn(|g| finite_or_zero(steps / (max[g] - min[g])));
            let levels = lanes.levels(&candidate, &min, max_code);
            let (fit_scale, fit_min) = lanes.least_squares(&levels);
            let error = lanes.error(&levels, &fit_scale, &fit_min, &self.error);
            for g in 0..GROUPS {
                if error[g] < least_error[g] {
                    least_error[g] = error[g];
                    (inverse[g], origin[g]) = (candidate[g], min[g]);
                    (scale[g], min[g]) = (fit_scale[g], fit_min[g]);
                }
            }
        }

        let levels = lanes.levels(&inverse, &origin, max_code);
        let codes = transpose(&levels).map(|levels| levels.map(|level| level as u8));
        (scale, min.map(|min| -min), codes)
    }
}

/// A block's groups side by side, a group a lane: sums over a group must be added up in order, so
/// that only work on several groups vectorises.
struct Lanes<const GROUP: usize, const GROUPS: usize> {
    x: [[f32; GROUPS]; GROUP],
    w: [[f32; GROUPS]; GROUP],
    sum_w: [f32; GROUPS],
    sum_x: [f32; GROUPS],
}

impl<const GROUP: usize, const GROUPS: usize> Lanes<GROUP, GROUPS> {
    fn new(x: &[[f32; GROUP]; GROUPS], weights: &[[f32; GROUP]; GROUPS]) -> Self {
        let (x, w) = (transpose(x), transpose(weights));
        let (mut sum_w, mut sum_x) = ([0.0; GROUPS], [0.0; GROUPS]);
        for (x, w) in x.iter().zip(&w) {
            for g in 0..GROUPS {
                sum_w[g] += w[g];
                sum_x[g] += w[g] * x[g];
            }
        }
        Self { x, w, sum_w, sum_x }
    }

    fn fold(&self, start: [f32; GROUPS], f: impl Fn(f32, f32) -> f32) -> [f32; GROUPS] {
        self.x.iter().fold(start, |a, x| from_fn(|g| f(a[g], x[g])))
    }

    /// The codes of (x − origin) × inverse.
    #[inline(always)]
    fn levels(
        &self,
        inverse: &[f32; GROUPS],
        origin: &[f32; GROUPS],
        max_code: f32,
    ) -> [[f32; GROUPS]; GROUP] {
        let level = |g: usize, x| nearest_level(inverse[g] * (x - origin[g]), 0.0, max_code);
        self.x.map(|x| from_fn(|g| level(g, x[g])))
    }

    /// The weighted error of scale × level + min.
    #[inline(always)]
    fn error(
        &self,
        levels: &[[f32; GROUPS]; GROUP],
        scale: &[f32; GROUPS],
        min: &[f32; GROUPS],
        error: impl Fn(f32) -> f32,
    ) -> [f32; GROUPS] {
        let mut sum = [0.0; GROUPS];
        for ((x, w), levels) in self.x.iter().zip(&self.w).zip(levels) {
            for g in 0..GROUPS {
                sum[g] += w[g] * error(scale[g] * levels[g] + min[g] - x[g]);
            }
        }
        sum
    }

    /// The scale and the minimum, at most 0, of least squared error; NaN where there are none, as
    /// where all levels are the same.
    #[inline(always)]
    fn least_squares(&self, levels: &[[f32; GROUPS]; GROUP]) -> ([f32; GROUPS], [f32; GROUPS]) {
        let (mut sum_l, mut sum_l2) = ([0.0; GROUPS], [0.0; GROUPS]);
        let mut sum_xl = [0.0; GROUPS];
        for ((x, w), levels) in self.x.iter().zip(&self.w).zip(levels) {
            for g in 0..GROUPS {
                sum_l[g] += w[g] * levels[g];
                sum_l2[g] += w[g] * levels[g] * levels[g];
                sum_xl[g] += w[g] * levels[g] * x[g];
            }
        }
        let (mut scale, mut min) = ([f32::NAN; GROUPS], [f32::NAN; GROUPS]);
        for g in 0..GROUPS {
            let (sum_w, sum_x) = (self.sum_w[g], self.sum_x[g]);
            let determinant = sum_w * sum_l2[g] - sum_l[g] * sum_l[g];
            if determinant > 0.0 {
                scale[g] = (sum_w * sum_xl[g] - sum_x * sum_l[g]) / determinant;
                min[g] = (sum_l2[g] * sum_x - sum_l[g] * sum_xl[g]) / determinant;
                if min[g] > 0.0 {
                    (scale[g], min[g]) = (sum_xl[g] / sum_l2[g], 0.0);
                }
            }
        }
        (scale, min)
    }
}

/// The weights of `Q4_K` and `Q5_K`: magnitude plus root mean square.
pub(crate) fn magnitude_and_rms<const GROUP: usize>(x: &[f32; GROUP]) -> [f32; GROUP] {
    let squares = x.iter().fold(0.0, |sum, x| sum + x * x);
    let rms = (squares / GROUP as f32).sqrt();
    x.map(|x| rms + x.abs())
}

/// The inverse of a scale so small that it overflows codes everything as 0, see [`nearest_int`].
fn finite_or_zero(inverse: f32) -> f32 {
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// Rounds scales, none negative, to at most `max` times a common one.
fn round_scales<const N: usize>(scales: [f32; N], max: u8) -> (f16, [u8; N]) {
    let largest = scales
        .iter()
        .fold(0.0, |a: f32, &scale| if scale > a { scale } else { a });
    let inverse = if largest > 0.0 {
        f32::from(max) / largest
    } else {
        0.0
    };
    let rounded = scales.map(|scale| (nearest_int(inverse * scale) as u8).min(max));
    (f16::from_f32(largest / f32::from(max)), rounded)
}
