//! Gradients of elementwise functions. Formulas are those of PyTorch's `derivatives.yaml`, also for
//! ties.

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10, TAU};

use super::{BinaryOp, CompareOp, UnaryOp};
use crate::autodiff::not_differentiable;
use crate::{Graph, OpError, ValueId};

type Value = Result<ValueId, OpError>;

/// `a / b`, and 0 where `b` is 0.
fn ratio(g: &mut Graph, a: ValueId, b: ValueId) -> Value {
    let zero = g.zeros_like(b)?;
    let is_zero = g.compare(CompareOp::Eq, b, zero)?;
    let one = g.constant(1.0, g.ty(b).dtype)?;
    let divisor = g.select(is_zero, one, b)?;
    let ratio = g.div(a, divisor)?;
    let zero = g.constant(0.0, g.ty(ratio).dtype)?;
    g.select(is_zero, zero, ratio)
}

/// `x` where `condition`, else 0.
fn masked(g: &mut Graph, condition: ValueId, x: ValueId) -> Value {
    let zero = g.constant(0.0, g.ty(x).dtype)?;
    g.select(condition, x, zero)
}

/// `c eᵖ` of a power `p`.
fn scaled_exp(g: &mut Graph, power: ValueId, scale: f64) -> Value {
    let exp = g.unary(UnaryOp::Exp, power)?;
    g.mul_scalar(exp, scale)
}

/// `1 + c x²`.
fn one_plus_square(g: &mut Graph, x: ValueId, c: f64) -> Value {
    let square = g.square(x)?;
    let scaled = g.mul_scalar(square, c)?;
    g.add_scalar(scaled, 1.0)
}

impl UnaryOp {
    /// The gradient of `x` from `ct`, that of the result `y`.
    pub(in crate::ops) fn vjp(self, g: &mut Graph, x: ValueId, y: ValueId, ct: ValueId) -> Value {
        let dtype = g.ty(x).dtype;
        // The other functions have a real derivative, or one that is conjugated at the end.
        let derivative = match self {
            Self::Neg => return g.neg(ct),
            Self::Conj => return g.conj(ct),
            Self::Real => return g.cast(ct, dtype),
            Self::Imag => {
                let zero = g.zeros_like(ct)?;
                return g.binary(BinaryOp::Complex, zero, ct);
            }
            Self::Abs if dtype.is_complex() => {
                // By parts: a complex quotient overflows where the modulus does not.
                let (real, imag) = (g.unary(Self::Real, x)?, g.unary(Self::Imag, x)?);
                let (real, imag) = (ratio(g, real, y)?, ratio(g, imag, y)?);
                let (real, imag) = (g.mul(ct, real)?, g.mul(ct, imag)?);
                return g.binary(BinaryOp::Complex, real, imag);
            }
            Self::Sign | Self::Floor | Self::Ceil | Self::Round | Self::Trunc => {
                return g.zeros_like(ct);
            }
            Self::IsNan | Self::Not => {
                return Err(not_differentiable("unary", "a function that gives bool"));
            }
            Self::AiryAi => {
                let reason = "airy_ai, whose derivative is not a function here";
                return Err(not_differentiable("unary", reason));
            }
            Self::Abs => g.unary(Self::Sign, x)?,
            Self::Exp => y,
            Self::Log => return g.div(ct, x),
            Self::Sqrt => {
                let twice = g.mul_scalar(y, 2.0)?;
                return g.div(ct, twice);
            }
            Self::Rsqrt => {
                let square = g.square(y)?;
                let cube = g.mul(square, y)?;
                g.mul_scalar(cube, -0.5)?
            }
            Self::Reciprocal => {
                let square = g.square(y)?;
                g.neg(square)?
            }
            Self::Sin => g.unary(Self::Cos, x)?,
            Self::Cos => {
                let sin = g.unary(Self::Sin, x)?;
                g.neg(sin)?
            }
            Self::Tan => one_plus_square(g, y, 1.0)?,
            Self::Tanh => one_plus_square(g, y, -1.0)?,
            Self::Erf | Self::Erfc => {
                let square = g.square(x)?;
                let power = g.neg(square)?;
                let sign = if self == Self::Erf { 1.0 } else { -1.0 };
                scaled_exp(g, power, sign * FRAC_2_SQRT_PI)?
            }
            Self::Sinh => g.unary(Self::Cosh, x)?,
            Self::Cosh => g.unary(Self::Sinh, x)?,
            Self::Asin | Self::Acos => {
                let rest = one_plus_square(g, x, -1.0)?;
                let asin = g.unary(Self::Rsqrt, rest)?;
                match self {
                    Self::Asin => asin,
                    _ => g.neg(asin)?,
                }
            }
            Self::Atan => {
                let square = one_plus_square(g, x, 1.0)?;
                return g.div(ct, square);
            }
            Self::Asinh => {
                let square = one_plus_square(g, x, 1.0)?;
                g.unary(Self::Rsqrt, square)?
            }
            Self::Acosh => {
                let square = g.square(x)?;
                let square = g.add_scalar(square, -1.0)?;
                g.unary(Self::Rsqrt, square)?
            }
            Self::Atanh => {
                let rest = one_plus_square(g, x, -1.0)?;
                return g.div(ct, rest);
            }
            Self::Exp2 => g.mul_scalar(y, LN_2)?,
            Self::Log2 | Self::Log10 => {
                let scale = if self == Self::Log2 { LN_2 } else { LN_10 };
                let scaled = g.mul_scalar(x, scale)?;
                return g.div(ct, scaled);
            }
            Self::Expm1 => g.add_scalar(y, 1.0)?,
            Self::Log1p => {
                let sum = g.add_scalar(x, 1.0)?;
                return g.div(ct, sum);
            }
            Self::Erfcx => {
                let product = g.mul(x, y)?;
                let twice = g.mul_scalar(product, 2.0)?;
                g.add_scalar(twice, -FRAC_2_SQRT_PI)?
            }
            Self::Erfinv => {
                let square = g.square(y)?;
                scaled_exp(g, square, 1.0 / FRAC_2_SQRT_PI)?
            }
            Self::Ndtri => {
                let square = g.square(y)?;
                let half = g.mul_scalar(square, 0.5)?;
                scaled_exp(g, half, TAU.sqrt())?
            }
            Self::Lgamma => g.unary(Self::Digamma, x)?,
            // The trigamma function.
            Self::Digamma => {
                let (two, infinity) = (g.constant(2.0, dtype)?, g.constant(f64::INFINITY, dtype)?);
                let zeta = g.binary(BinaryOp::Zeta, two, x)?;
                let is_finite = g.compare(CompareOp::Ne, x, infinity)?;
                masked(g, is_finite, zeta)?
            }
            Self::I0e => {
                let i1e = g.unary(Self::I1e, x)?;
                let sign = g.unary(Self::Sign, x)?;
                let decay = g.mul(sign, y)?;
                g.sub(i1e, decay)?
            }
            Self::I1e => {
                let i0e = g.unary(Self::I0e, x)?;
                let sign = g.unary(Self::Sign, x)?;
                let decay = g.mul(sign, y)?;
                let at = over_argument(g, x, y)?;
                let slope = g.sub(i0e, decay)?;
                g.sub(slope, at)?
            }
            Self::K0e => {
                let k1e = g.unary(Self::K1e, x)?;
                g.sub(y, k1e)?
            }
            Self::K1e => {
                let k0e = g.unary(Self::K0e, x)?;
                let rest = g.sub(y, k0e)?;
                let at = g.div(y, x)?;
                g.sub(rest, at)?
            }
            Self::BesselJ0 | Self::BesselY0 => {
                let first = match self {
                    Self::BesselJ0 => Self::BesselJ1,
                    _ => Self::BesselY1,
                };
                let first = g.unary(first, x)?;
                g.neg(first)?
            }
            Self::BesselJ1 => {
                let j0 = g.unary(Self::BesselJ0, x)?;
                let at = over_argument(g, x, y)?;
                g.sub(j0, at)?
            }
            Self::BesselY1 => {
                let y0 = g.unary(Self::BesselY0, x)?;
                let at = g.div(y, x)?;
                g.sub(y0, at)?
            }
        };
        let derivative = g.conj(derivative)?;
        g.mul(ct, derivative)
    }
}

/// `y / x` of a function that is `x / 2` near 0.
fn over_argument(g: &mut Graph, x: ValueId, y: ValueId) -> Value {
    let dtype = g.ty(x).dtype;
    let zero = g.constant(0.0, dtype)?;
    let is_zero = g.compare(CompareOp::Eq, x, zero)?;
    let (one, half) = (g.constant(1.0, dtype)?, g.constant(0.5, dtype)?);
    let divisor = g.select(is_zero, one, x)?;
    let ratio = g.div(y, divisor)?;
    g.select(is_zero, half, ratio)
}

impl BinaryOp {
    /// The gradient of the operand `a` or `b`, by its number, from `ct`, that of the result `y`.
    pub(in crate::ops) fn vjp(
        self,
        g: &mut Graph,
        [a, b]: [ValueId; 2],
        y: ValueId,
        ct: ValueId,
        operand: usize,
    ) -> Value {
        let is_first = operand == 0;
        let dtype = g.ty(a).dtype;
        let none = |reason: &str| Err(not_differentiable("binary", reason));
        match self {
            Self::Add => Ok(ct),
            Self::Sub if is_first => Ok(ct),
            Self::Sub => g.neg(ct),
            Self::Mul => {
                let other = g.conj(if is_first { b } else { a })?;
                g.mul(ct, other)
            }
            Self::Div if is_first => {
                let divisor = g.conj(b)?;
                g.div(ct, divisor)
            }
            Self::Div => {
                let slope = g.div(y, b)?;
                let slope = g.conj(slope)?;
                let slope = g.neg(slope)?;
                g.mul(ct, slope)
            }
            Self::FloorDivide => g.zeros_like(ct),
            Self::Remainder | Self::Fmod if is_first => Ok(ct),
            Self::Remainder | Self::Fmod => {
                // Not by a quotient alone, which in halves may be rounded to the next whole number.
                let whole = match self {
                    Self::Remainder => g.binary(Self::FloorDivide, a, b)?,
                    _ => {
                        let ratio = g.div(a, b)?;
                        g.unary(UnaryOp::Trunc, ratio)?
                    }
                };
                let slope = g.neg(whole)?;
                g.mul(ct, slope)
            }
            Self::Pow if is_first => {
                // The derivative is 0 for an exponent of 0, also where that of a would be infinite. So are those of
                // higher order.
                let (zero, one) = (g.constant(0.0, dtype)?, g.constant(1.0, dtype)?);
                let counts = g.compare(CompareOp::Ne, b, zero)?;
                let base = g.select(counts, a, one)?;
                let less = g.add_scalar(b, -1.0)?;
                let power = g.binary(Self::Pow, base, less)?;
                let slope = g.mul(b, power)?;
                let product = g.mul(ct, slope)?;
                masked(g, counts, product)
            }
            Self::Pow => {
                let log = g.unary(UnaryOp::Log, a)?;
                let slope = g.mul(y, log)?;
                let product = g.mul(ct, slope)?;
                // A power of 0 stays 0, or 1.
                let zero = g.constant(0.0, dtype)?;
                let is_zero = g.compare(CompareOp::Eq, a, zero)?;
                let is_whole = g.compare(CompareOp::Ge, b, zero)?;
                let is_level = g.binary(Self::And, is_zero, is_whole)?;
                g.select(is_level, zero, product)
            }
            Self::Maximum | Self::Minimum => {
                // Two that are equal share.
                let half = g.mul_scalar(ct, 0.5)?;
                let equal = g.compare(CompareOp::Eq, a, b)?;
                let share = g.select(equal, half, ct)?;
                let loses = match (self, is_first) {
                    (Self::Maximum, true) | (Self::Minimum, false) => CompareOp::Lt,
                    _ => CompareOp::Gt,
                };
                let loses = g.compare(loses, a, b)?;
                let zero = g.constant(0.0, dtype)?;
                g.select(loses, zero, share)
            }
            Self::Complex if is_first => g.unary(UnaryOp::Real, ct),
            Self::Complex => g.unary(UnaryOp::Imag, ct),
            Self::Atan2 => {
                let (aa, bb) = (g.square(a)?, g.square(b)?);
                let square = g.add(aa, bb)?;
                let other = match is_first {
                    true => b,
                    false => g.neg(a)?,
                };
                let product = g.mul(ct, other)?;
                ratio(g, product, square)
            }
            Self::Hypot => {
                let product = g.mul(ct, if is_first { a } else { b })?;
                ratio(g, product, y)
            }
            Self::CopySign if is_first => {
                let sign = ratio(g, y, a)?;
                g.mul(ct, sign)
            }
            Self::CopySign => g.zeros_like(ct),
            Self::Ldexp if is_first => g.binary(Self::Ldexp, ct, b),
            Self::Ldexp => {
                let slope = g.mul_scalar(y, LN_2)?;
                g.mul(ct, slope)
            }
            Self::GammaInc | Self::GammaIncC if !is_first => {
                // ± b^(a - 1) e^-b / Γ(a)
                let less = g.add_scalar(a, -1.0)?;
                let log = g.unary(UnaryOp::Log, b)?;
                let power = g.mul(less, log)?;
                let power = g.sub(power, b)?;
                let scale = g.unary(UnaryOp::Lgamma, a)?;
                let power = g.sub(power, scale)?;
                let sign = if self == Self::GammaInc { 1.0 } else { -1.0 };
                let density = scaled_exp(g, power, sign)?;
                g.mul(ct, density)
            }
            Self::Zeta if !is_first => {
                let next = g.add_scalar(a, 1.0)?;
                let zeta = g.binary(Self::Zeta, next, b)?;
                let slope = g.mul(a, zeta)?;
                let slope = g.neg(slope)?;
                g.mul(ct, slope)
            }
            Self::ChebyshevT | Self::HermiteH | Self::HermiteHe if is_first => {
                let (of_degree, factor) = match self {
                    Self::ChebyshevT => (Self::ChebyshevU, 1.0),
                    Self::HermiteH => (self, 2.0),
                    _ => (self, 1.0),
                };
                let less = g.add_scalar(b, -1.0)?;
                let polynomial = g.binary(of_degree, a, less)?;
                let slope = g.mul(b, polynomial)?;
                let slope = g.mul_scalar(slope, factor)?;
                g.mul(ct, slope)
            }
            Self::And | Self::Or | Self::Xor | Self::ShiftLeft | Self::ShiftRight | Self::Gcd => {
                none("a function of integers")
            }
            Self::NextAfter if is_first => {
                let moves = g.compare(CompareOp::Ne, a, b)?;
                masked(g, moves, ct)
            }
            Self::NextAfter => g.zeros_like(ct),
            Self::GammaInc | Self::GammaIncC | Self::Zeta => {
                none("the first operand of an incomplete gamma function or zeta")
            }
            Self::ChebyshevT | Self::HermiteH | Self::HermiteHe => none("a polynomial's degree"),
            Self::ChebyshevU
            | Self::ChebyshevV
            | Self::ChebyshevW
            | Self::LaguerreL
            | Self::LegendreP => none("a polynomial, which has no derivative in PyTorch either"),
        }
    }
}

/// The gradient of `min(max(x, low), high)`'s operand, by its number. `x` has it inside of the bounds, and shares it
/// with a bound that it is equal to. It has the gradient alone where it is equal to both bounds.
pub(in crate::ops) fn clamp(
    g: &mut Graph,
    [x, low, high]: [ValueId; 3],
    ct: ValueId,
    operand: usize,
) -> Value {
    let mut is = |op, a, b| g.compare(op, a, b);
    let is_apart = is(CompareOp::Lt, low, high)?;
    let (is_below, is_above) = (is(CompareOp::Lt, x, low)?, is(CompareOp::Gt, x, high)?);
    let (is_low, is_high) = (is(CompareOp::Eq, x, low)?, is(CompareOp::Eq, x, high)?);
    let is_in_order = is(CompareOp::Le, low, high)?;
    let is_crossed = is(CompareOp::Gt, low, high)?;
    let mut both = |op, a, b| g.binary(op, a, b);
    let (counts, at_bound) = match operand {
        0 => {
            let is_outside = both(BinaryOp::Or, is_below, is_above)?;
            (is_outside, both(BinaryOp::Or, is_low, is_high)?)
        }
        1 => (both(BinaryOp::And, is_below, is_in_order)?, is_low),
        _ => {
            let passes = both(BinaryOp::And, is_above, is_in_order)?;
            (both(BinaryOp::Or, passes, is_crossed)?, is_high)
        }
    };
    let shares = both(BinaryOp::And, at_bound, is_apart)?;
    let half = g.mul_scalar(ct, 0.5)?;
    let zero = g.constant(0.0, g.ty(ct).dtype)?;
    let whole = match operand {
        0 => g.select(counts, zero, ct)?,
        _ => g.select(counts, ct, zero)?,
    };
    g.select(shares, half, whole)
}

/// The gradient of `a + c (b - a)`'s operand, by its number.
pub(in crate::ops) fn lerp(
    g: &mut Graph,
    [a, b, c]: [ValueId; 3],
    ct: ValueId,
    operand: usize,
) -> Value {
    let slope = match operand {
        0 => {
            let rest = g.neg(c)?;
            g.add_scalar(rest, 1.0)?
        }
        1 => c,
        _ => g.sub(b, a)?,
    };
    g.mul(ct, slope)
}
