use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Arrange, Case, CaseOperand};
use crate::ops::*;
use crate::{
    Graph, Named, OpDef, OpType, ResultTypes, Shape, Signature, ValueId, broadcast_shapes,
};

/// Matrix product of `a` `[…, m, k]` and `b` `[…, k, n]`; leading dimensions broadcast.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Matmul;

impl OpDef for Matmul {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        s.output().shape.elements() * s.inputs[0].shape.last().map_or(0, |&k| k)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, b] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, b)?;
        require_scalar(Self::NAME, a)?;
        let are_numbers = a.dtype.is_arithmetic() && a.dtype != DType::Bool;
        require(Self::NAME, are_numbers, "numbers", a)?;
        let got = format_args!("{a} and {b}");
        require(
            Self::NAME,
            a.rank() >= 2 && b.rank() >= 2,
            "operands of rank 2 or more",
            got,
        )?;
        let (batch_a, mk) = a.shape.split_at(a.rank() - 2);
        let (batch_b, kn) = b.shape.split_at(b.rank() - 2);
        require(Self::NAME, mk[1] == kn[0], "equal inner sizes", got)?;
        let unfit = |_| OpError::new(Self::NAME, "batches that broadcast", got);
        let mut shape: Shape = broadcast_shapes(Self::NAME, batch_a, batch_b).map_err(unfit)?;
        shape.to_mut().extend_from_slice(&[mk[0], kn[1]]);
        Ok(smallvec![TensorType::new(shape, a.dtype)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, i| {
            let (own, other) = (node.inputs[i], node.inputs[1 - i]);
            let is_shared = batch(g, own) == 1 && batch(g, ct) > 1;
            let [ct, other] = match is_shared {
                true => [side_by_side(g, ct, i)?, side_by_side(g, other, i)?],
                false => [ct, other],
            };
            let other = g.adjoint(other)?;
            let gradient = match i {
                0 => g.matmul(ct, other)?,
                _ => g.matmul(other, ct)?,
            };
            match is_shared {
                true => g.reshape(gradient, g.ty(own).shape.clone()),
                false => Ok(gradient),
            }
        })
    }
}

/// Number of matrices.
fn batch(g: &Graph, x: ValueId) -> usize {
    let shape = &g.ty(x).shape;
    shape[..shape.len() - 2].iter().product()
}

/// Matrices as one, side by side (0) or one below the other (1). A common factor gets its gradient by one
/// product, whose sums are rounded once.
fn side_by_side(g: &mut Graph, x: ValueId, dim: usize) -> Result<ValueId, OpError> {
    let shape = &g.ty(x).shape;
    let (count, rank) = (batch(g, x), shape.len());
    let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
    if dim == 1 {
        return g.reshape(x, [count * rows, columns]);
    }
    let x = g.reshape(x, [count, rows, columns])?;
    let x = g.permute(x, &[1, 0, 2])?;
    g.reshape(x, [rows, count * columns])
}

impl Named for Matmul {
    const NAME: &'static str = "matmul";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let are_numbers = |d: &DType| d.is_arithmetic() && *d != DType::Bool;
        for dtype in DType::SCALARS.into_iter().filter(are_numbers) {
            let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
            let mut push = |a, b| cases.push(Case::new(Self, [a, b]));
            push(x(&[1, 1]), x(&[1, 1]));
            push(x(&[5, 0]), x(&[0, 3]));
            push(x(&[0, 4]), x(&[4, 3]));
            push(x(&[17, 33]), x(&[33, 19]));
            push(x(&[1, 70]), x(&[70, 9]));
            push(x(&[2, 1, 4, 5]), x(&[3, 5, 6]));
            // Vectors, one for all matrices and one for each.
            push(x(&[2, 7, 70]), x(&[70, 1]));
            push(x(&[3, 1, 7, 9]), x(&[2, 9, 1]));
            push(x(&[0, 4, 5]), x(&[5, 6]));
            for arrange in ARRANGEMENTS {
                push(x(&[2, 7, 9]).arrange(arrange), x(&[2, 9, 8]));
                push(x(&[2, 7, 9]), x(&[9, 8]).arrange(arrange));
            }
            push(
                x(&[7, 9]).arrange(Arrange::Transposed),
                x(&[9, 8]).arrange(Arrange::Transposed),
            );
        }
        cases
    }
}
