use smallvec::smallvec;

use super::gather::require_places;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Shape, Signature};

/// The listed indices of one dimension: `torch.index_select`.
///
/// Operands: `x`; `index` `[n]`, of `i64` or `i32`. An index outside the dimension is the
/// caller's mistake, found at run time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IndexSelect {
    /// The dimension.
    pub dim: usize,
}

impl OpDef for IndexSelect {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, _signature: &Signature) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, index] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        require_index(Self::NAME, index)?;
        require(Self::NAME, index.rank() == 1, "an index of rank 1", index)?;
        require_places(Self::NAME, x, index, self.dim)?;
        let shape = x.shape.clone().with_dim(self.dim, index.shape[0]);
        Ok(smallvec![TensorType {
            shape,
            dtype: x.dtype,
        }])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let shape = g.ty(node.inputs[0]).shape.clone();
        let chosen = g.ty(ct).shape.clone();
        let mut along: Shape = chosen.iter().map(|_| 1).collect();
        along.to_mut()[self.dim] = chosen[self.dim];
        let index = g.reshape(node.inputs[1], along)?;
        let index = g.broadcast(index, chosen)?;
        node.each(g, |g, _| g.scatter_add(shape.clone(), self.dim, index, ct))
    }
}

impl Named for IndexSelect {
    const NAME: &'static str = "index_select";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for index in [DType::I64, DType::I32] {
                let index = |n: usize| CaseOperand::new([n], index).fill(Fill::Ints(0, 3));
                for (dim, n) in [(0, 5), (1, 1), (2, 7), (1, 0)] {
                    for arrange in ARRANGEMENTS {
                        let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                        cases.push(Case::new(Self { dim }, [x, index(n)]));
                    }
                }
            }
        }
        cases
    }
}
