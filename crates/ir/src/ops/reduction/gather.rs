use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// `out[i][j][k] = x[i][index[i][j][k]][k]` for `dim` 1: `torch.gather`.
///
/// Operands: `x`; `index`, of `i64` or `i32`, of `x`'s rank and nowhere larger than `x` except in
/// `dim`. An index outside the dimension is the caller's mistake, found at run time. A dimension
/// without elements shows in the shapes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gather {
    /// The dimension that is indexed.
    pub dim: usize,
}

/// `index` addresses `x` along `dim`: the check that gather and scatter share.
pub(crate) fn require_indexed(
    op: &'static str,
    x: &TensorType,
    index: &TensorType,
    dim: usize,
) -> Result<(), OpError> {
    require_scalar(op, x)?;
    require_dim(op, x, dim)?;
    require_index(op, index)?;
    let inside =
        x.rank() == index.rank() && (0..x.rank()).all(|d| d == dim || index.shape[d] <= x.shape[d]);
    let expected = format_args!("an index no larger than {x} except in dim {dim}");
    require(op, inside, expected, index)?;
    require_places(op, x, index, dim)
}

/// There is something for an index to name: no index is inside a dimension of size 0.
pub(crate) fn require_places(
    op: &'static str,
    x: &TensorType,
    index: &TensorType,
    dim: usize,
) -> Result<(), OpError> {
    let any = x.shape[dim] > 0 || index.shape.elements() == 0;
    let expected = format_args!("an index without elements, as dim {dim} of {x} has none");
    require(op, any, expected, index)
}

impl OpDef for Gather {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, _signature: &Signature) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, index] = operands(Self::NAME, inputs)?;
        require_indexed(Self::NAME, x, index, self.dim)?;
        Ok(smallvec![TensorType::new(index.shape.clone(), x.dtype)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let shape = g.ty(node.inputs[0]).shape.clone();
        node.each(g, |g, _| {
            g.scatter_add(shape.clone(), self.dim, node.inputs[1], ct)
        })
    }
}

impl Named for Gather {
    const NAME: &'static str = "gather";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for index in [DType::I64, DType::I32] {
                for dim in 0..3 {
                    for arrange in ARRANGEMENTS {
                        let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                        let index = CaseOperand::new([2, 3, 5], index).fill(Fill::Ints(0, 3));
                        cases.push(Case::new(Self { dim }, [x, index.arrange(arrange)]));
                    }
                }
            }
        }
        let index = CaseOperand::new([0, 2], DType::I64);
        cases.push(Case::new(
            Self { dim: 1 },
            [CaseOperand::new([3, 4], DType::F32), index],
        ));
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::IndexSelect;

    #[test]
    fn no_index_is_inside_a_dimension_without_elements() {
        let mut g = Graph::new();
        let x = g.input(TensorType::new([2, 0], DType::F32)).unwrap();
        let [some, none] = [[2, 1], [2, 0]].map(|s| g.input(TensorType::new(s, DType::I64)));
        let [row, empty] = [[3], [0]].map(|s| g.input(TensorType::new(s, DType::I64)));
        let (some, none, row, empty) = (some.unwrap(), none.unwrap(), row.unwrap(), empty.unwrap());
        for (dim, is_legal) in [(1, false), (0, true)] {
            assert_eq!(g.push(IndexSelect { dim }, &[x, row]).is_ok(), is_legal);
            assert!(g.push(IndexSelect { dim }, &[x, empty]).is_ok());
        }
        let refused = g.push(Gather { dim: 1 }, &[x, some]).unwrap_err();
        assert!(
            refused.to_string().contains("dim 1 of f32[2, 0] has none"),
            "{refused}"
        );
        assert!(g.push(Gather { dim: 1 }, &[x, none]).is_ok());
    }
}
