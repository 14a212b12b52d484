use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// A triangle of each matrix of the last two dimensions, 0 elsewhere: `torch.tril` and
/// `torch.triu`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Triangle {
    /// Whether it is the upper triangle, not the lower one.
    pub upper: bool,
    /// The diagonal at its edge, which belongs to it. It is counted in columns to the right of the
    /// main one.
    pub diagonal: i64,
}

impl OpDef for Triangle {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        require(Self::NAME, x.rank() >= 2, "rank 2 or more", x)?;
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let TensorType { shape, dtype } = g.ty(inputs[0]).clone();
        let [rows, columns] = [shape[shape.len() - 2], shape[shape.len() - 1]];
        let row = g.arange(rows, DType::I64)?;
        let row = g.reshape(row, [rows, 1])?;
        let diagonal = g.constant(self.diagonal, DType::I64)?;
        let edge = g.add(row, diagonal)?;
        let column = g.arange(columns, DType::I64)?;
        let side = match self.upper {
            true => CompareOp::Ge,
            false => CompareOp::Le,
        };
        let inside = g.compare(side, column, edge)?;
        let zero = g.constant(0, dtype)?;
        Ok(smallvec![g.select(inside, inputs[0], zero)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| g.push(self.clone(), &[ct]))
    }
}

impl Named for Triangle {
    const NAME: &'static str = "triangle";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for upper in [false, true] {
                for diagonal in [0, 2, -1, 20, -20] {
                    let x = CaseOperand::new([2, 5, 7], dtype);
                    cases.push(Case::new(Self { upper, diagonal }, [x]));
                }
                for arrange in ARRANGEMENTS {
                    let x = CaseOperand::new([4, 9, 3], dtype).arrange(arrange);
                    cases.push(Case::new(Self { upper, diagonal: 0 }, [x]));
                }
                for shape in [&[1, 1][..], &[0, 3], &[2, 3, 0], &[40, 300]] {
                    let x = CaseOperand::new(shape, dtype);
                    cases.push(Case::new(Self { upper, diagonal: 1 }, [x]));
                }
            }
        }
        cases
    }
}
