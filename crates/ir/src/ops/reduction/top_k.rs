use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes};

/// The `k` largest or smallest elements along a dimension, best first; the earlier one first
/// where several are equal; NaN counts as the largest.
///
/// Results: the elements, of the operand's dtype, and their indices, `i64`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TopK {
    /// Number of elements, at most the dimension's size.
    pub k: usize,
    /// The dimension.
    pub dim: usize,
    /// Whether it is the largest, not the smallest.
    pub largest: bool,
}

impl OpDef for TopK {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let ordered = x.dtype.is_float() || x.dtype.is_int();
        require(
            Self::NAME,
            ordered,
            "an integer or floating-point tensor",
            x,
        )?;
        require_dim(Self::NAME, x, self.dim)?;
        let size = x.shape[self.dim];
        require(
            Self::NAME,
            self.k <= size,
            format!("k of at most {size}"),
            self.k,
        )?;
        let shape = x.shape.clone().with_dim(self.dim, self.k);
        let result = |dtype| TensorType::new(shape.clone(), dtype);
        Ok(smallvec![result(x.dtype), result(DType::I64)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let shape = g.ty(node.inputs[0]).shape.clone();
        node.each(g, |g, _| {
            g.scatter_add(shape.clone(), self.dim, node.results[1], ct)
        })
    }
}

impl Named for TopK {
    const NAME: &'static str = "top_k";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS.into_iter().chain(DType::INTS) {
            for largest in [true, false] {
                for dim in (0..2).filter(|_| dtype.is_float()) {
                    let x = CaseOperand::new([15, 5], dtype).fill(Fill::Special);
                    cases.push(Case::new(Self { k: 5, dim, largest }, [x]));
                }
                for (dim, k) in [(0, 2), (1, 4), (2, 1), (2, 0)] {
                    for arrange in ARRANGEMENTS {
                        let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                        cases.push(Case::new(Self { k, dim, largest }, [x]));
                    }
                }
            }
        }
        // Long lines, with many elements that are equal.
        for (shape, dim, k) in [([2, 3000], 1, 40), ([2, 3000], 1, 3000), ([700, 3], 0, 500)] {
            for (largest, dtype) in [(true, DType::F32), (false, DType::F32), (true, DType::I64)] {
                let x = CaseOperand::new(shape, dtype).fill(Fill::Ints(-50, 50));
                cases.push(Case::new(Self { k, dim, largest }, [x]));
            }
        }
        cases
    }
}
