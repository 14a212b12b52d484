//! Elementary functions in the precision that kernels compute in.
//!
//! The functions of single precision have no branches, so that loops over them become vector
//! instructions. Tests check the largest errors over all exponents and at every level. Errors are
//! in units in the last place (ulp) of the exact result:
//!
//! | function | with fused multiply-add | without |
//! | --- | --- | --- |
//! | `exp` | 0.9 | 1.2 |
//! | `ln` | 0.8 | 0.8 |
//! | `tanh` | 1.5 | 2.0 |
//! | `erf` | 1.2 | 1.3 |
//! | `sigmoid` | 2.2 | 2.2 |
//! | `silu`, while its sigmoid is a normal number | 3.0 | 3.0 |
//! | `gelu`, in ulp of `x` | 1.4 | 1.6 |
//! | `gelu_tanh`, in ulp of `x` | 2.0 | 2.0 |
//! | `sin`, `cos` | 1.6 | 1.6 |
//! | `tan` | 3.6 | 3.6 |
//! | `pow` | 0.51 | 0.51 |

use std::cmp::Ordering;

use num_traits::{AsPrimitive, Float};

use crate::element::Element;
use crate::simd::Arithmetic;

/// A type that real numbers are computed in.
pub(crate) trait Real: Float + AsPrimitive<f64> + Element<Compute = Self> {
    /// eˣ.
    fn exponential(self, m: Arithmetic) -> Self;
    /// eˣ of numbers up to 0; may be 0 where it is not a normal number.
    fn exponential_of_negative(self, m: Arithmetic) -> Self;
    /// Natural logarithm.
    fn logarithm(self, m: Arithmetic) -> Self;
    /// Hyperbolic tangent.
    fn hyperbolic_tangent(self, m: Arithmetic) -> Self;
    /// Error function.
    fn error_function(self, m: Arithmetic) -> Self;
    /// `1 / (1 + e⁻ˣ)`.
    fn sigmoid(self, m: Arithmetic) -> Self;
    /// `x / 2 · (1 + erf(x / √2))`.
    fn gelu(self, m: Arithmetic) -> Self;
    /// Sine of [tame](Self::is_tame) angles.
    fn sine(self, m: Arithmetic) -> Self;
    /// Cosine of tame angles.
    fn cosine(self, m: Arithmetic) -> Self;
    /// Tangent of tame angles.
    fn tangent(self, m: Arithmetic) -> Self;
    /// Returns whether it may be an angle for [`Self::sine`] and its like.
    fn is_tame(self) -> bool;
    /// A [base](Self::is_base) to the power of a number other than infinity and NaN.
    fn power(self, exponent: Self, m: Arithmetic) -> Self;
    /// Returns whether it may be the base of [`Self::power`]: positive and not infinite.
    fn is_base(self) -> bool;
    /// A constant, rounded.
    fn constant(value: f64) -> Self;
    /// Nearest integer, halves to even.
    fn round_ties_even(self) -> Self;
    /// The next number towards another.
    fn next_after(self, to: Self) -> Self;
}

/// The next number from `$x` towards `$to`, of either precision.
macro_rules! next_after {
    ($x:expr, $to:expr) => {
        match $x.partial_cmp(&$to) {
            None => $x + $to,
            Some(Ordering::Equal) => $to,
            Some(Ordering::Less) => $x.next_up(),
            Some(Ordering::Greater) => $x.next_down(),
        }
    };
}

impl Real for f64 {
    fn exponential(self, _: Arithmetic) -> Self {
        self.exp()
    }

    fn exponential_of_negative(self, _: Arithmetic) -> Self {
        self.exp()
    }

    fn logarithm(self, _: Arithmetic) -> Self {
        self.ln()
    }

    fn hyperbolic_tangent(self, _: Arithmetic) -> Self {
        self.tanh()
    }

    fn error_function(self, _: Arithmetic) -> Self {
        libm::erf(self)
    }

    fn sigmoid(self, _: Arithmetic) -> Self {
        1.0 / (1.0 + (-self).exp())
    }

    fn gelu(self, _: Arithmetic) -> Self {
        0.5 * self * (1.0 + libm::erf(self * std::f64::consts::FRAC_1_SQRT_2))
    }

    fn sine(self, _: Arithmetic) -> Self {
        self.sin()
    }

    fn cosine(self, _: Arithmetic) -> Self {
        self.cos()
    }

    fn tangent(self, _: Arithmetic) -> Self {
        self.tan()
    }

    fn is_tame(self) -> bool {
        true
    }

    fn power(self, exponent: Self, _: Arithmetic) -> Self {
        self.powf(exponent)
    }

    fn is_base(self) -> bool {
        true
    }

    fn constant(value: f64) -> Self {
        value
    }

    fn round_ties_even(self) -> Self {
        self.round_ties_even()
    }

    fn next_after(self, to: Self) -> Self {
        next_after!(self, to)
    }
}

macro_rules! single_precision {
    ($($method:ident: $function:path;)+) => {
        impl Real for f32 {
            $(#[inline(always)]
            fn $method(self, m: Arithmetic) -> Self {
                $function(m, self)
            })+

            #[inline(always)]
            fn is_tame(self) -> bool {
                self.abs() <= TAME
            }

            #[inline(always)]
            fn power(self, exponent: Self, m: Arithmetic) -> Self {
                pow(m, self, exponent)
            }

            #[inline(always)]
            fn is_base(self) -> bool {
                self > 0.0 && self < Self::INFINITY
            }

            #[inline(always)]
            fn constant(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn round_ties_even(self) -> Self {
                self.round_ties_even()
            }

            #[inline(always)]
            fn next_after(self, to: Self) -> Self {
                next_after!(self, to)
            }
        }
    };
}

single_precision! {
    exponential: exp;
    exponential_of_negative: exp_of_negative;
    logarithm: ln;
    hyperbolic_tangent: tanh;
    error_function: erf;
    sigmoid: sigmoid;
    gelu: gelu;
    sine: sin;
    cosine: cos;
    tangent: tan;
}

/// The upper bits of ln 2, so few that their products with exponents are exact, and the
/// rest.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Added to a small number, it leaves the nearest integer in the lower bits.
const SHIFT: f32 = 12_582_912.0;

/// The exponent of 1 in the bits of a number.
const BIAS: f32 = 127.0;

/// `(eʳ - 1 - r) / r²` for `|r|` up to half of ln 2. Coefficients come from least squares with
/// Lawson's weights, which make the largest relative error small. So do all coefficients here
/// without a source.
const EXP: [f32; 5] = [
    0.499_999_93,
    0.166_665_21,
    0.041_668_39,
    0.008_368_71,
    0.001_381_46,
];

/// `x` as `n ln 2 + r`, by Cody and Waite: `r`, and a number that has `n + bias` in its lower bits.
#[inline(always)]
fn reduce(m: Arithmetic, x: f32, bias: f32) -> (f32, u32) {
    let shifted = m.mul_add(x, std::f32::consts::LOG2_E, SHIFT + bias);
    let n = shifted - (SHIFT + bias);
    let r = m.mul_add(n, -LN_2[1], m.mul_add(n, -LN_2[0], x));
    (r, shifted.to_bits())
}

/// eʳ of the rest that [`reduce`] leaves.
#[inline(always)]
fn exp_of_rest(m: Arithmetic, r: f32) -> f32 {
    let [c2, c3, c4, c5, c6] = EXP;
    m.polynomial(r, [1.0, 1.0, c2, c3, c4, c5, c6])
}

/// 2ⁿ of the `n + 127` in the lower bits.
#[inline(always)]
fn power(bits: u32) -> f32 {
    f32::from_bits(bits << 23)
}

/// eˣ as `2ⁿ eʳ`.
#[inline(always)]
fn exp(m: Arithmetic, x: f32) -> f32 {
    // Beyond these the result is infinite or zero; NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    exp_below(m, x)
}

/// eˣ for `x` up to 89.
#[inline(always)]
fn exp_below(m: Arithmetic, x: f32) -> f32 {
    let x = if x < -104.0 { -104.0 } else { x };
    let (r, bits) = reduce(m, x, 2.0 * BIAS);
    // 2ⁿ in two factors, as n goes beyond the exponents of normal numbers.
    let half = bits >> 1;
    exp_of_rest(m, r) * power(half) * power(bits - half)
}

/// eˣ for `x` up to 0, and 0 where that is not a normal number.
#[inline(always)]
fn exp_of_negative(m: Arithmetic, x: f32) -> f32 {
    // The power of the least is 0.
    let x = if x < -88.0 { -88.0 } else { x };
    let (r, bits) = reduce(m, x, BIAS);
    exp_of_rest(m, r) * power(bits)
}

/// By way of eˣ of negative numbers alone, which has no overflow.
#[inline(always)]
fn sigmoid(m: Arithmetic, x: f32) -> f32 {
    let e = exp_below(m, -x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// For `2ᵉ m` with `m` near 1 it is `e ln 2` and the polynomial of
/// [Cephes](https://www.netlib.org/cephes/)' `logf`.
#[inline(always)]
fn ln(m: Arithmetic, x: f32) -> f32 {
    /// The least `m`, √½.
    const LEAST: u32 = std::f32::consts::FRAC_1_SQRT_2.to_bits();

    // Numbers without a full exponent get one.
    let (scaled, shift) = if x < f32::MIN_POSITIVE {
        (x * 8_388_608.0, 23.0)
    } else {
        (x, 0.0)
    };
    let bits = scaled.to_bits();
    let exponent = (bits.wrapping_sub(LEAST) as i32) >> 23;
    let mantissa = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23));
    let result = ln_of(m, exponent as f32 - shift, mantissa - 1.0);
    // Infinity and NaN are their own logarithms.
    let result = if x < f32::INFINITY { result } else { x };
    let result = if x < 0.0 { f32::NAN } else { result };
    if x == 0.0 { f32::NEG_INFINITY } else { result }
}

/// `ln(2ᵉ (1 + r))` for `1 + r` from √½ to √2.
#[inline(always)]
pub(crate) fn ln_of(m: Arithmetic, e: f32, r: f32) -> f32 {
    let p = m.polynomial(
        r,
        [
            3.333_333e-1,
            -2.499_999_4e-1,
            2.000_071_4e-1,
            -1.666_805_8e-1,
            1.424_932_3e-1,
            -1.242_014_1e-1,
            1.167_699_8e-1,
            -1.151_461e-1,
            7.037_683_6e-2,
        ],
    );
    let square = r * r;
    let rest = m.mul_add(e, LN_2[1], p * square * r);
    m.mul_add(e, LN_2[0], m.mul_add(square, -0.5, rest) + r)
}

/// Near 0 the polynomial of [Cephes](https://www.netlib.org/cephes/)' `tanhf`; elsewhere
/// `1 - 2 / (e²ˣ + 1)`.
#[inline(always)]
fn tanh(m: Arithmetic, x: f32) -> f32 {
    let square = x * x;
    let p = m.polynomial(
        square,
        [
            -0.333_332_8,
            1.333_144_2e-1,
            -5.373_971_5e-2,
            0.020_639_088,
            -5.704_988_7e-3,
        ],
    );
    let near = m.mul_add(p * square, x, x);
    let far = 1.0 - 2.0 / (exp(m, 2.0 * x.abs()) + 1.0);
    // The sign also of 0.
    (if x.abs() < 0.625 { near } else { far }).copysign(x)
}

/// `x + x P(x²)` near 0, elsewhere `1 - exp(-Q(|x|))`: fits to `erf(√z) / √z - 1` for `z` up to
/// 0.81 and to `-ln erfc(t)` for `t` from 0.9 to 4.
#[inline(always)]
fn erf(m: Arithmetic, x: f32) -> f32 {
    let near = m.polynomial(
        x * x,
        [
            0.128_379_15,
            -0.376_125_34,
            0.112_822_3,
            -0.026_781_958,
            0.005_016_228,
            -0.000_611_129_16,
        ],
    );
    let near = m.mul_add(x, near, x);
    // From 4 on the result rounds to 1; NaN passes.
    let t = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let far = m.polynomial(
        t,
        [
            0.000_166_439_09,
            1.127_797_2,
            0.636_976,
            0.104_113_74,
            -0.022_315_249,
            0.003_065_499_7,
            -0.000_198_220_7,
        ],
    );
    let far = (1.0 - exp_of_negative(m, -far)).copysign(x);
    if t < 0.9 { near } else { far }
}

/// `max(x, 0) - |x| 2^Q(|x|)`, where the power is the standard normal distribution's upper tail,
/// `½ erfc(|x| / √2)`. `Q` is a fit up to 6; beyond, where the tail is below 1e-9, it goes on to
/// fall, and the power is 0 from 9.6 on.
#[inline(always)]
fn gelu(m: Arithmetic, x: f32) -> f32 {
    /// The argument with `Q` near -127.
    const END: f32 = 11.622;
    let least = if x > END { END } else { x };
    let a = if x.abs() > END { END } else { x.abs() };
    let q = m.polynomial(
        a,
        [
            -0.999_999_94,
            -1.151_107_9,
            -0.459_188_58,
            -0.052_542_09,
            0.007_098_339_5,
            -0.000_124_708_73,
            -0.000_219_516_03,
            5.905_439e-5,
            -8.000_006e-6,
            5.843_715e-7,
            -1.822_357_7e-8,
        ],
    );
    let shifted = q + (SHIFT + BIAS);
    let r = q - (shifted - (SHIFT + BIAS));
    let tail = m.polynomial(
        r,
        [
            1.0,
            std::f32::consts::LN_2,
            0.240_226_48,
            0.055_503_325,
            0.009_618_437,
            0.001_339_887_4,
            0.000_153_533_62,
        ],
    ) * power(shifted.to_bits());
    // The result for -∞ is NaN, as half of -∞ times 0 is.
    m.mul_add(-least.abs(), tail, if x > 0.0 { x } else { 0.0 })
}

/// The largest angle whose rest [`reduce_angle`] finds: the quarters are counted exactly, in the
/// bits that the upper part of a quarter leaves of a double.
const TAME: f32 = 4.0e8;

/// A quarter of a turn, π/2: its upper 25 bits, and the rest.
const QUARTER: [f64; 2] = [1.570_796_310_901_641_8, 1.589_325_477_352_819_7e-8];

/// An angle as quarters of a turn, whose lower bits count, and a rest of half a quarter at most.
#[inline(always)]
fn reduce_angle(x: f32) -> (u32, f32) {
    /// [`SHIFT`] of doubles.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let x = f64::from(x);
    let shifted = x * std::f64::consts::FRAC_2_PI + SHIFT;
    let n = shifted - SHIFT;
    let rest = (x - n * QUARTER[0]) - n * QUARTER[1];
    (shifted.to_bits() as u32, rest as f32)
}

/// Sine and cosine of half a quarter of a turn at most: the polynomials of
/// [Cephes](https://www.netlib.org/cephes/)' `sinf` and `cosf`.
#[inline(always)]
pub(crate) fn sin_cos_of(m: Arithmetic, r: f32) -> [f32; 2] {
    let square = r * r;
    let p = m.polynomial(square, [-1.666_665_5e-1, 8.332_161e-3, -1.951_529_6e-4]);
    let q = m.polynomial(square, [4.166_664_6e-2, -1.388_731_6e-3, 2.443_315_7e-5]);
    let cos = m.mul_add(square * square, q, m.mul_add(square, -0.5, 1.0));
    [m.mul_add(r * square, p, r), cos]
}

/// Sine and cosine of some quarters of a turn more than those.
#[inline(always)]
pub(crate) fn turned([sin, cos]: [f32; 2], quarters: u32) -> [f32; 2] {
    let is_odd = quarters & 1 == 1;
    let (sin, cos) = (
        if is_odd { cos } else { sin },
        if is_odd { sin } else { cos },
    );
    // The second bit is the sine's sign, that of the next quarter the cosine's.
    let sign = |quarters: u32| (quarters & 2) << 30;
    [
        f32::from_bits(sin.to_bits() ^ sign(quarters)),
        f32::from_bits(cos.to_bits() ^ sign(quarters.wrapping_add(1))),
    ]
}

#[inline(always)]
fn sin_cos(m: Arithmetic, x: f32) -> [f32; 2] {
    let (quarters, rest) = reduce_angle(x);
    turned(sin_cos_of(m, rest), quarters)
}

/// Sine of angles up to [`TAME`].
#[inline(always)]
fn sin(m: Arithmetic, x: f32) -> f32 {
    // The sign also of 0.
    if x == 0.0 { x } else { sin_cos(m, x)[0] }
}

/// Cosine of angles up to [`TAME`].
#[inline(always)]
fn cos(m: Arithmetic, x: f32) -> f32 {
    sin_cos(m, x)[1]
}

/// Tangent of angles up to [`TAME`].
#[inline(always)]
fn tan(m: Arithmetic, x: f32) -> f32 {
    let [sin, cos] = sin_cos(m, x);
    if x == 0.0 { x } else { sin / cos }
}

/// `2^(y log₂ x)` in double precision, for a positive `x` and a `y` that are not infinite: the
/// logarithm by the series of `artanh`, the power by that of eˣ, cut off at 2⁻³².
#[inline(always)]
fn pow(m: Arithmetic, x: f32, y: f32) -> f32 {
    /// [`SHIFT`] of doubles.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    /// The least mantissa, √½.
    const LEAST: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    /// The exponent of 1 in the bits of a double.
    const BIAS: u64 = 1023;

    let bits = f64::from(x).to_bits();
    let exponent = (bits.wrapping_sub(LEAST) as i64) >> 52;
    let mantissa = f64::from_bits(bits.wrapping_sub((exponent as u64) << 52));
    let f = (mantissa - 1.0) / (mantissa + 1.0);
    let p = m.polynomial(
        f * f,
        [
            1.0,
            1.0 / 3.0,
            1.0 / 5.0,
            1.0 / 7.0,
            1.0 / 9.0,
            1.0 / 11.0,
            1.0 / 13.0,
        ]
        .map(|c| 2.0 * std::f64::consts::LOG2_E * c),
    );
    let log = m.mul_add(f, p, f64::from(exponent as i32));
    // Beyond these the result is infinite or zero.
    let power = f64::from(y) * log;
    let power = if power > 130.0 { 130.0 } else { power };
    let power = if power < -152.0 { -152.0 } else { power };
    let shifted = power + SHIFT;
    let r = (power - (shifted - SHIFT)) * std::f64::consts::LN_2;
    let e = m.polynomial(
        r,
        [
            1.0,
            1.0,
            1.0 / 2.0,
            1.0 / 6.0,
            1.0 / 24.0,
            1.0 / 120.0,
            1.0 / 720.0,
            1.0 / 5040.0,
            1.0 / 40320.0,
        ],
    );
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(BIAS) << 52);
    (e * scale) as f32
}

/// `max(x, 0)`; NaN stays.
#[inline(always)]
pub(crate) fn relu<T: Real>(x: T) -> T {
    if x < T::zero() { T::zero() } else { x }
}

/// `x / (1 + e⁻ˣ)`
#[inline(always)]
pub(crate) fn silu<T: Real>(m: Arithmetic, x: T) -> T {
    x * x.sigmoid(m)
}

/// `x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`, by `(1 + tanh u) / 2 = sigmoid 2u`, which does
/// not cancel.
#[inline(always)]
pub(crate) fn gelu_tanh<T: Real>(m: Arithmetic, x: T) -> T {
    let scale = T::constant(2.0 * (2.0 / std::f64::consts::PI).sqrt());
    let u = scale * x * (T::one() + T::constant(0.044715) * x * x);
    x * u.sigmoid(m)
}

#[cfg(test)]
mod tests;
