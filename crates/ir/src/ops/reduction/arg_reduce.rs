use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Shape};

/// Index of the largest or smallest element along a dimension, which is dropped. Equal elements
/// give the first index; NaN counts as extreme.
///
/// Results: if `values`, the element, of the operand's dtype; then its index, `i64`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArgReduce {
    /// Whether it is the largest, not the smallest.
    pub largest: bool,
    /// The dimension.
    pub dim: usize,
    /// Whether the element is a result, too, besides its index.
    pub values: bool,
}

impl OpDef for ArgReduce {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn function(&self) -> Option<&'static str> {
        Some(match self.largest {
            true => "argmax",
            false => "argmin",
        })
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
        require(
            Self::NAME,
            x.shape[self.dim] > 0,
            "at least one element to choose from",
            x,
        )?;
        let mut shape: Shape = x.shape.clone();
        shape.to_mut().remove(self.dim);
        let dtypes = self
            .values
            .then_some(x.dtype)
            .into_iter()
            .chain([DType::I64]);
        Ok(dtypes
            .map(|dtype| TensorType::new(shape.clone(), dtype))
            .collect())
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let shape = g.ty(node.inputs[0]).shape.clone();
        let (true, Some(ct)) = (self.values, node.cotangents[0]) else {
            return Err(not_differentiable(Self::NAME, "indices"));
        };
        let ct = g.unsqueeze(ct, self.dim)?;
        let index = g.unsqueeze(node.results[1], self.dim)?;
        node.each(g, |g, _| g.scatter_add(shape.clone(), self.dim, index, ct))
    }
}

impl Named for ArgReduce {
    const NAME: &'static str = "arg_reduce";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS.into_iter().chain(DType::INTS) {
            for (largest, values) in [(true, true), (false, true), (true, false), (false, false)] {
                let op = |dim| Self {
                    largest,
                    dim,
                    values,
                };
                for dim in 0..3 {
                    for arrange in ARRANGEMENTS {
                        let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                        cases.push(Case::new(op(dim), [x]));
                    }
                }
                cases.push(Case::new(op(1), [CaseOperand::new([0, 5], dtype)]));
                cases.push(Case::new(op(1), [CaseOperand::new([2, 1024], dtype)]));
                for dim in (0..2).filter(|_| dtype.is_float()) {
                    let x = CaseOperand::new([15, 5], dtype).fill(Fill::Special);
                    cases.push(Case::new(op(dim), [x]));
                }
            }
        }
        // Few long lines, with many elements that are equal.
        for (shape, dim) in [([2, 9000], 1), ([9000, 3], 0)] {
            for values in [false, true] {
                let x = CaseOperand::new(shape, DType::F32).fill(Fill::Ints(-50, 50));
                let op = Self {
                    largest: true,
                    dim,
                    values,
                };
                cases.push(Case::new(op, [x]));
            }
        }
        cases
    }
}
