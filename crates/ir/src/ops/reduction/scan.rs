use smallvec::{SmallVec, smallvec};

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::ReduceOp;
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Scalar, Shape, ValueId};

/// Each element combined with all before it along a dimension.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scan {
    /// Combination of two elements.
    pub op: ScanOp,
    /// The dimension.
    pub dim: usize,
}

/// Scans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScanOp {
    /// Sum; an `i64` for integers and booleans.
    Sum,
    /// Product; an `i64` for integers and booleans.
    Prod,
    /// Largest element; NaN from the first one on.
    Max,
    /// Smallest element; NaN from the first one on.
    Min,
    /// `ln Σ eˣ` of floats.
    LogSumExp,
}

impl ScanOp {
    /// Every scan.
    pub const ALL: &[Self] = &[Self::Sum, Self::Prod, Self::Max, Self::Min, Self::LogSumExp];

    /// Returns whether the scan is defined for elements of `dtype`.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Sum | Self::Prod => dtype.is_arithmetic(),
            Self::Max | Self::Min => dtype.is_arithmetic() && !dtype.is_complex(),
            Self::LogSumExp => dtype.is_float(),
        }
    }

    /// Type of the result for elements of `dtype`.
    pub fn output(self, dtype: DType) -> DType {
        match self {
            Self::Sum | Self::Prod => ReduceOp::Sum.output(dtype),
            _ => dtype,
        }
    }
}

impl Scan {
    /// The sum, or for logarithms that of exponentials, of each element and all behind it.
    fn backwards(&self, g: &mut Graph, x: ValueId) -> Result<ValueId, OpError> {
        let op = match self.op {
            ScanOp::LogSumExp => self.op,
            _ => ScanOp::Sum,
        };
        let reversed = g.flip(x, self.dim)?;
        let sums = g.push(Self { op, dim: self.dim }, &[reversed])?;
        g.flip(sums, self.dim)
    }

    /// The gradient of `x` from `ct`, that of its products: `Π_{i<k} x_i · Σ_{j≥k} ct_j Π_{k<i≤j} x_i`. The sums grow
    /// to twice their length in each step ([Hillis and Steele 1986](https://doi.org/10.1145/7902.7903)). Nothing is
    /// divided, so derivatives of every order are right at zeros.
    fn of_products(&self, g: &mut Graph, x: ValueId, ct: ValueId) -> Result<ValueId, OpError> {
        let (dim, size) = (self.dim, g.ty(x).shape[self.dim]);
        let dtype = compute_dtype(g.ty(ct).dtype);
        let x = g.conj(x)?;
        let (x, mut sums) = (g.cast(x, dtype)?, g.cast(ct, dtype)?);
        let before = products_before(g, x, dim)?;
        // Products of the elements behind each one, as many as a sum has.
        let mut products = g.slice(x, dim, size.min(1), size)?;
        let mut length = 1;
        while length < size {
            let behind = g.slice(sums, dim, length, size)?;
            let more = g.mul(products, behind)?;
            let more = g.pad(more, dim, 0, length)?;
            sums = g.add(sums, more)?;
            let left = size - length;
            if length < left {
                let near = g.slice(products, dim, 0, left - length)?;
                let far = g.slice(products, dim, length, left)?;
                products = g.mul(near, far)?;
            }
            length *= 2;
        }
        g.mul(before, sums)
    }
}

/// The product of all elements before each one along a dimension.
pub(in crate::ops) fn products_before(
    g: &mut Graph,
    x: ValueId,
    dim: usize,
) -> Result<ValueId, OpError> {
    let size = g.ty(x).shape[dim];
    let mut padding: SmallVec<[(usize, usize); 6]> = SmallVec::new();
    padding.resize(g.ty(x).rank(), (0, 0));
    padding[dim].0 = usize::from(size > 0);
    let value = Scalar::Int(1);
    let shifted = g.push(Pad { padding, value }, &[x])?;
    let shifted = g.slice(shifted, dim, 0, size)?;
    let op = ScanOp::Prod;
    g.push(Scan { op, dim }, &[shifted])
}

impl OpDef for Scan {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn function(&self) -> Option<&'static str> {
        Some(match self.op {
            ScanOp::Sum => "cumsum",
            ScanOp::Prod => "cumprod",
            ScanOp::Max => "cummax",
            ScanOp::Min => "cummin",
            ScanOp::LogSumExp => "logcumsumexp",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let expected = "a dtype that it is defined for";
        require(Self::NAME, self.op.accepts(x.dtype), expected, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        let dtype = self.op.output(x.dtype);
        Ok(smallvec![TensorType::new(x.shape.clone(), dtype)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (x, y) = (node.inputs[0], node.results[0]);
        let ct = node.cotangent(g, 0)?;
        let dtype = g.ty(ct).dtype;
        node.each(g, |g, _| match self.op {
            ScanOp::Sum => self.backwards(g, ct),
            ScanOp::Prod => self.of_products(g, x, ct),
            // To the last of equal ones, as with `torch.cummax`.
            ScanOp::Max | ScanOp::Min => {
                let shape = g.ty(x).shape.clone();
                let mut along: Shape = shape.iter().map(|_| 1).collect();
                along.to_mut()[self.dim] = shape[self.dim];
                let places = g.arange(shape[self.dim], DType::I64)?;
                let places = g.reshape(places, along)?;
                let is_extreme = g.compare(CompareOp::Eq, x, y)?;
                let is_nan = g.unary(UnaryOp::IsNan, x)?;
                let is_extreme = g.binary(BinaryOp::Or, is_extreme, is_nan)?;
                let none = g.constant(0, DType::I64)?;
                let places = g.select(is_extreme, places, none)?;
                let op = ScanOp::Max;
                let index = g.push(Self { op, ..self.clone() }, &[places])?;
                g.scatter_add(shape, self.dim, index, ct)
            }
            // Sums of ct·exp(x - y), those of positive and of negative gradients each by its logarithm.
            ScanOp::LogSumExp => {
                let dtype = compute_dtype(dtype);
                let ct = g.cast(ct, dtype)?;
                let (x, y) = (g.cast(x, dtype)?, g.cast(y, dtype)?);
                let part = |g: &mut Graph, sign: f64| {
                    let signed = g.mul_scalar(ct, sign)?;
                    let (zero, one) = (g.constant(0.0, dtype)?, g.constant(1.0, dtype)?);
                    let counts = g.compare(CompareOp::Gt, signed, zero)?;
                    let positive = g.select(counts, signed, one)?;
                    let log = g.unary(UnaryOp::Log, positive)?;
                    let log = g.sub(log, y)?;
                    let never = g.constant(f64::NEG_INFINITY, dtype)?;
                    let log = g.select(counts, log, never)?;
                    let sum = self.backwards(g, log)?;
                    let log = g.add(sum, x)?;
                    g.unary(UnaryOp::Exp, log)
                };
                let (more, less) = (part(g, 1.0)?, part(g, -1.0)?);
                g.sub(more, less)
            }
        })
    }
}

impl Named for Scan {
    const NAME: &'static str = "scan";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for &op in ScanOp::ALL {
            for dtype in DType::SCALARS.into_iter().filter(|&d| op.accepts(d)) {
                let fill = match op {
                    // About 1 in magnitude, so that no product overflows.
                    ScanOp::Prod if dtype.is_complex() => Fill::Uniform(0.6, 0.8),
                    ScanOp::Prod if !dtype.is_float() => Fill::Ints(1, 3),
                    ScanOp::Prod => Fill::Uniform(0.8, 1.2),
                    _ => CaseOperand::new([], dtype).fill,
                };
                for dim in 0..3 {
                    for arrange in ARRANGEMENTS {
                        let x = CaseOperand::new([3, 4, 9], dtype)
                            .fill(fill)
                            .arrange(arrange);
                        cases.push(Case::new(Self { op, dim }, [x]));
                    }
                }
                let empty = CaseOperand::new([0, 2], dtype).fill(fill);
                cases.push(Case::new(Self { op, dim: 0 }, [empty]));
                if dtype.is_float() && op != ScanOp::Sum && op != ScanOp::Prod {
                    let x = CaseOperand::new([15, 5], dtype).fill(Fill::Special);
                    cases.push(Case::new(Self { op, dim: 1 }, [x]));
                }
            }
            // Few long lines.
            for (shape, dim) in [([2, 9000], 1), ([9000, 3], 0)] {
                let x = CaseOperand::new(shape, DType::F32);
                let x = match op {
                    ScanOp::Prod => x.fill(Fill::Uniform(0.95, 1.05)),
                    _ => x,
                };
                cases.push(Case::new(Self { op, dim }, [x]));
            }
        }
        cases
    }
}
