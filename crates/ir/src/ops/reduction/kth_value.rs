use smallvec::smallvec;

use super::gather::require_places;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// The elements at given ranks in ascending order along a dimension: `torch.kthvalue`, and medians.
/// Ranks count from 0. The earlier one of equal elements comes first; NaN counts as the largest.
///
/// Operands: `x`; `places`, of `i64` or `i32`, of `x`'s shape but for `dim`, where it has any size. A place that is
/// not below `k` is the caller's mistake, found at run time.
///
/// Results: the elements, of the operand's dtype, and their indices, `i64`, both of `places`' shape.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KthValue {
    /// The bound of the places, at most the dimension's size.
    pub k: usize,
    /// The dimension.
    pub dim: usize,
}

impl OpDef for KthValue {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, places] = operands(Self::NAME, inputs)?;
        let ordered = x.dtype.is_float() || x.dtype.is_int();
        require(
            Self::NAME,
            ordered,
            "an integer or floating-point tensor",
            x,
        )?;
        require_dim(Self::NAME, x, self.dim)?;
        require_index(Self::NAME, places)?;
        let size = x.shape[self.dim];
        let expected = format_args!("k of at most {size}");
        require(Self::NAME, self.k <= size, expected, self.k)?;
        let of_lines = x.rank() == places.rank()
            && (0..x.rank()).all(|d| d == self.dim || places.shape[d] == x.shape[d]);
        let expected = format_args!("places of the shape of {x} except in dim {}", self.dim);
        require(Self::NAME, of_lines, expected, places)?;
        require_places(Self::NAME, x, places, self.dim)?;
        let result = |dtype| TensorType::new(places.shape.clone(), dtype);
        Ok(smallvec![result(x.dtype), result(DType::I64)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let &[x, places] = inputs else {
            return Err(OpError::new(Self::NAME, "2 operands", inputs.len()));
        };
        let (k, dim) = (self.k, self.dim);
        let op = TopK {
            k,
            dim,
            largest: false,
        };
        let sorted = g.push(op, &[x])?;
        let chosen = g.results(sorted).into_iter();
        let chosen = chosen.map(|x| g.push(Gather { dim }, &[x, places]));
        chosen.collect()
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let shape = g.ty(node.inputs[0]).shape.clone();
        node.each(g, |g, _| {
            g.scatter_add(shape.clone(), self.dim, node.results[1], ct)
        })
    }
}

impl Named for KthValue {
    const NAME: &'static str = "kth_value";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let places = |shape: &[usize], k: usize| {
            CaseOperand::new(shape, DType::I64).fill(Fill::Ints(0, k as i64))
        };
        for dtype in DType::FLOATS.into_iter().chain(DType::INTS) {
            for dim in (0..2).filter(|_| dtype.is_float()) {
                let x = CaseOperand::new([15, 5], dtype).fill(Fill::Special);
                let shape = [[4, 5], [15, 4]][dim];
                cases.push(Case::new(Self { k: 5, dim }, [x, places(&shape, 5)]));
            }
            for (dim, k, shape) in [
                (0, 2, [1, 4, 9]),
                (1, 4, [3, 1, 9]),
                (2, 9, [3, 4, 2]),
                (2, 1, [3, 4, 0]),
            ] {
                for arrange in ARRANGEMENTS {
                    let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                    let places = places(&shape, k).arrange(arrange);
                    cases.push(Case::new(Self { k, dim }, [x, places]));
                }
            }
        }
        let narrow = CaseOperand::new([3, 1], DType::I32).fill(Fill::Ints(0, 4));
        let x = CaseOperand::new([3, 4], DType::F32);
        cases.push(Case::new(Self { k: 4, dim: 1 }, [x, narrow]));
        // Long lines, with many elements that are equal.
        for (shape, at, dim, k) in [([2, 3000], [2, 1], 1, 3000), ([700, 3], [40, 3], 0, 500)] {
            for dtype in [DType::F32, DType::I64] {
                let x = CaseOperand::new(shape, dtype).fill(Fill::Ints(-50, 50));
                cases.push(Case::new(Self { k, dim }, [x, places(&at, k)]));
            }
        }
        cases
    }
}
