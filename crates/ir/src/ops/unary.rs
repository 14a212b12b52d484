use smallvec::smallvec;

use super::*;
use crate::case::{Case, Fill, Operand, elementwise};
use crate::{Named, OpDef, OpType, ResultTypes};

/// A function of each element.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Unary {
    /// The function.
    pub op: UnaryOp,
}

/// Functions of one element. Those of floating point follow IEEE 754: out of their domain
/// they give NaN or an infinity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnaryOp {
    /// `-x`; integers wrap.
    Neg,
    /// `|x|`; of a complex number its length, a real.
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
    /// Largest integer not above.
    Floor,
    /// Smallest integer not below.
    Ceil,
    /// Nearest integer, halves to even.
    Round,
    /// Integer part.
    Trunc,
    /// Is it NaN? Result `bool`.
    IsNan,
    /// Logical not of a `bool`.
    Not,
    /// Complex conjugate.
    Conj,
    /// Real part.
    Real,
    /// Imaginary part.
    Imag,
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
    ];

    /// Is the function defined for elements of `dtype`?
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

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let expected = format_args!("a dtype that {:?} is defined for", self.op);
        require(Self::NAME, self.op.accepts(x.dtype), expected, x)?;
        Ok(smallvec![TensorType::new(
            x.shape.clone(),
            self.op.output(x.dtype)
        )])
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
            let positive = matches!(op, UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt);
            cases.extend(elementwise(
                &Self { op }.into(),
                &dtypes,
                |x| match positive {
                    true => x.fill(Fill::Uniform(0.01, 9.0)),
                    false => x,
                },
            ));
            for dtype in dtypes.into_iter().filter(|d| d.is_float()) {
                let x = Operand::new([64], dtype).fill(Fill::Special);
                cases.push(Case::new(Self { op }, [x]));
            }
        }
        cases
    }
}
