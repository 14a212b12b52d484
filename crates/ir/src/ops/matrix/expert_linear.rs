use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{BlockFormat, Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// `y[t][s] = x[t][s] · w[ids[t][s]]ᵀ`: products whose weights are chosen row by row, as by a mixture of experts.
///
/// Operands: `x` `[t, s, k]`, or `[t, 1, k]` for one row in all `s` slots, floating point; `w` `[e, n, k]` in any
/// floating-point dtype or block format; `ids` `[t, s]`, `i32` or `i64`. Result `[t, s, n]` of `x`'s dtype. An id
/// outside the `e` experts is the caller's mistake, found at run time. A backend may quantise `x` for block weights.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ExpertLinear;

impl OpDef for ExpertLinear {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        s.output().shape.elements() * s.inputs[0].shape[2]
    }

    fn read(&self, s: &Signature, operand: usize) -> usize {
        let bytes = s.inputs[operand].bytes();
        match operand {
            // The experts that rows choose.
            1 => {
                let (experts, chosen) = (s.inputs[1].shape[0], s.inputs[2].shape.elements());
                (bytes / experts.max(1)).saturating_mul(chosen).min(bytes)
            }
            _ => bytes,
        }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, w, ids] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        let weights = w.dtype.is_float() || w.dtype.is_block();
        let expected = "floating-point or block-quantised weights";
        require(Self::NAME, weights, expected, w)?;
        require_index(Self::NAME, ids)?;
        let fits = x.rank() == 3
            && w.rank() == 3
            && ids.rank() == 2
            && x.shape[2] == w.shape[2]
            && x.shape[0] == ids.shape[0]
            && (x.shape[1] == 1 || x.shape[1] == ids.shape[1]);
        let expected = "x [t, s, k] or [t, 1, k], w [e, n, k] and ids [t, s]";
        let got = format_args!("{x}, {w} and {ids}");
        require(Self::NAME, fits, expected, got)?;
        let any = w.shape[0] > 0 || ids.shape.elements() == 0;
        let expected = format_args!("ids without elements, as {w} has no experts");
        require(Self::NAME, any, expected, ids)?;
        let shape = [ids.shape[0], ids.shape[1], w.shape[1]];
        Ok(smallvec![TensorType::new(shape, x.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    /// Gathers the chosen experts' rows of weights, which are those of a table, and multiplies them in batch.
    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let [x, w, ids] = [inputs[0], inputs[1], inputs[2]];
        let (out, shared) = (g.ty(x).dtype, g.ty(x).shape[1]);
        let [e, n, k] = [0, 1, 2].map(|d| g.ty(w).shape[d]);
        let [t, s] = [0, 1].map(|d| g.ty(ids).shape[d]);
        let dtype = compute_dtype(out);
        // The numbers of each expert's rows. Ids choose among the experts, so that errors name them.
        let rows = g.arange(e * n, DType::I64)?;
        let rows = g.reshape(rows, [e, n])?;
        let ids = g.reshape(ids, [t * s])?;
        let rows = g.push(IndexSelect { dim: 0 }, &[rows, ids])?;
        let table = g.reshape(w, [e * n, k])?;
        let w = g.push(Embedding { dtype }, &[table, rows])?;
        let w = g.reshape(w, [t, s, n, k])?;
        let w = g.transpose(w)?;
        let x = g.cast(x, dtype)?;
        let x = g.reshape(x, [t, shared, 1, k])?;
        let y = g.matmul(x, w)?;
        let y = g.reshape(y, [t, s, n])?;
        Ok(smallvec![g.cast(y, out)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let [x, w, ids] = [node.inputs[0], node.inputs[1], node.inputs[2]];
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, i| match i {
            0 => {
                let w = g.cast(w, g.ty(x).dtype)?;
                let w = g.transpose(w)?;
                g.push(Self, &[ct, w, ids])
            }
            _ => of_weights(g, x, ids, ct, g.ty(w).shape[0]),
        })
    }
}

/// The gradients of the weights of `experts`: each is a product of all rows, of which those of other experts are 0.
fn of_weights(
    g: &mut Graph,
    x: ValueId,
    ids: ValueId,
    ct: ValueId,
    experts: usize,
) -> Result<ValueId, OpError> {
    let (index, dtype) = (g.ty(ids).dtype, g.ty(ct).dtype);
    let [t, s, n] = [0, 1, 2].map(|d| g.ty(ct).shape[d]);
    let k = g.ty(x).shape[2];
    let x = g.broadcast(x, [t, s, k])?;
    let x = g.reshape(x, [t * s, k])?;
    let own = g.arange(experts, index)?;
    let own = g.reshape(own, [experts, 1])?;
    let ids = g.reshape(ids, [1, t * s])?;
    let is_own = g.compare(CompareOp::Eq, own, ids)?;
    let is_own = g.reshape(is_own, [experts, t * s, 1])?;
    let ct = g.reshape(ct, [1, t * s, n])?;
    let zero = g.constant(0, dtype)?;
    let ct = g.select(is_own, ct, zero)?;
    let ct = g.transpose(ct)?;
    g.matmul(ct, x)
}

impl Named for ExpertLinear {
    const NAME: &'static str = "expert_linear";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let mut push = |x: CaseOperand, [e, n]: [usize; 2], w: DType, ids: [usize; 2], index| {
            let k = x.ty.shape[2];
            let w = CaseOperand::new([e, n, k], w).fill(Fill::Uniform(-1.0, 1.0));
            let ids = CaseOperand::new(ids, index).fill(Fill::Ints(0, e.max(1) as i64));
            cases.push(Case::new(Self, [x, w, ids]));
        };
        for dtype in DType::FLOATS {
            let x = |shape: [usize; 3]| CaseOperand::new(shape, dtype);
            for w in DType::FLOATS {
                push(x([1, 1, 75]), [5, 37], w, [1, 1], DType::I32);
                push(x([1, 1, 75]), [5, 37], w, [1, 4], DType::I64);
                push(x([4, 2, 75]), [3, 21], w, [4, 2], DType::I32);
                push(x([21, 1, 75]), [2, 19], w, [21, 2], DType::I32);
                push(x([3, 1, 8]), [1, 5], w, [3, 1], DType::I32);
                push(x([0, 1, 8]), [2, 5], w, [0, 2], DType::I32);
                push(x([2, 1, 8]), [2, 0], w, [2, 2], DType::I32);
            }
        }
        for &format in BlockFormat::ALL {
            let w = DType::Block(format);
            for dtype in DType::FLOATS {
                let x = |shape: [usize; 3]| CaseOperand::new(shape, dtype);
                push(x([1, 1, 512]), [5, 37], w, [1, 1], DType::I32);
                push(x([1, 1, 256]), [7, 21], w, [1, 4], DType::I64);
                push(x([3, 2, 512]), [4, 16], w, [3, 2], DType::I32);
                push(x([35, 1, 256]), [3, 37], w, [35, 1], DType::I32);
                push(x([150, 1, 256]), [3, 37], w, [150, 1], DType::I32);
                push(x([2, 1, 256]), [1, 16], w, [2, 1], DType::I32);
                push(x([0, 1, 256]), [2, 16], w, [0, 2], DType::I32);
            }
        }
        push(
            CaseOperand::new([2, 0, 4], DType::F32),
            [0, 3],
            DType::F32,
            [2, 0],
            DType::I32,
        );
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(x: &[usize], w: TensorType, ids: TensorType) -> String {
        let x = TensorType::new(x, DType::F32);
        let refused = ExpertLinear.infer(&[&x, &w, &ids]);
        refused.unwrap_err().to_string()
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let w = |shape: &[usize]| TensorType::new(shape, DType::F32);
        let ids = |shape: &[usize]| TensorType::new(shape, DType::I32);
        for (x, weights, chosen) in [
            (&[2, 1, 4][..], &[3, 5, 8][..], &[2, 2][..]),
            (&[2, 3, 4], &[3, 5, 4], &[2, 2]),
            (&[3, 1, 4], &[3, 5, 4], &[2, 2]),
            (&[2, 4], &[3, 5, 4], &[2, 2]),
            (&[2, 1, 4], &[5, 4], &[2, 2]),
            (&[2, 1, 4], &[3, 5, 4], &[2]),
        ] {
            let message = refusal(x, w(weights), ids(chosen));
            let expected =
                "expert_linear: expected x [t, s, k] or [t, 1, k], w [e, n, k] and ids [t, s]";
            assert!(message.starts_with(expected), "{message}");
        }
        let message = refusal(&[2, 1, 4], w(&[0, 5, 4]), ids(&[2, 2]));
        assert!(message.contains("has no experts"), "{message}");
        let message = refusal(&[2, 1, 4], w(&[3, 5, 4]), w(&[2, 2]));
        assert!(message.contains("i64 or i32"), "{message}");
        let message = refusal(&[2, 1, 4], ids(&[3, 5, 4]), ids(&[2, 2]));
        assert!(message.contains("block-quantised weights"), "{message}");
    }

    #[test]
    fn only_chosen_experts_are_read() {
        let x = TensorType::new([2, 1, 256], DType::F32);
        let w = TensorType::new([8, 4, 256], DType::Block(BlockFormat::Q4K));
        let outputs = [TensorType::new([2, 3, 4], DType::F32)];
        let read = |t: usize, s: usize| {
            let ids = TensorType::new([t, s], DType::I32);
            let signature = Signature {
                op: &ExpertLinear.into(),
                inputs: &[&x, &w, &ids],
                outputs: &outputs,
            };
            ExpertLinear.read(&signature, 1)
        };
        assert_eq!(read(2, 3), w.bytes() / 8 * 6);
        assert_eq!(read(9, 3), w.bytes());
        assert_eq!(read(0, 3), 0);
    }
}
