use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill, SHAPES};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId, broadcast_shapes};

/// A function of three operands of one dtype, broadcast against each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ternary {
    /// The function.
    pub op: TernaryOp,
}

/// Functions of three elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TernaryOp {
    /// `min(max(a, b), c)` for real numbers; NaN if one is NaN.
    Clamp,
    /// `a + c (b - a)` of floats, computed from the nearer end, so that both ends are met.
    Lerp,
}

impl TernaryOp {
    /// Every function.
    pub const ALL: &[Self] = &[Self::Clamp, Self::Lerp];

    /// Returns whether the function is defined for elements of `dtype`.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Clamp => BinaryOp::Maximum.accepts(dtype),
            Self::Lerp => dtype.is_float(),
        }
    }
}

impl OpDef for Ternary {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Activation)
    }

    fn function(&self) -> Option<&'static str> {
        Some(match self.op {
            TernaryOp::Clamp => "clamp",
            TernaryOp::Lerp => "lerp",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, b, c] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, b)?;
        require_same(Self::NAME, a, c)?;
        let expected = "a dtype that it is defined for";
        require(Self::NAME, self.op.accepts(a.dtype), expected, a)?;
        let shape = broadcast_shapes(Self::NAME, &a.shape, &b.shape)?;
        let shape = broadcast_shapes(Self::NAME, &shape, &c.shape)?;
        Ok(smallvec![TensorType::new(shape, a.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let dtype = g.ty(inputs[0]).dtype;
        let mut wide = |x: ValueId| g.cast(x, compute_dtype(dtype));
        let (a, b, c) = (wide(inputs[0])?, wide(inputs[1])?, wide(inputs[2])?);
        let y = match self.op {
            TernaryOp::Clamp => {
                let raised = g.binary(BinaryOp::Maximum, a, b)?;
                g.binary(BinaryOp::Minimum, raised, c)?
            }
            TernaryOp::Lerp => {
                let way = g.sub(b, a)?;
                let part = g.mul(way, c)?;
                let from_start = g.add(a, part)?;
                let one = g.constant(1.0, g.ty(c).dtype)?;
                let rest = g.sub(one, c)?;
                let part = g.mul(way, rest)?;
                let from_end = g.sub(b, part)?;
                let distance = g.unary(UnaryOp::Abs, c)?;
                let half = g.constant(0.5, g.ty(c).dtype)?;
                let is_near = g.compare(CompareOp::Lt, distance, half)?;
                g.select(is_near, from_start, from_end)?
            }
        };
        Ok(smallvec![g.cast(y, dtype)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let operands = [node.inputs[0], node.inputs[1], node.inputs[2]];
        node.each(g, |g, i| match self.op {
            TernaryOp::Clamp => derivatives::clamp(g, operands, ct, i),
            TernaryOp::Lerp => derivatives::lerp(g, operands, ct, i),
        })
    }
}

impl Named for Ternary {
    const NAME: &'static str = "ternary";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for &op in TernaryOp::ALL {
            for dtype in DType::SCALARS.into_iter().filter(|&d| op.accepts(d)) {
                let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
                let mut push = |a, b, c| cases.push(Case::new(Self { op }, [a, b, c]));
                for shape in SHAPES {
                    push(x(shape), x(shape), x(shape));
                    push(x(shape), x(&[]), x(&[]));
                }
                push(x(&[3, 1]), x(&[1, 5]), x(&[2, 1, 1]));
                for arrange in ARRANGEMENTS {
                    let a = x(&[3, 5, 7]).arrange(arrange);
                    push(a, x(&[5, 7]).arrange(arrange), x(&[3, 5, 7]));
                }
                if dtype.is_float() && op == TernaryOp::Clamp {
                    let special = |shape: &[usize]| x(shape).fill(Fill::Special);
                    push(special(&[11, 1, 1]), special(&[11, 1]), special(&[11]));
                }
            }
        }
        cases
    }
}
