use super::gather::require_indexed;
use smallvec::smallvec;

use super::*;
use crate::case::{ARRANGEMENTS, Case, Fill, Operand};
use crate::{Named, OpDef, OpType, ResultTypes};

/// A copy of `x` in which `out[i][index[i][j][k]][k]` (for `dim` 1) is set to, or increased
/// by, `source[i][j][k]`: `torch.scatter` and `torch.scatter_add`.
///
/// Operands: `x`; `index`, as for [`Gather`](super::Gather); `source` of `index`'s shape and
/// `x`'s dtype. Where `Set` meets one place several times, the last in row-major order stays.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    /// The dimension that is indexed.
    pub dim: usize,
    /// What happens to the element there.
    pub mode: ScatterMode,
}

/// What [`Scatter`] does to an element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScatterMode {
    /// Replaces it.
    Set,
    /// Adds to it.
    Add,
}

impl OpDef for Scatter {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, index, source] = operands(Self::NAME, inputs)?;
        require_indexed(Self::NAME, x, index, self.dim)?;
        require_same(Self::NAME, x, source)?;
        let same = index.shape == source.shape;
        require(
            Self::NAME,
            same,
            "index and source of one shape",
            format!("{index} and {source}"),
        )?;
        let adds = self.mode == ScatterMode::Set || x.dtype != DType::Bool;
        require(Self::NAME, adds, "numbers to add", x)?;
        Ok(smallvec![x.clone()])
    }
}

impl Named for Scatter {
    const NAME: &'static str = "scatter";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for mode in [ScatterMode::Set, ScatterMode::Add] {
                if mode == ScatterMode::Add && dtype == DType::Bool {
                    continue;
                }
                for dim in 0..3 {
                    for arrange in ARRANGEMENTS {
                        let x = Operand::new([3, 4, 9], dtype).arrange(arrange);
                        let index = [DType::I64, DType::I32][dim % 2];
                        let index = Operand::new([2, 3, 5], index).fill(Fill::Ints(0, 3));
                        let source = Operand::new([2, 3, 5], dtype).arrange(arrange);
                        cases.push(Case::new(Self { dim, mode }, [x, index, source]));
                    }
                }
                // Many to be put in each of many lines, and of few.
                for shape in [[40, 1100], [200, 3]] {
                    let x = Operand::new([9, shape[1]], dtype);
                    let index = Operand::new(shape, DType::I64).fill(Fill::Ints(2, 7));
                    let source = Operand::new(shape, dtype);
                    cases.push(Case::new(Self { dim: 0, mode }, [x, index, source]));
                }
            }
        }
        cases
    }
}
