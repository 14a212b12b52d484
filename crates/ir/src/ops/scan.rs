use smallvec::smallvec;

use super::*;
use crate::case::{ARRANGEMENTS, Case, Fill, Operand};
use crate::ops::ReduceOp;
use crate::{Named, OpDef, OpType, ResultTypes};

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

impl OpDef for Scan {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let expected = format_args!("a dtype that the scan {:?} is defined for", self.op);
        require(Self::NAME, self.op.accepts(x.dtype), expected, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        let dtype = self.op.output(x.dtype);
        Ok(smallvec![TensorType::new(x.shape.clone(), dtype)])
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
