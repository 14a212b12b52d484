use super::gather::require_indexed;
use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes};

/// A copy of `x` in which `out[i][index[i][j][k]][k]` (for `dim` 1) is set to, or combined
/// with, `source[i][j][k]`: `torch.scatter` and `torch.scatter_reduce`.
///
/// Operands: `x`; `index`, as for [`Gather`](super::Gather); `source` of `index`'s shape and `x`'s
/// dtype. If `Set` meets an index several times, the last element in row-major order counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    /// The dimension that is indexed.
    pub dim: usize,
    /// Operation on the existing element.
    pub mode: ScatterMode,
}

/// Operations of [`Scatter`] on an element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScatterMode {
    /// Replaces it.
    Set,
    /// Adds to it.
    Add,
    /// Multiplies it.
    Prod,
    /// The larger one; NaN if one is NaN.
    Max,
    /// The smaller one; NaN if one is NaN.
    Min,
}

impl ScatterMode {
    /// Every mode.
    pub const ALL: &[Self] = &[Self::Set, Self::Add, Self::Prod, Self::Max, Self::Min];

    /// Returns whether it is defined for elements of `dtype`.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Set => true,
            Self::Add | Self::Prod => dtype.is_arithmetic() && dtype != DType::Bool,
            Self::Max | Self::Min => dtype.is_arithmetic() && !dtype.is_complex(),
        }
    }
}

impl OpDef for Scatter {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, index, source] = operands(Self::NAME, inputs)?;
        require_indexed(Self::NAME, x, index, self.dim)?;
        require_same(Self::NAME, x, source)?;
        let same = index.shape == source.shape;
        require(
            Self::NAME,
            same,
            "index and source of one shape",
            format!("{index} and {source}"),
        )?;
        let expected = "a dtype that it is defined for";
        require(Self::NAME, self.mode.accepts(x.dtype), expected, x)?;
        Ok(smallvec![x.clone()])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (x, index, source) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let y = node.results[0];
        let ct = node.cotangent(g, 0)?;
        let gather = Gather { dim: self.dim };
        let scatter = |g: &mut Graph, mode, into, source| {
            let dim = self.dim;
            g.push(Self { dim, mode }, &[into, index, source])
        };
        node.each(g, |g, i| match (self.mode, i) {
            (ScatterMode::Set, 0) => {
                let zeros = g.zeros_like(source)?;
                scatter(g, ScatterMode::Set, ct, zeros)
            }
            // The last of several elements at one place stays.
            (ScatterMode::Set, _) => {
                let shape = g.ty(source).shape.clone();
                let places = g.arange(shape.elements(), DType::I64)?;
                let places = g.reshape(places, shape)?;
                let none = g.full(g.ty(x).shape.clone(), -1, DType::I64)?;
                let last = scatter(g, ScatterMode::Set, none, places)?;
                let last = g.push(gather.clone(), &[last, index])?;
                let stays = g.compare(CompareOp::Eq, last, places)?;
                let ct = g.push(gather.clone(), &[ct, index])?;
                let zero = g.constant(0, g.ty(ct).dtype)?;
                g.select(stays, ct, zero)
            }
            (ScatterMode::Add, 0) => Ok(ct),
            (ScatterMode::Add, _) => g.push(gather.clone(), &[ct, index]),
            (ScatterMode::Prod, 0) => {
                let ones = g.full(g.ty(x).shape.clone(), 1, g.ty(x).dtype)?;
                let factor = scatter(g, ScatterMode::Prod, ones, source)?;
                let factor = g.conj(factor)?;
                g.mul(ct, factor)
            }
            // The product of the others: without zeros it is divided, one 0 alone has that of the rest.
            (ScatterMode::Prod, _) => {
                let dtype = g.ty(x).dtype;
                let (zero, one) = (g.constant(0, dtype)?, g.constant(1, dtype)?);
                let is_zero = g.compare(CompareOp::Eq, source, zero)?;
                let divisor = g.select(is_zero, one, source)?;
                let product = scatter(g, ScatterMode::Prod, x, divisor)?;
                let counted = g.cast(is_zero, DType::I64)?;
                let zeros = g.scatter_add(g.ty(x).shape.clone(), self.dim, index, counted)?;
                let product = g.push(gather.clone(), &[product, index])?;
                let zeros = g.push(gather.clone(), &[zeros, index])?;
                let others = g.sub(zeros, counted)?;
                let none = g.constant(0, DType::I64)?;
                let counts = g.compare(CompareOp::Eq, others, none)?;
                let rest = g.div(product, divisor)?;
                let rest = g.select(counts, rest, zero)?;
                let rest = g.conj(rest)?;
                let ct = g.push(gather.clone(), &[ct, index])?;
                g.mul(ct, rest)
            }
            // Equal elements share the gradient, as with `torch.scatter_reduce`.
            (ScatterMode::Max | ScatterMode::Min, _) => {
                let dtype = g.ty(x).dtype;
                let stays = g.compare(CompareOp::Eq, x, y)?;
                let stays = g.cast(stays, dtype)?;
                let value = g.push(gather.clone(), &[y, index])?;
                let wins = g.compare(CompareOp::Eq, source, value)?;
                let wins = g.cast(wins, dtype)?;
                let count = scatter(g, ScatterMode::Add, stays, wins)?;
                let share = g.div(ct, count)?;
                if i == 0 {
                    return g.mul(share, stays);
                }
                let share = g.push(gather.clone(), &[share, index])?;
                g.mul(share, wins)
            }
        })
    }
}

impl Named for Scatter {
    const NAME: &'static str = "scatter";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for &mode in ScatterMode::ALL.iter().filter(|mode| mode.accepts(dtype)) {
                // The other modes cannot get layouts wrong by themselves, so one arrangement is enough.
                let is_usual = matches!(mode, ScatterMode::Set | ScatterMode::Add);
                for dim in 0..3 {
                    for &arrange in &ARRANGEMENTS[..if is_usual { 5 } else { 1 }] {
                        let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                        let index = [DType::I64, DType::I32][dim % 2];
                        let index = CaseOperand::new([2, 3, 5], index).fill(Fill::Ints(0, 3));
                        let source = CaseOperand::new([2, 3, 5], dtype).arrange(arrange);
                        cases.push(Case::new(Self { dim, mode }, [x, index, source]));
                    }
                }
                // Many to be put in each of many lines, and of few.
                for (shape, dim) in [([40, 1100], 0), ([200, 3], 0), ([3, 300], 1)] {
                    let x = CaseOperand::new(crate::Shape::from(shape).with_dim(dim, 9), dtype);
                    let index = CaseOperand::new(shape, DType::I64).fill(Fill::Ints(2, 7));
                    let source = CaseOperand::new(shape, dtype);
                    cases.push(Case::new(Self { dim, mode }, [x, index, source]));
                }
            }
        }
        cases
    }
}
