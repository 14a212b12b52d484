use smallvec::smallvec;

use super::*;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, Fill, Operand};
use crate::ops::ReduceOp;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Shape, ValueId};

/// Each element combined with all before it along a dimension.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scan {
    /// How two elements are combined.
    pub op: ScanOp,
    /// The dimension.
    pub dim: usize,
}

/// Scans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScanOp {
    /// Sum; of integers and booleans an `i64`.
    Sum,
    /// Product; of integers and booleans an `i64`.
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

    /// Is the scan defined for elements of `dtype`?
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
            ScanOp::Prod => {
                // Up to the first 0 the product is divided by an element; that one itself has the product
                // without it; behind it there is nothing but zeros.
                let zero = g.constant(0, dtype)?;
                let one = g.constant(1, dtype)?;
                let is_zero = g.compare(CompareOp::Eq, x, zero)?;
                let op = ScanOp::Sum;
                let zeros = g.push(Self { op, ..self.clone() }, &[is_zero])?;
                let [none, first] = [g.constant(0, DType::I64)?, g.constant(1, DType::I64)?];
                let is_before = g.compare(CompareOp::Eq, zeros, none)?;
                let is_first = g.compare(CompareOp::Eq, zeros, first)?;
                let is_first = g.binary(BinaryOp::And, is_first, is_zero)?;
                let total = |g: &mut Graph, product| {
                    let product = g.conj(product)?;
                    let weighted = g.mul(ct, product)?;
                    self.backwards(g, weighted)
                };
                let divisor = g.select(is_zero, one, x)?;
                let divisor = g.conj(divisor)?;
                let before = total(g, y)?;
                let before = g.div(before, divisor)?;
                let others = g.select(is_first, one, x)?;
                let others = g.push(self.clone(), &[others])?;
                let at_first = total(g, others)?;
                let rest = g.select(is_first, at_first, zero)?;
                g.select(is_before, before, rest)
            }
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
                    _ => Operand::new([], dtype).fill,
                };
                for dim in 0..3 {
                    for arrange in ARRANGEMENTS {
                        let x = Operand::new([3, 4, 9], dtype).fill(fill).arrange(arrange);
                        cases.push(Case::new(Self { op, dim }, [x]));
                    }
                }
                let empty = Operand::new([0, 2], dtype).fill(fill);
                cases.push(Case::new(Self { op, dim: 0 }, [empty]));
                if dtype.is_float() && op != ScanOp::Sum && op != ScanOp::Prod {
                    let x = Operand::new([15, 5], dtype).fill(Fill::Special);
                    cases.push(Case::new(Self { op, dim: 1 }, [x]));
                }
            }
            // Few long lines.
            for (shape, dim) in [([2, 9000], 1), ([9000, 3], 0)] {
                let x = Operand::new(shape, DType::F32);
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
