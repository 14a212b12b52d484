use smallvec::smallvec;

use super::matrices::Matrices;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Arrange, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// Solves `A·X = B` for each triangular matrix `A` `[…, n, n]` and `B` `[…, n, k]` of the same leading
/// dimensions. The other triangle of `A` is not read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SolveTriangular {
    /// Whether it is the upper triangle, not the lower one.
    pub upper: bool,
    /// Whether the diagonal is taken to be 1.
    pub unitriangular: bool,
}

impl OpDef for SolveTriangular {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        let n = s.inputs[0].shape.last().map_or(0, |&n| n);
        s.output().shape.elements().saturating_mul(n) / 2
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, b] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, b)?;
        let got = format_args!("{a} and {b}");
        let a = Matrices::square(Self::NAME, a)?;
        let b = Matrices::of(Self::NAME, b)?;
        let fits = a.batch == b.batch && a.rows == b.rows;
        let expected = "matrices of equal rows and leading dimensions";
        require(Self::NAME, fits, expected, got)?;
        Ok(smallvec![b.matrix(b.rows, b.columns)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (a, x) = (node.inputs[0], node.results[0]);
        let ct = node.cotangent(g, 0)?;
        let adjoint = g.adjoint(a)?;
        let solve = Self {
            upper: !self.upper,
            ..self.clone()
        };
        let b = g.push(solve, &[adjoint, ct])?;
        node.each(g, |g, i| {
            if i == 1 {
                return Ok(b);
            }
            let x = g.adjoint(x)?;
            let product = g.matmul(b, x)?;
            let product = g.neg(product)?;
            let diagonal = match (self.unitriangular, self.upper) {
                (false, _) => 0,
                (true, true) => 1,
                (true, false) => -1,
            };
            matrices::triangle(g, product, self.upper, diagonal)
        })
    }
}

impl Named for SolveTriangular {
    const NAME: &'static str = "solve_triangular";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in Matrices::DTYPES {
            let a = |shape: &[usize]| CaseOperand::new(shape, dtype).fill(Fill::Dominant);
            let b = |shape: &[usize]| CaseOperand::new(shape, dtype);
            for (upper, unitriangular) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let op = Self {
                    upper,
                    unitriangular,
                };
                let mut push = |a, b| cases.push(Case::new(op.clone(), [a, b]));
                push(a(&[5, 5]), b(&[5, 3]));
                push(a(&[1, 1]), b(&[1, 1]));
                push(a(&[0, 0]), b(&[0, 2]));
                push(a(&[4, 4]), b(&[4, 0]));
                push(a(&[0, 4, 4]), b(&[0, 4, 2]));
                push(a(&[2, 3, 6, 6]), b(&[2, 3, 6, 1]).arrange(Arrange::Strided));
            }
        }
        cases
    }
}
