//! Elementary functions in the precision that kernels compute in.
//!
//! Those of single precision have no branches, so that loops over them become vector
//! instructions, and use neither fused operations nor the system's library: every machine
//! and every vector width gives the same bits.

use num_traits::{AsPrimitive, Float};

use crate::element::Element;
use crate::qmatmul::level::Level;
use crate::qmatmul::{Kernel, Simd};

/// A type that real numbers are computed in.
pub(crate) trait Real: Float + AsPrimitive<f64> + Element<Compute = Self> {
    /// eˣ.
    fn exponential(self) -> Self;
    /// Natural logarithm.
    fn logarithm(self) -> Self;
    /// Hyperbolic tangent.
    fn hyperbolic_tangent(self) -> Self;
    /// Error function.
    fn error_function(self) -> Self;
    /// A constant, rounded.
    fn constant(value: f64) -> Self;
    /// Nearest integer, halves to even.
    fn round_ties_even(self) -> Self;
}

impl Real for f64 {
    fn exponential(self) -> Self {
        self.exp()
    }

    fn logarithm(self) -> Self {
        self.ln()
    }

    fn hyperbolic_tangent(self) -> Self {
        self.tanh()
    }

    fn error_function(self) -> Self {
        libm::erf(self)
    }

    fn constant(value: f64) -> Self {
        value
    }

    fn round_ties_even(self) -> Self {
        self.round_ties_even()
    }
}

impl Real for f32 {
    #[inline(always)]
    fn exponential(self) -> Self {
        exp(self)
    }

    #[inline(always)]
    fn logarithm(self) -> Self {
        ln(self)
    }

    #[inline(always)]
    fn hyperbolic_tangent(self) -> Self {
        tanh(self)
    }

    #[inline(always)]
    fn error_function(self) -> Self {
        erf(self)
    }

    #[inline(always)]
    fn constant(value: f64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn round_ties_even(self) -> Self {
        self.round_ties_even()
    }
}

/// `y[i] = f(x[i])` with the machine's best vector instructions.
pub(crate) fn apply<X: Copy, Y>(x: &[X], y: &mut [Y], f: impl Fn(X) -> Y) {
    let x = x.iter().copied();
    Level::current().run(Apply { x, y, f });
}

/// `y[i] = f(a[i], b[i])` with the machine's best vector instructions.
pub(crate) fn apply2<A: Copy, B: Copy, Y>(a: &[A], b: &[B], y: &mut [Y], f: impl Fn(A, B) -> Y) {
    let x = a.iter().copied().zip(b.iter().copied());
    let f = |(a, b)| f(a, b);
    Level::current().run(Apply { x, y, f });
}

/// `y[i] = f(a[i], b[i], c[i])` with the machine's best vector instructions.
pub(crate) fn apply3<A: Copy, B: Copy, C: Copy, Y>(
    a: &[A],
    b: &[B],
    c: &[C],
    y: &mut [Y],
    f: impl Fn(A, B, C) -> Y,
) {
    let x = a
        .iter()
        .copied()
        .zip(b.iter().copied().zip(c.iter().copied()));
    let f = |(a, (b, c))| f(a, b, c);
    Level::current().run(Apply { x, y, f });
}

struct Apply<'a, X, Y, F> {
    x: X,
    y: &'a mut [Y],
    f: F,
}

impl<X: Iterator, Y, F: Fn(X::Item) -> Y> Kernel for Apply<'_, X, Y, F> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = (self.f)(x);
        }
    }
}

/// The upper bits of ln 2, so few that their products with exponents are exact, and the
/// rest.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// eˣ within 1 ulp, by Cody and Waite's reduction to `2ⁿ eʳ` and the polynomial of
/// [Cephes](https://www.netlib.org/cephes/)' `expf`.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Added to a small number, it leaves the nearest integer in the lower bits.
    const SHIFT: f32 = 12_582_912.0;
    // Beyond these the result is infinite or zero; NaN passes.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = x - n * LN_2[0] - n * LN_2[1];
    let p = polynomial(
        r,
        [
            0.5,
            1.666_666_5e-1,
            4.166_579_6e-2,
            8.333_452e-3,
            1.398_199_9e-3,
            1.987_569_1e-4,
        ],
    );
    // 2ⁿ in two factors, as n goes beyond the exponents of normal numbers.
    let n = shifted.to_bits().wrapping_sub(SHIFT.to_bits()) as i32;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    (p * (r * r) + r + 1.0) * power(n >> 1) * power(n - (n >> 1))
}

/// Within 1 ulp: of `2ᵉ m` with `m` near 1 it is `e ln 2` and the polynomial of
/// [Cephes](https://www.netlib.org/cephes/)' `logf`.
#[inline(always)]
fn ln(x: f32) -> f32 {
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
    let m = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23));
    let (e, r) = (exponent as f32 - shift, m - 1.0);
    let p = polynomial(
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
    let result = p * square * r + e * LN_2[1] - 0.5 * square + r + e * LN_2[0];
    // Infinity and NaN are their own logarithms.
    let result = if x < f32::INFINITY { result } else { x };
    let result = if x < 0.0 { f32::NAN } else { result };
    if x == 0.0 { f32::NEG_INFINITY } else { result }
}

/// Within 2 ulp. Near 0 the polynomial of [Cephes](https://www.netlib.org/cephes/)'
/// `tanhf`; elsewhere `1 - 2 / (e²ˣ + 1)`.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let square = x * x;
    let p = polynomial(
        square,
        [
            -0.333_332_8,
            1.333_144_2e-1,
            -5.373_971_5e-2,
            0.020_639_088,
            -5.704_988_7e-3,
        ],
    );
    let near = p * square * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    // The sign also of 0.
    (if x.abs() < 0.625 { near } else { far }).copysign(x)
}

/// Within 2 ulp: `x + x P(x²)` near 0, elsewhere `1 - exp(-Q(|x|))`. The coefficients are
/// least-squares fits with Lawson's weights, which make the largest relative error small,
/// to `erf(√z) / √z - 1` for `z` up to 0.81 and to `-ln erfc(t)` for `t` from 0.9 to 4.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let near = polynomial(
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
    let near = x + x * near;
    // From 4 on the result rounds to 1; NaN passes.
    let t = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let far = polynomial(
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
    let far = (1.0 - exp(-far)).copysign(x);
    if t < 0.9 { near } else { far }
}

/// `c₀ + c₁ x + c₂ x² + …`
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let (lower, highest) = (&coefficients[..N - 1], coefficients[N - 1]);
    lower.iter().rev().fold(highest, |sum, c| sum * x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest error in units of the last place, over numbers from `low` to `high`.
    fn error(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, low: f32, high: f32) -> f64 {
        const STEPS: usize = 2_000_000;
        let at = |i| low + (high - low) * (i as f32 / STEPS as f32);
        (0..=STEPS).map(at).fold(0.0, |worst: f64, x| {
            let expected = exact(x.into());
            let near = (expected.abs() as f32).max(f32::MIN_POSITIVE);
            let ulp = f64::from(near.next_up() - near);
            worst.max((f64::from(f(x)) - expected).abs() / ulp)
        })
    }

    #[test]
    fn errors_are_small() {
        let cases: [(&str, f64); 11] = [
            ("ln", error(ln, f64::ln, f32::MIN_POSITIVE, 1e5)),
            ("ln near 1", error(ln, f64::ln, 0.5, 2.0)),
            ("ln near 0", error(ln, f64::ln, 1e-44, 1e-38)),
            ("exp", error(exp, f64::exp, -104.5, 88.7)),
            ("exp near 0", error(exp, f64::exp, -1.0, 1.0)),
            ("tanh", error(tanh, f64::tanh, -10.0, 10.0)),
            ("tanh near 0", error(tanh, f64::tanh, -1.0, 1.0)),
            ("tanh at 0", error(tanh, f64::tanh, -1e-3, 1e-3)),
            ("erf", error(erf, libm::erf, -5.0, 5.0)),
            ("erf near 0", error(erf, libm::erf, -1.0, 1.0)),
            ("erf at 0", error(erf, libm::erf, -1e-3, 1e-3)),
        ];
        for (name, error) in cases {
            assert!(error < 2.0, "{name}: {error} ulp");
        }
    }

    #[test]
    fn limits() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert!(exp(nan).is_nan() && tanh(nan).is_nan() && erf(nan).is_nan());
        assert_eq!(
            [exp(inf), exp(89.0), exp(-inf), exp(-0.0)],
            [inf, inf, 0.0, 1.0]
        );
        assert_eq!(
            [tanh(inf), tanh(-inf), erf(inf), erf(-inf)],
            [1.0, -1.0, 1.0, -1.0]
        );
        assert!(ln(nan).is_nan() && ln(-1.0).is_nan() && ln(-inf).is_nan());
        assert_eq!(
            [ln(inf), ln(0.0), ln(-0.0), ln(1.0)],
            [inf, -inf, -inf, 0.0]
        );
        let zeros = [tanh(-0.0), erf(-0.0)];
        assert!(zeros.iter().all(|x| *x == 0.0 && x.is_sign_negative()));
    }
}
