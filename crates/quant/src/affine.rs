//! The K formats with minima: `Q2_K`, `Q4_K`, `Q5_K`.
//!
//! To quantise, every group gets the scale and the minimum of the least weighted error; those of all
//! groups are then rounded to a few bits, and the values are coded anew with what the rounding left.
//! Source of the method: `make_qkx2_quants` and its callers in ggml-quants.c.

use crate::numerics::{nearest_int, nearest_level, transpose};
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

impl<const GROUP: usize, const GROUPS: usize> Affine<GROUP, GROUPS> {
    /// A group's scale and minimum.
    #[inline(always)]
    fn group(&self, g: usize) -> (f32, f32) {
        let scale = self.d.to_f32() * f32::from(self.scales[g]);
        let min = self.dmin.to_f32() * f32::from(self.mins[g]);
        (scale, min)
    }

    /// Writes the block's values.
    #[inline(always)]
    pub(crate) fn dequantize(&self, out: &mut [[f32; GROUP]; GROUPS]) {
        for (g, out) in out.iter_mut().enumerate() {
            let (scale, min) = self.group(g);
            *out = self.codes[g].map(|code| scale * f32::from(code) - min);
        }
    }
}

/// What distinguishes the formats.
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

/// The groups' scales, minima (negated, as blocks store them) and codes.
struct Fit<const GROUP: usize, const GROUPS: usize> {
    scales: [f32; GROUPS],
    mins: [f32; GROUPS],
    codes: [[u8; GROUP]; GROUPS],
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
        let fit = self.fit(x);
        let (d, scales) = round_scales(fit.scales, self.max_scale);
        let (dmin, mins) = round_scales(fit.mins, self.max_scale);
        let codes = fit.codes;
        let mut block = Affine {
            d,
            dmin,
            scales,
            mins,
            codes,
        };
        let max_code = i32::from(self.max_code);
        for (g, x) in x.iter().enumerate() {
            let (scale, min) = block.group(g);
            if scale != 0.0 {
                let code = |x| nearest_int((x + min) / scale).clamp(0, max_code) as u8;
                block.codes[g] = x.map(code);
            }
        }
        block
    }

    /// Searches the scales and minima: those of the group's range to begin with, then for every
    /// candidate scale the weighted least-squares fit to the codes that it gives.
    ///
    /// The sums over a group must be added up in order, which vectorises only across the groups.
    fn fit<const GROUP: usize, const GROUPS: usize>(
        &self,
        groups: &[[f32; GROUP]; GROUPS],
    ) -> Fit<GROUP, GROUPS>
    where
        W: Fn(&[f32; GROUP]) -> [f32; GROUP],
    {
        let x = transpose(groups);
        let w = transpose(&groups.each_ref().map(&self.weights));
        let max_code = f32::from(self.max_code);

        let (mut min, mut max) = ([0.0; GROUPS], x[0]);
        let (mut sum_w, mut sum_x) = ([0.0; GROUPS], [0.0; GROUPS]);
        for (x, w) in x.iter().zip(&w) {
            for g in 0..GROUPS {
                min[g] = if x[g] < min[g] { x[g] } else { min[g] };
                max[g] = if x[g] > max[g] { x[g] } else { max[g] };
                sum_w[g] += w[g];
                sum_x[g] += w[g] * x[g];
            }
        }

        let range: [f32; GROUPS] = from_fn(|g| max_code / (max[g] - min[g]));
        let mut scale = range.map(|inverse| 1.0 / inverse);
        // The codes of the best fit so far are those of (x − origin) × inverse.
        let (mut inverse, mut origin) = (range.map(finite_or_zero), min);
        let mut least_error = [0.0; GROUPS];
        for (x, w) in x.iter().zip(&w) {
            for g in 0..GROUPS {
                let level = nearest_level(inverse[g] * (x[g] - min[g]), 0.0, max_code);
                least_error[g] += w[g] * (self.error)(scale[g] * level + min[g] - x[g]);
            }
        }

        for step in 0..self.candidates {
            let levels_wanted = self.first_step + 0.1 * f32::from(step) + max_code;
            let candidate: [f32; GROUPS] =
                from_fn(|g| finite_or_zero(levels_wanted / (max[g] - min[g])));
            let mut levels = [[0.0; GROUPS]; GROUP];
            let (mut sum_l, mut sum_l2) = ([0.0; GROUPS], [0.0; GROUPS]);
            let mut sum_xl = [0.0; GROUPS];
            for ((x, w), levels) in x.iter().zip(&w).zip(&mut levels) {
                for g in 0..GROUPS {
                    let level = nearest_level(candidate[g] * (x[g] - min[g]), 0.0, max_code);
                    levels[g] = level;
                    sum_l[g] += w[g] * level;
                    sum_l2[g] += w[g] * level * level;
                    sum_xl[g] += w[g] * level * x[g];
                }
            }

            let (mut determinant, mut errors) = ([0.0; GROUPS], [0.0; GROUPS]);
            let (mut fit_scale, mut fit_min) = ([0.0; GROUPS], [0.0; GROUPS]);
            for g in 0..GROUPS {
                determinant[g] = sum_w[g] * sum_l2[g] - sum_l[g] * sum_l[g];
                fit_scale[g] = (sum_w[g] * sum_xl[g] - sum_x[g] * sum_l[g]) / determinant[g];
                fit_min[g] = (sum_l2[g] * sum_x[g] - sum_l[g] * sum_xl[g]) / determinant[g];
                if fit_min[g] > 0.0 {
                    fit_min[g] = 0.0;
                    fit_scale[g] = sum_xl[g] / sum_l2[g];
                }
            }
            for ((x, w), levels) in x.iter().zip(&w).zip(&levels) {
                for g in 0..GROUPS {
                    let fitted = fit_scale[g] * levels[g] + fit_min[g];
                    errors[g] += w[g] * (self.error)(fitted - x[g]);
                }
            }
            for g in 0..GROUPS {
                if determinant[g] > 0.0 && errors[g] < least_error[g] {
                    least_error[g] = errors[g];
                    (inverse[g], origin[g]) = (candidate[g], min[g]);
                    (scale[g], min[g]) = (fit_scale[g], fit_min[g]);
                }
            }
        }

        let code = |g: usize, x| nearest_level(inverse[g] * (x - origin[g]), 0.0, max_code) as u8;
        let codes = from_fn(|g| groups[g].map(|x| code(g, x)));
        Fit {
            scales: scale,
            mins: min.map(|min| -min),
            codes,
        }
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
