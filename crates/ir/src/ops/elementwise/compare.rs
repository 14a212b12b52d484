use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill, SHAPES};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, broadcast_shapes};

/// A comparison of two operands of one dtype, broadcast against each other. Result `bool`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Compare {
    /// Comparison.
    pub op: CompareOp,
}

/// Comparisons; all but `Ne` are false if an operand is NaN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CompareOp {
    /// `a == b`.
    Eq,
    /// `a != b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a <= b`.
    Le,
    /// `a > b`.
    Gt,
    /// `a >= b`.
    Ge,
}

impl CompareOp {
    /// Every comparison.
    pub const ALL: &[Self] = &[Self::Eq, Self::Ne, Self::Lt, Self::Le, Self::Gt, Self::Ge];

    /// Returns whether the comparison is defined for elements of `dtype`. Complex numbers have no order.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Eq | Self::Ne => dtype.is_arithmetic(),
            _ => dtype.is_arithmetic() && !dtype.is_complex(),
        }
    }
}

impl OpDef for Compare {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Activation)
    }

    fn function(&self) -> Option<&'static str> {
        Some(match self.op {
            CompareOp::Eq => "eq",
            CompareOp::Ne => "ne",
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, b] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, b)?;
        let expected = "a dtype that it is defined for";
        require(Self::NAME, self.op.accepts(a.dtype), expected, a)?;
        let shape = broadcast_shapes(Self::NAME, &a.shape, &b.shape)?;
        Ok(smallvec![TensorType::new(shape, DType::Bool)])
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(
            Self::NAME,
            "a comparison, which gives bool",
        ))
    }
}

impl Named for Compare {
    const NAME: &'static str = "compare";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for &op in CompareOp::ALL {
            for dtype in DType::SCALARS.into_iter().filter(|&d| op.accepts(d)) {
                let x = |shape: &[usize]| CaseOperand::new(shape, dtype).fill(Fill::Ints(0, 3));
                let mut push = |a, b| cases.push(Case::new(Self { op }, [a, b]));
                for shape in SHAPES {
                    push(x(shape), x(shape));
                }
                push(x(&[3, 1, 5]), x(&[4, 1]));
                for arrange in ARRANGEMENTS {
                    push(x(&[3, 5, 7]).arrange(arrange), x(&[7]));
                }
                if dtype.is_int() {
                    // Unsigned integers include those beyond the largest signed one.
                    let any = x(&[67]).fill(Fill::Ints(i32::MIN.into(), i32::MAX.into()));
                    push(any.clone(), any);
                }
                if dtype.is_float() {
                    let special = CaseOperand::new([8, 1], dtype).fill(Fill::Special);
                    push(
                        special.clone(),
                        CaseOperand::new([8], dtype).fill(Fill::Special),
                    );
                }
            }
        }
        cases
    }
}
