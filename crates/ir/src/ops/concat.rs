use smallvec::smallvec;

use super::*;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, Operand};
use crate::{Graph, Named, OpDef, OpType, ResultTypes};

/// Operands of one dtype joined along a dimension; their other sizes are equal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Concat {
    /// The dimension.
    pub dim: usize,
}

impl OpDef for Concat {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let (first, rest) = inputs
            .split_first()
            .ok_or_else(|| OpError::new(Self::NAME, "at least one operand", "none"))?;
        require_scalar(Self::NAME, first)?;
        require_dim(Self::NAME, first, self.dim)?;
        let mut size = first.shape[self.dim];
        for x in rest {
            require_same(Self::NAME, first, x)?;
            let fits = x.rank() == first.rank()
                && x.shape.clone().with_dim(self.dim, first.shape[self.dim]) == first.shape;
            let expected = format_args!("sizes equal except in dim {}", self.dim);
            require(Self::NAME, fits, expected, format_args!("{first} and {x}"))?;
            size = size
                .checked_add(x.shape[self.dim])
                .ok_or_else(|| OpError::new(Self::NAME, "a size that fits", "an overflow"))?;
        }
        let shape = first.shape.clone().with_dim(self.dim, size);
        Ok(smallvec![TensorType::new(shape, first.dtype)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let mut end = 0;
        let parts = node.inputs.iter().map(|&x| {
            end += g.ty(x).shape[self.dim];
            end - g.ty(x).shape[self.dim]..end
        });
        let parts: Vec<_> = parts.collect();
        node.each(g, |g, i| {
            g.slice(ct, self.dim, parts[i].start, parts[i].end)
        })
    }
}

impl Named for Concat {
    const NAME: &'static str = "concat";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for dim in 0..3 {
                let x = |n| Operand::new(crate::Shape::from([2, 3, 4]).with_dim(dim, n), dtype);
                cases.push(Case::new(Self { dim }, [x(2)]));
                cases.push(Case::new(Self { dim }, [x(1), x(0), x(5)]));
            }
            for arrange in ARRANGEMENTS {
                let x = Operand::new([3, 4], dtype).arrange(arrange);
                cases.push(Case::new(Self { dim: 1 }, [x.clone(), x]));
            }
        }
        cases
    }
}
