use smallvec::{SmallVec, smallvec};

use super::reduce::reduced_shape;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Arrange, Case, CaseOperand, Fill};
use crate::ops::CompareOp;
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// Variance and mean over some dimensions of a floating-point tensor, `torch.var_mean`; or the root of the
/// variance and the mean, `torch.std_mean`. The variance is `Σ(x - mean)² / max(0, n - correction)`. Both
/// results are at least of single precision.
///
/// Squares are not limited by the range of single precision: a root is finite where its square is not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VarMean {
    /// The dimensions, in ascending order.
    pub dims: SmallVec<[usize; 6]>,
    /// Keep the reduced dimensions with size 1?
    pub keepdim: bool,
    /// Number that is subtracted from the number of elements in the divisor.
    pub correction: Param,
    /// Whether the first result is the standard deviation, not the variance.
    pub root: bool,
}

impl VarMean {
    /// The divisor of a sum of squares of `n` elements.
    pub fn divisor(&self, n: usize) -> f64 {
        (n as f64 - self.correction.0).max(0.0)
    }

    /// The gradient by way of the root; 0 where that is 0, as the least of the slopes there.
    fn slope_of_root(
        &self,
        g: &mut Graph,
        [ct, centred, root]: [ValueId; 3],
        n: usize,
    ) -> Result<ValueId, OpError> {
        let dtype = g.ty(root).dtype;
        let [zero, one] = [0.0, 1.0].map(|x| g.constant(x, dtype));
        let (zero, one) = (zero?, one?);
        let is_flat = g.compare(CompareOp::Eq, root, zero)?;
        let root = g.select(is_flat, one, root)?;
        let ct = g.select(is_flat, zero, ct)?;
        let ct = g.mul_scalar(ct, 1.0 / self.divisor(n))?;
        let unit = g.div(centred, root)?;
        g.mul(ct, unit)
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
        // Sums and squares of singles may be beyond the largest of them, while the results are not.
        let x = g.cast(inputs[0], DType::F64)?;
        let n = self.dims.iter().map(|&d| shape[d]).product::<usize>();
        let sum = |keepdim| Reduce {
            op: ReduceOp::Sum,
            dims: self.dims.clone(),
            keepdim,
        };
        let total = g.push(sum(true), &[x])?;
        let count = g.constant(n as f64, DType::F64)?;
        let mean = g.div(total, count)?;
        let centred = g.sub(x, mean)?;
        let square = g.mul(centred, centred)?;
        let total = g.push(sum(self.keepdim), &[square])?;
        let divisor = g.constant(self.divisor(n), DType::F64)?;
        let mut spread = g.div(total, divisor)?;
        if self.root {
            spread = g.unary(UnaryOp::Sqrt, spread)?;
        }
        let shape = g.ty(spread).shape.clone();
        let mean = g.reshape(mean, shape)?;
        let [spread, mean] = [spread, mean].map(|x| g.cast(x, compute_dtype(dtype)));
        Ok(smallvec![spread?, mean?])
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
                sum = Some(match self.root {
                    true => {
                        let root = g.reshape(node.results[0], kept.clone())?;
                        self.slope_of_root(g, [ct, centred, root], n)?
                    }
                    false => {
                        let ct = g.mul_scalar(ct, 2.0 / self.divisor(n))?;
                        g.mul(ct, centred)?
                    }
                });
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
            let of = |dims: &[usize], correction: f64, root| Self {
                dims: dims.into(),
                keepdim: dims.len() == 1,
                correction: correction.into(),
                root,
            };
            let mut push = |op: Self, shape: &[usize], arrange| {
                cases.push(Case::new(
                    op,
                    [CaseOperand::new(shape, dtype).arrange(arrange)],
                ));
            };
            for arrange in ARRANGEMENTS {
                for dims in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
                    // Broadcast is all but the second: there is no variance without it, of which
                    // no error is a small part.
                    if arrange != Arrange::Broadcast || dims.contains(&1) {
                        push(of(dims, 1.0, false), &[5, 4, 37], arrange);
                        push(of(dims, 1.0, true), &[5, 4, 37], arrange);
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
                push(of(dims, 0.0, false), shape, ARRANGEMENTS[0]);
                push(of(dims, 0.0, true), shape, ARRANGEMENTS[0]);
            }
            // Beyond the range of squares, above and below.
            if dtype != DType::F16 {
                for (shape, dims) in [(&[3, 37][..], 1), (&[9000, 3], 0), (&[2, 9000], 1)] {
                    for size in [1e30, 1e-30] {
                        let x = CaseOperand::new(shape, dtype).fill(Fill::Uniform(-size, size));
                        cases.push(Case::new(of(&[dims], 1.0, true), [x]));
                    }
                }
            }
        }
        cases
    }
}
