use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Arrange, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{BlockFormat, Graph, Named, OpDef, OpType, ResultTypes, Shape, Signature};

/// Writes `source` into the state buffer `state` at index `start` of dimension `dim`.
///
/// Operands: `state`; `source`, of `state`'s shape except in `dim`, of any floating-point
/// dtype, or `state`'s own; for a state in a block format `f32`, whose rows (last dimension)
/// are quantised ([`BlockFormat::quantize`]) and written along another; `start`, one `i32` read
/// at run time. The result is the state.
/// A range that does not fit is the caller's mistake, found at run time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UpdateSlice {
    /// The dimension.
    pub dim: usize,
}

impl OpDef for UpdateSlice {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, signature: &Signature) -> bool {
        signature.inputs[0].dtype == signature.inputs[1].dtype
    }

    fn overwrites(&self, _result: usize) -> Option<usize> {
        Some(0)
    }

    fn written(&self, s: &Signature) -> usize {
        s.inputs[1].bytes()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [state, source, start] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, source)?;
        require_dim(Self::NAME, state, self.dim)?;
        let is_row = state.dtype.is_block() && self.dim + 1 < state.rank();
        let quantizable = is_row && source.dtype == DType::F32;
        let convertible = state.dtype.is_float() && source.dtype.is_float();
        let got = format_args!("{state} and {source}");
        let expected = "one dtype, two floating-point ones, or f32 rows for one of blocks";
        require(
            Self::NAME,
            convertible || quantizable || state.dtype == source.dtype,
            expected,
            got,
        )?;
        let fits = source.rank() == state.rank()
            && source.shape[self.dim] <= state.shape[self.dim]
            && source
                .shape
                .clone()
                .with_dim(self.dim, state.shape[self.dim])
                == state.shape;
        require(Self::NAME, fits, "a source that fits the state", got)?;
        let one = start.dtype == DType::I32 && start.shape.elements() == 1;
        require(Self::NAME, one, "a start of one i32", start)?;
        Ok(smallvec![state.clone()])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let length = g.ty(node.inputs[1]).shape[self.dim];
        let start = g.reshape(node.inputs[2], [1])?;
        let steps = g.arange(length, DType::I32)?;
        let written = g.add(steps, start)?;
        node.each(g, |g, i| {
            let source = g.push(IndexSelect { dim: self.dim }, &[ct, written])?;
            if i == 1 {
                return Ok(source);
            }
            // Nothing of what was written over is left.
            let mut along: Shape = g.ty(source).shape.iter().map(|_| 1).collect();
            along.to_mut()[self.dim] = length;
            let written = g.reshape(written, along)?;
            let written = g.broadcast(written, g.ty(source).shape.clone())?;
            let zeros = g.zeros_like(source)?;
            let scatter = Scatter {
                dim: self.dim,
                mode: ScatterMode::Set,
            };
            g.push(scatter, &[ct, written, zeros])
        })
    }
}

impl Named for UpdateSlice {
    const NAME: &'static str = "update_slice";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let start = || CaseOperand::new([1], DType::I32).fill(Fill::Ints(2, 3));
        for state in DType::FLOATS {
            for source in DType::FLOATS {
                let source = CaseOperand::new([2, 3, 4], source);
                let state = CaseOperand::new([2, 5, 4], state);
                cases.push(Case::new(Self { dim: 1 }, [state, source, start()]));
            }
        }
        let blocks = DType::Block(BlockFormat::Q8_0);
        for (dim, state, source) in [(1, [2, 5, 64], [2, 3, 64]), (0, [6, 2, 32], [4, 2, 32])] {
            let (state, source) = (
                CaseOperand::new(state, blocks),
                CaseOperand::new(source, DType::F32),
            );
            for source in [source.clone(), source.arrange(Arrange::Transposed)] {
                cases.push(Case::new(Self { dim }, [state.clone(), source, start()]));
            }
        }
        for dtype in DType::INTS
            .into_iter()
            .chain(DType::FLOATS8)
            .chain(DType::COMPLEX)
        {
            let state = CaseOperand::new([6], dtype);
            cases.push(Case::new(
                Self { dim: 0 },
                [state, CaseOperand::new([4], dtype), start()],
            ));
        }
        cases
    }
}
