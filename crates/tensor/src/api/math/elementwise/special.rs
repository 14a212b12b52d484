//! Special functions: `torch.special`.

use rustorch_ir::DType;
use rustorch_ir::ops::{BinaryOp, UnaryOp};
use rustorch_macros::track_calls;

use super::{binary_methods, composed_methods, composed_methods_of_two, float_of, unary_methods};
use crate::Tensor;
use crate::api::math::known::Known;
use crate::error::{RusTorchResult, require};

unary_methods! {
    "Error function. Takes real numbers; integers become `f32`."
    erf = real_function(UnaryOp::Erf);
    "`1 - erf(x)`, exact also if that is small. Takes real numbers; integers become `f32`."
    erfc = real_function(UnaryOp::Erfc);
    "`exp(x²) erfc(x)`. Takes real numbers; integers become `f32`."
    erfcx = real_function(UnaryOp::Erfcx);
    "Inverse of the error function. Takes real numbers; integers become `f32`."
    erfinv = real_function(UnaryOp::Erfinv);
    "Inverse of the standard normal distribution function. Takes real numbers; integers become `f32`."
    ndtri = real_function(UnaryOp::Ndtri);
    "`ln |Γ(x)|`. Takes real numbers; integers become `f32`."
    lgamma = real_function(UnaryOp::Lgamma);
    "`ln |Γ(x)|`: another name of `lgamma`. Takes real numbers; integers become `f32`."
    gammaln = real_function(UnaryOp::Lgamma);
    "Derivative of `ln Γ(x)`. Takes real numbers; integers become `f32`."
    digamma = real_function(UnaryOp::Digamma);
    "Derivative of `ln Γ(x)`: another name of `digamma`. Takes real numbers; integers become `f32`."
    psi = real_function(UnaryOp::Digamma);
    "Modified Bessel function of the first kind of order 0, times `e^-|x|`. Takes real numbers; integers become `f32`."
    i0e = real_function(UnaryOp::I0e);
    "Modified Bessel function of the first kind of order 1, times `e^-|x|`. Takes real numbers; integers become `f32`."
    i1e = real_function(UnaryOp::I1e);
    "Modified Bessel function of the second kind of order 0, times `eˣ`. Takes real numbers; integers become `f32`."
    scaled_modified_bessel_k0 = real_function(UnaryOp::K0e);
    "Modified Bessel function of the second kind of order 1, times `eˣ`. Takes real numbers; integers become `f32`."
    scaled_modified_bessel_k1 = real_function(UnaryOp::K1e);
    "Bessel function of the first kind of order 0. Takes real numbers; integers become `f32`."
    bessel_j0 = real_function(UnaryOp::BesselJ0);
    "Bessel function of the first kind of order 1. Takes real numbers; integers become `f32`."
    bessel_j1 = real_function(UnaryOp::BesselJ1);
    "Bessel function of the second kind of order 0. Takes real numbers; integers become `f32`."
    bessel_y0 = real_function(UnaryOp::BesselY0);
    "Bessel function of the second kind of order 1. Takes real numbers; integers become `f32`."
    bessel_y1 = real_function(UnaryOp::BesselY1);
    "Airy's function Ai. Takes real numbers; integers become `f32`."
    airy_ai = real_function(UnaryOp::AiryAi);
}

binary_methods! {
    "The regularised lower incomplete gamma function `γ(self, other) / Γ(self)`. Takes real numbers; \
     integers become `f32`."
    gammainc = GammaInc, float_of;
    "The regularised lower incomplete gamma function: another name of `gammainc`."
    igamma = GammaInc, float_of;
    "The regularised upper incomplete gamma function `Γ(self, other) / Γ(self)`. Takes real numbers; \
     integers become `f32`."
    gammaincc = GammaIncC, float_of;
    "The regularised upper incomplete gamma function: another name of `gammaincc`."
    igammac = GammaIncC, float_of;
    "Hurwitz's zeta function `Σ (other + k)^-self` over `k` from 0 on. Takes real numbers; integers become `f32`."
    zeta = Zeta, float_of;
    "Chebyshev polynomial of the first kind of degree `other`. Takes real numbers; integers become `f32`."
    chebyshev_polynomial_t = ChebyshevT, float_of;
    "Chebyshev polynomial of the second kind of degree `other`. Takes real numbers; integers become `f32`."
    chebyshev_polynomial_u = ChebyshevU, float_of;
    "Chebyshev polynomial of the third kind of degree `other`. Takes real numbers; integers become `f32`."
    chebyshev_polynomial_v = ChebyshevV, float_of;
    "Chebyshev polynomial of the fourth kind of degree `other`. Takes real numbers; integers become `f32`."
    chebyshev_polynomial_w = ChebyshevW, float_of;
    "Physicist's Hermite polynomial of degree `other`. Takes real numbers; integers become `f32`."
    hermite_polynomial_h = HermiteH, float_of;
    "Probabilist's Hermite polynomial of degree `other`. Takes real numbers; integers become `f32`."
    hermite_polynomial_he = HermiteHe, float_of;
    "Laguerre polynomial of degree `other`. Takes real numbers; integers become `f32`."
    laguerre_polynomial_l = LaguerreL, float_of;
    "Legendre polynomial of degree `other`. Takes real numbers; integers become `f32`."
    legendre_polynomial_p = LegendreP, float_of;
}

composed_methods! {
    "Standard normal distribution function. Takes real numbers; integers become `f32`."
    ndtr() = |x| x.mul(-std::f64::consts::FRAC_1_SQRT_2)?.erfc()?.mul(0.5);
    "Logarithm of the standard normal distribution function. Takes real numbers; integers become `f32`."
    log_ndtr() = |x| {
        let t = x.mul(std::f64::consts::FRAC_1_SQRT_2)?;
        // Each side is computed where it is finite, or its slope would be NaN on the other one.
        let is_below = x.lt(-1.0)?;
        let (below, above) = (
            Tensor::where_(&is_below, &t, 0.0)?,
            Tensor::where_(&is_below, 0.0, &t)?,
        );
        // The tail times `exp(t²)`, whose logarithm is known.
        let tail = below.neg()?.erfcx()?.mul(0.5)?.log()?.sub(&below.square()?)?;
        Tensor::where_(&is_below, &tail, &above.erfc()?.mul(-0.5)?.log1p()?)
    };
    "`-x ln x`: 0 at 0, −∞ below. Takes real numbers; integers become `f32`."
    entr() = |x| {
        let at = x.detach();
        let entropy = at.neg()?.mul(&at.log()?)?;
        let entropy = Tensor::where_(&at.eq(0)?, 0.0, &entropy)?;
        let entropy = Tensor::where_(&at.lt(0)?, f64::NEG_INFINITY, &entropy)?;
        x.known("entr", Known::Entropy, entropy)
    };
    "Modified Bessel function of the first kind of order 0. Takes real numbers; integers become `f32`."
    i0() = |x| x.times_growth(Tensor::i0e);
    "Modified Bessel function of the first kind of order 0: another name of `i0`."
    modified_bessel_i0() = |x| x.i0();
    "Modified Bessel function of the first kind of order 1. Takes real numbers; integers become `f32`."
    i1() = |x| x.times_growth(Tensor::i1e);
    "Modified Bessel function of the first kind of order 1: another name of `i1`."
    modified_bessel_i1() = |x| x.i1();
    "Modified Bessel function of the second kind of order 0. Takes real numbers; integers become `f32`."
    modified_bessel_k0() = |x| x.scaled_modified_bessel_k0()?.mul(&x.neg()?.exp()?);
    "Modified Bessel function of the second kind of order 1. Takes real numbers; integers become `f32`."
    modified_bessel_k1() = |x| x.scaled_modified_bessel_k1()?.mul(&x.neg()?.exp()?);
    "Spherical Bessel function of the first kind of order 0. Takes real numbers; integers become `f32`."
    spherical_bessel_j0() = |x| {
        let is_infinite = x.isinf()?;
        let wave = Tensor::where_(&is_infinite, 0.0, x)?.sine_ratio()?;
        Tensor::where_(&is_infinite, 0.0, &wave)
    };
}

composed_methods_of_two! {
    "`self · ln(other)`, 0 where `self` is 0 and `other` is not NaN. Takes real numbers; integers become `f32`."
    xlogy = |x, y| {
        x.times_log(y, 0.0, Tensor::log)
    };
    "`self · ln(1 + other)`, 0 where `self` is 0 and `other` is not NaN. Takes real numbers; integers become `f32`."
    xlog1py = |x, y| {
        x.times_log(y, -1.0, Tensor::log1p)
    };
    "Shifted Chebyshev polynomial of the first kind of degree `other`. Takes real numbers; integers become `f32`."
    shifted_chebyshev_polynomial_t = |x, n| x.mul(2)?.sub(1)?.chebyshev_polynomial_t(n);
    "Shifted Chebyshev polynomial of the second kind of degree `other`. Takes real numbers; integers become `f32`."
    shifted_chebyshev_polynomial_u = |x, n| x.mul(2)?.sub(1)?.chebyshev_polynomial_u(n);
    "Shifted Chebyshev polynomial of the third kind of degree `other`. Takes real numbers; integers become `f32`."
    shifted_chebyshev_polynomial_v = |x, n| x.mul(2)?.sub(1)?.chebyshev_polynomial_v(n);
    "Shifted Chebyshev polynomial of the fourth kind of degree `other`. Takes real numbers; integers become `f32`."
    shifted_chebyshev_polynomial_w = |x, n| x.mul(2)?.sub(1)?.chebyshev_polynomial_w(n);
}

impl Tensor {
    /// `scaled(self) · exp(|self|)`. If that overflows, its gradient is the infinite slope of a line. The product's
    /// gradient would be the difference of two infinities.
    fn times_growth(&self, scaled: fn(&Self) -> RusTorchResult<Self>) -> RusTorchResult<Self> {
        let product = |x: &Self| scaled(x)?.mul(&x.abs()?.exp()?);
        let value = product(self)?;
        if !self.requires_grad() {
            return Ok(value);
        }
        let is_over = value.detach().isinf()?;
        let slope = Self::where_(&is_over, &value.detach().mul(&self.detach().sign()?)?, 0.0)?;
        let line = self.mul(&slope)?;
        let curve = product(&Self::where_(&is_over, 0.0, self)?)?;
        Ok(value.with_gradient_of(&Self::where_(&is_over, &line, &curve)?))
    }

    /// `self · log(y)`, or 0 if `self` is 0. The logarithm is infinite at `pole` and undefined below it.
    fn times_log(
        &self,
        y: &Self,
        pole: f64,
        log: impl FnOnce(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        let is_zero = self.eq(0)?;
        let has_none = is_zero.logical_and(&y.le(pole)?)?;
        let product = self.mul(&log(&Self::where_(&has_none, 1.0, y)?)?)?;
        let sloped = Self::where_(&has_none, 0.0, &product)?;
        let is_nothing = is_zero.logical_and(&y.isnan()?.logical_not()?)?;
        let value = Self::where_(&is_nothing, 0.0, &sloped)?;
        Ok(value.with_gradient_of(&sloped))
    }
}

#[track_calls]
impl Tensor {
    /// The derivative of order `n` of [`Tensor::digamma`]. Takes real numbers; integers become
    /// `f32`.
    ///
    /// # Errors
    /// Fails for a dtype that is not real.
    pub fn polygamma(&self, n: u32) -> RusTorchResult<Self> {
        const NAME: &str = "polygamma";
        if n == 0 {
            return self.digamma();
        }
        self.composed(NAME, |x| {
            let order = Self::number(NAME, (f64::from(n) + 1.0).into(), x.dtype(), None)?;
            let zeta = |x: &Self| order.binary(NAME, BinaryOp::Zeta, x.into(), |d| d);
            if n == 1 {
                // By reflection where the sum would begin below 0. Each side is computed where it is finite, or its
                // slope would be NaN on the other one.
                let is_below = x.lt(0.5)?;
                let below = Self::where_(&is_below, x, 0.25)?;
                let sine = below
                    .sub(&below.add(0.5)?.floor()?)?
                    .mul(std::f64::consts::PI)?
                    .sin()?;
                let whole = sine
                    .square()?
                    .reciprocal()?
                    .mul(std::f64::consts::PI.powi(2))?;
                let reflected = whole.sub(&zeta(&below.rsub(1)?)?)?;
                // The sum's remainder is not a number at infinity.
                let is_end = x.eq(f64::INFINITY)?;
                let above = Self::where_(&is_below.logical_or(&is_end)?, 1.0, x)?;
                let direct = Self::where_(&is_end, 0.0, &zeta(&above)?)?;
                return Self::where_(&is_below, &reflected, &direct);
            }
            let sign = if n.is_multiple_of(2) { -1.0 } else { 1.0 };
            zeta(x)?.mul(sign * libm::tgamma(f64::from(n) + 1.0))
        })
    }

    /// The logarithm of the multivariate gamma function of dimension `p`: `Σ lgamma(x - j / 2)` over
    /// `j` below `p`, and `p (p - 1) / 4 ln π`. Takes real numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails if `p` is 0, or for a dtype that is not real.
    pub fn multigammaln(&self, p: u32) -> RusTorchResult<Self> {
        const NAME: &str = "multigammaln";
        require(NAME, p > 0, "a dimension of at least 1", p)?;
        let constant = 0.25 * f64::from(p) * f64::from(p - 1) * std::f64::consts::PI.ln();
        self.composed(NAME, |x| {
            let numbers = Tensor::arange_with(0, i64::from(p), 1, DType::I64)?;
            let steps = numbers.cast(NAME, x.dtype())?.mul(0.5)?;
            let logarithms = x.unsqueeze(-1)?.sub(&steps)?.lgamma()?;
            logarithms.sum(-1, false)?.add(constant)
        })
    }

    /// Another name of [`Tensor::multigammaln`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::multigammaln`].
    pub fn mvlgamma(&self, p: u32) -> RusTorchResult<Self> {
        self.multigammaln(p)
    }
}
