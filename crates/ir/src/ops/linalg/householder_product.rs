use smallvec::smallvec;

use super::matrices::Matrices;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Arrange, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The first `n` columns of the product of the reflections `1 − τ·v·vᴴ`. Their vectors are below
/// the diagonal of each matrix `[…, m, n]`, `n ≤ m`. Their factors are `τ` `[…, k]`, `k ≤ n`.
/// With the results of [`Geqrf`] this is `Q`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HouseholderProduct;

/// The product, reflection by reflection from the last one on.
fn reflections(g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
    let (a, tau) = (inputs[0], inputs[1]);
    let TensorType { shape, dtype } = g.ty(a).clone();
    let rank = shape.len();
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let count = g.ty(tau).shape[rank - 2];
    let rows = g.arange(m, DType::I64)?;
    let rows = g.reshape(rows, [m, 1])?;
    let columns = g.arange(n, DType::I64)?;
    let is_one = g.compare(CompareOp::Eq, rows, columns)?;
    let (zero, one) = (g.constant(0, dtype)?, g.constant(1, dtype)?);
    let mut q = g.select(is_one, one, zero)?;
    q = g.broadcast(q, shape)?;
    for i in (0..count).rev() {
        let first = g.constant(i as i64, DType::I64)?;
        let column = g.slice(a, rank - 1, i, i + 1)?;
        let is_below = g.compare(CompareOp::Gt, rows, first)?;
        let is_first = g.compare(CompareOp::Eq, rows, first)?;
        let v = g.select(is_below, column, zero)?;
        let v = g.select(is_first, one, v)?;
        let factor = g.slice(tau, rank - 2, i, i + 1)?;
        let factor = g.unsqueeze(factor, rank - 1)?;
        let adjoint = g.adjoint(v)?;
        let along = g.matmul(adjoint, q)?;
        let turned = g.matmul(v, along)?;
        let turned = g.mul(turned, factor)?;
        q = g.sub(q, turned)?;
    }
    Ok(smallvec![q])
}

impl OpDef for HouseholderProduct {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, tau] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, tau)?;
        let got = format_args!("{a} and {tau}");
        let a = Matrices::of(Self::NAME, a)?;
        let count = tau.shape.last().copied().unwrap_or(0);
        let is_one = a.rows >= a.columns && count <= a.columns && *tau == a.vector(count, a.dtype);
        let expected = "matrices of no more columns than rows, with no more factors than columns";
        require(Self::NAME, is_one, expected, got)?;
        Ok(smallvec![a.matrix(a.rows, a.columns)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        node.through_parts(g, reflections)
    }
}

impl Named for HouseholderProduct {
    const NAME: &'static str = "householder_product";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in Matrices::DTYPES {
            let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
            let mut push = |a, tau| cases.push(Case::new(Self, [a, tau]));
            push(x(&[5, 3]), x(&[3]));
            push(x(&[4, 4]), x(&[2]));
            push(x(&[2, 6, 3]).arrange(Arrange::Transposed), x(&[2, 3]));
            push(x(&[3, 0]), x(&[0]));
            push(x(&[3, 2]), x(&[0]));
        }
        cases
    }
}
