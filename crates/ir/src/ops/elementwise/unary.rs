use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, CaseOperand, Fill, elementwise};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, special};

/// An elementwise function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Unary {
    /// The function.
    pub op: UnaryOp,
}

/// Makes the functions: to those that backends have their own ways for come those that one line
/// defines for all of them.
macro_rules! functions {
    ($d:tt $($(#[$doc:meta])+ $name:ident = $symbol:literal, $definition:expr;)+) => {
        /// Functions of one element. Functions of floating point follow IEEE 754: outside their
        /// domain they give NaN or an infinity.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum UnaryOp {
            /// `-x`; integers wrap.
            Neg,
            /// `|x|`; for a complex number its magnitude, a real number.
            Abs,
            /// −1, 0 or 1; NaN gives 0, as in PyTorch.
            Sign,
            /// eˣ.
            Exp,
            /// Natural logarithm.
            Log,
            /// Square root.
            Sqrt,
            /// `1 / √x`.
            Rsqrt,
            /// `1 / x`.
            Reciprocal,
            /// Sine.
            Sin,
            /// Cosine.
            Cos,
            /// Tangent.
            Tan,
            /// Hyperbolic tangent.
            Tanh,
            /// Error function.
            Erf,
            /// Largest integer at or below.
            Floor,
            /// Smallest integer at or above.
            Ceil,
            /// Nearest integer, halves to even.
            Round,
            /// Integer part.
            Trunc,
            /// Whether the element is NaN. Result `bool`.
            IsNan,
            /// Logical not of a `bool`.
            Not,
            /// Complex conjugate.
            Conj,
            /// Real part.
            Real,
            /// Imaginary part.
            Imag,
            $($(#[$doc])+ $name,)+
        }

        impl UnaryOp {
            /// Every function.
            pub const ALL: &[Self] = &[
                Self::Neg,
                Self::Abs,
                Self::Sign,
                Self::Exp,
                Self::Log,
                Self::Sqrt,
                Self::Rsqrt,
                Self::Reciprocal,
                Self::Sin,
                Self::Cos,
                Self::Tan,
                Self::Tanh,
                Self::Erf,
                Self::Floor,
                Self::Ceil,
                Self::Round,
                Self::Trunc,
                Self::IsNan,
                Self::Not,
                Self::Conj,
                Self::Real,
                Self::Imag,
                $(Self::$name,)+
            ];

            /// The definition of a function of floats that one line defines, and its name among the
            /// [special functions](crate::special) or else in the languages of GPUs.
            #[inline]
            pub fn defined(self) -> Option<(fn(f64) -> f64, &'static str)> {
                match self {
                    $(Self::$name => Some(($definition, $symbol)),)+
                    _ => None,
                }
            }
        }

        /// Passes the functions that one line defines to a macro. The macro makes its own table
        /// from their names in [`UnaryOp`].
        #[macro_export]
        macro_rules! for_each_function {
            ($d table:ident) => { $d table! { $($name),+ } };
        }
    };
}

functions! {
    $
    /// Hyperbolic sine.
    Sinh = "sinh", f64::sinh;
    /// Hyperbolic cosine.
    Cosh = "cosh", f64::cosh;
    /// Inverse sine.
    Asin = "asin", f64::asin;
    /// Inverse cosine.
    Acos = "acos", f64::acos;
    /// Inverse tangent.
    Atan = "atan", f64::atan;
    /// Inverse hyperbolic sine.
    Asinh = "asinh", libm::asinh;
    /// Inverse hyperbolic cosine.
    Acosh = "acosh", libm::acosh;
    /// Inverse hyperbolic tangent.
    Atanh = "atanh", libm::atanh;
    /// 2ˣ.
    Exp2 = "exp2", f64::exp2;
    /// Logarithm to base 2.
    Log2 = "log2", f64::log2;
    /// Logarithm to base 10.
    Log10 = "log10", f64::log10;
    /// `eˣ - 1`.
    Expm1 = "expm1", special::expm1;
    /// `ln(1 + x)`.
    Log1p = "log1p", special::log1p;
    /// `1 - erf(x)`.
    Erfc = "erfc", special::erfc;
    /// `exp(x²) erfc(x)`.
    Erfcx = "erfcx", special::erfcx;
    /// Inverse of the error function.
    Erfinv = "erfinv", special::erfinv;
    /// Inverse of the standard normal distribution function.
    Ndtri = "ndtri", special::ndtri;
    /// `ln |Γ(x)|`.
    Lgamma = "lgamma", special::lgamma;
    /// Derivative of `ln Γ(x)`.
    Digamma = "digamma", special::digamma;
    /// Modified Bessel function of the first kind of order 0, times `e^-|x|`.
    I0e = "i0e", special::i0e;
    /// Modified Bessel function of the first kind of order 1, times `e^-|x|`.
    I1e = "i1e", special::i1e;
    /// Modified Bessel function of the second kind of order 0, times `eˣ`.
    K0e = "k0e", special::k0e;
    /// Modified Bessel function of the second kind of order 1, times `eˣ`.
    K1e = "k1e", special::k1e;
    /// Bessel function of the first kind of order 0.
    BesselJ0 = "bessel_j0", special::bessel_j0;
    /// Bessel function of the first kind of order 1.
    BesselJ1 = "bessel_j1", special::bessel_j1;
    /// Bessel function of the second kind of order 0.
    BesselY0 = "bessel_y0", special::bessel_y0;
    /// Bessel function of the second kind of order 1.
    BesselY1 = "bessel_y1", special::bessel_y1;
    /// Airy's function Ai.
    AiryAi = "airy_ai", special::airy_ai;
}

impl UnaryOp {
    /// PyTorch's name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Neg => "neg",
            Self::Abs => "abs",
            Self::Sign => "sign",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Rsqrt => "rsqrt",
            Self::Reciprocal => "reciprocal",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Tan => "tan",
            Self::Tanh => "tanh",
            Self::Erf => "erf",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Round => "round",
            Self::Trunc => "trunc",
            Self::IsNan => "isnan",
            Self::Not => "logical_not",
            Self::Conj => "conj",
            Self::Real => "real",
            Self::Imag => "imag",
            other => other.defined().map_or(Unary::NAME, |(_, symbol)| symbol),
        }
    }

    /// Returns whether the function is defined for elements of `dtype`.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Neg => dtype.is_float() || dtype.is_int() || dtype.is_complex(),
            Self::Abs => dtype.is_float() || dtype.is_int() || dtype.is_complex(),
            Self::Sign => dtype.is_float() || dtype.is_int(),
            Self::Exp | Self::Reciprocal => dtype.is_float() || dtype.is_complex(),
            Self::Not => dtype == DType::Bool,
            Self::Conj | Self::Real | Self::Imag => dtype.is_complex(),
            _ => dtype.is_float(),
        }
    }

    /// Range of examples, for a function that is not defined for all floats.
    fn domain(self) -> Option<(f64, f64)> {
        match self {
            Self::Log | Self::Log2 | Self::Log10 | Self::Sqrt | Self::Rsqrt => Some((0.01, 9.0)),
            Self::Acosh => Some((1.01, 9.0)),
            Self::Asin | Self::Acos | Self::Atanh | Self::Erfinv => Some((-0.99, 0.99)),
            Self::Log1p => Some((-0.9, 9.0)),
            Self::Ndtri => Some((0.001, 0.999)),
            // Away from the zeros.
            Self::Lgamma | Self::Digamma => Some((2.5, 30.0)),
            Self::K0e | Self::K1e | Self::BesselY0 | Self::BesselY1 => Some((0.01, 30.0)),
            Self::I0e | Self::I1e | Self::BesselJ0 | Self::BesselJ1 => Some((-30.0, 30.0)),
            Self::AiryAi | Self::Erfcx | Self::Erfc => Some((-4.0, 4.0)),
            _ => None,
        }
    }

    /// Do waves make all digits of large operands count?
    fn oscillates(self) -> bool {
        matches!(
            self,
            Self::BesselJ0 | Self::BesselJ1 | Self::BesselY0 | Self::BesselY1 | Self::AiryAi
        )
    }

    /// Type of the result for elements of `dtype`.
    pub fn output(self, dtype: DType) -> DType {
        match self {
            Self::Abs | Self::Real | Self::Imag => dtype.real(),
            Self::IsNan => DType::Bool,
            _ => dtype,
        }
    }
}

impl OpDef for Unary {
    fn op_type(&self) -> Option<OpType> {
        Some(match self.op {
            UnaryOp::Conj | UnaryOp::Real | UnaryOp::Imag => OpType::ComplexMath,
            _ => OpType::Activation,
        })
    }

    fn function(&self) -> Option<&'static str> {
        Some(self.op.name())
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let expected = "a dtype that it is defined for";
        require(Self::NAME, self.op.accepts(x.dtype), expected, x)?;
        Ok(smallvec![TensorType::new(
            x.shape.clone(),
            self.op.output(x.dtype)
        )])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| {
            self.op.vjp(g, node.inputs[0], node.results[0], ct)
        })
    }
}

impl Named for Unary {
    const NAME: &'static str = "unary";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for &op in UnaryOp::ALL {
            let dtypes: Vec<DType> = (DType::SCALARS.into_iter())
                .filter(|&d| op.accepts(d))
                .collect();
            let domain = op.domain();
            let fill = |x: CaseOperand| match domain {
                Some((least, most)) => x.fill(Fill::Uniform(least, most)),
                None => x,
            };
            // Special functions cannot get layouts wrong by themselves, so one shape is enough.
            if op
                .defined()
                .is_some_and(|(_, name)| special::is_defined(name))
            {
                let case = |dtype| Case::new(Self { op }, [fill(CaseOperand::new([67], dtype))]);
                cases.extend(dtypes.iter().copied().map(case));
            } else {
                cases.extend(elementwise(&Self { op }.into(), &dtypes, fill));
            }
            if op.oscillates() {
                continue;
            }
            for dtype in dtypes.into_iter().filter(|d| d.is_float()) {
                let x = CaseOperand::new([64], dtype).fill(Fill::Special);
                cases.push(Case::new(Self { op }, [x]));
            }
        }
        cases
    }
}
