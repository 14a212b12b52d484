use smallvec::{SmallVec, smallvec};

use super::reduce::reduced_shape;
use super::*;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Arrange, Case, Operand};
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// Variance `Σ(x - mean)² / max(0, n - correction)` and mean over some dimensions of a
/// floating-point tensor: `torch.var_mean`. Both results are at least of single precision.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VarMean {
    /// The dimensions, in rising order.
    pub dims: SmallVec<[usize; 6]>,
    /// Keep the reduced dimensions with size 1?
    pub keepdim: bool,
    /// What a number of elements is less by in the divisor.
    pub correction: Param,
}

impl VarMean {
    /// What sums of squares of `n` elements are divided by.
    pub fn divisor(&self, n: usize) -> f64 {
        (n as f64 - self.correction.0).max(0.0)
    }
}

impl OpDef for VarMean {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        let shape = reduced_shape(Self::NAME, x, &self.dims, self.keepdim)?;
        let result = TensorType::new(shape, compute_dtype(x.dtype));
        Ok(smallvec![result.clone(), result])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let TensorType { shape, dtype } = g.ty(inputs[0]).clone();
        let x = g.cast(inputs[0], compute_dtype(dtype))?;
        let n = self.dims.iter().map(|&d| shape[d]).product::<usize>();
        let sum = |keepdim| Reduce {
            op: ReduceOp::Sum,
            dims: self.dims.clone(),
            keepdim,
        };
        let total = g.push(sum(true), &[x])?;
        let count = g.constant(n as f64, g.ty(total).dtype)?;
        let mean = g.div(total, count)?;
        let centred = g.sub(x, mean)?;
        let square = g.mul(centred, centred)?;
        let total = g.push(sum(self.keepdim), &[square])?;
        let divisor = g.constant(self.divisor(n), g.ty(total).dtype)?;
        let variance = g.div(total, divisor)?;
        let shape = g.ty(variance).shape.clone();
        Ok(smallvec![variance, g.reshape(mean, shape)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let x = g.cast(node.inputs[0], g.ty(node.results[0]).dtype)?;
        let n = self
            .dims
            .iter()
            .map(|&d| g.ty(x).shape[d])
            .product::<usize>();
        let kept = reduced_shape(Self::NAME, g.ty(x), &self.dims, true)?;
        node.each(g, |g, _| {
            let mut sum = None;
            if let Some(ct) = node.cotangents[0] {
                let ct = g.reshape(ct, kept.clone())?;
                let mean = g.reshape(node.results[1], kept.clone())?;
                let centred = g.sub(x, mean)?;
                let ct = g.mul_scalar(ct, 2.0 / self.divisor(n))?;
                sum = Some(g.mul(ct, centred)?);
            }
            let Some(ct) = node.cotangents[1] else {
                return sum.map_or_else(|| g.zeros_like(x), Ok);
            };
            let ct = g.reshape(ct, kept.clone())?;
            let share = g.mul_scalar(ct, 1.0 / n as f64)?;
            match sum {
                Some(sum) => g.add(sum, share),
                None => g.broadcast(share, g.ty(x).shape.clone()),
            }
        })
    }
}

impl Named for VarMean {
    const NAME: &'static str = "var_mean";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |shape: &[usize], dims: &[usize], correction: f64, arrange| {
                let op = Self {
                    dims: dims.into(),
                    keepdim: dims.len() == 1,
                    correction: correction.into(),
                };
                cases.push(Case::new(op, [Operand::new(shape, dtype).arrange(arrange)]));
            };
            for arrange in ARRANGEMENTS {
                for dims in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
                    // Broadcast is all but the second: there is no variance without it, of which
                    // no error is a small part.
                    if arrange != Arrange::Broadcast || dims.contains(&1) {
                        push(&[5, 4, 37], dims, 1.0, arrange);
                    }
                }
            }
            for (shape, dims) in [
                (&[2, 9000][..], &[1][..]),
                (&[9000, 3], &[0]),
                (&[9000, 3], &[0, 1]),
                (&[3000, 40], &[0]),
                (&[8, 3, 700], &[0, 2]),
                (&[8, 3, 800], &[0, 2]),
                (&[0, 3], &[1]),
            ] {
                push(shape, dims, 0.0, ARRANGEMENTS[0]);
            }
        }
        cases
    }
}
