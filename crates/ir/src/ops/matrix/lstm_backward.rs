use smallvec::smallvec;

use super::lstm::{SIZES, gates, walk};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Shape, Signature, ValueId};

/// The gradients of an [`Lstm`]'s input and first states.
///
/// Operands: the gradients of its hidden states `[elements, hidden]` and of the last `h` and `c` `[n, hidden]`; its gates
/// `[elements, 4 · hidden]`; `c` before each time `[elements, hidden]`; its weight. All are of one dtype.
///
/// Results: the gradients of `x` `[elements, 4 · hidden]`, and of the first `h` and `c` `[n, hidden]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LstmBackward {
    /// The operation that has them. It does not matter whether the operation saves anything.
    pub lstm: Lstm,
}

impl OpDef for LstmBackward {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        self.lstm.products(s.inputs[5])
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [ct, ct_h, ct_c, all, before, weight] = operands(Self::NAME, inputs)?;
        let hidden = self.lstm.hidden(Self::NAME, weight)?;
        let [gates, _] = self.lstm.types(4 * hidden, weight.dtype);
        let [states, last] = self.lstm.types(hidden, weight.dtype);
        let expected = [&states, &last, &last, &gates, &states];
        for (ty, expected) in [ct, ct_h, ct_c, all, before].into_iter().zip(expected) {
            require(Self::NAME, ty == expected, expected, ty)?;
        }
        Ok(smallvec![gates, last.clone(), last])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let [ct, ct_h, ct_c, all, before, weight] = [0, 1, 2, 3, 4, 5].map(|i| inputs[i]);
        // Times in the opposite order.
        let mut steps = self.lstm.steps();
        steps.reverse();
        let mut parts = Vec::new();
        let first = walk(g, &steps, [ct_h, ct_c], |g, elements, [dh, dc]| {
            let of = |g: &mut Graph, x| g.slice(x, 0, elements.start, elements.end);
            let (ct, all, before) = (of(g, ct)?, of(g, all)?, of(g, before)?);
            let [input, forget, new, output] = gates(g, all)?;
            let (kept, added) = (g.mul(forget, before)?, g.mul(input, new)?);
            let c = g.add(kept, added)?;
            let shown = g.unary(UnaryOp::Tanh, c)?;
            let dh = g.add(dh, ct)?;
            // Derivatives of tanh and of the sigmoid function, by their results.
            let behind_tanh = |g: &mut Graph, d, y| {
                let square = g.square(y)?;
                let part = g.mul(d, square)?;
                g.sub(d, part)
            };
            let behind_sigmoid = |g: &mut Graph, d, y| {
                let d = g.mul(d, y)?;
                let part = g.mul(d, y)?;
                g.sub(d, part)
            };
            let through = g.mul(dh, output)?;
            let through = behind_tanh(g, through, shown)?;
            let dc = g.add(dc, through)?;
            let of_gates = [(dc, new), (dc, before), (dc, input), (dh, shown)];
            let [d_input, d_forget, d_new, d_output] = of_gates.map(|(d, x)| g.mul(d, x));
            let d = [
                behind_sigmoid(g, d_input?, input)?,
                behind_sigmoid(g, d_forget?, forget)?,
                behind_tanh(g, d_new?, new)?,
                behind_sigmoid(g, d_output?, output)?,
            ];
            let d = g.push(Concat { dim: 1 }, &d)?;
            parts.push(d);
            let dtype = g.ty(d).dtype;
            let (wide, weight) = (
                g.cast(d, compute_dtype(dtype))?,
                g.cast(weight, compute_dtype(dtype))?,
            );
            let dh = g.matmul(wide, weight)?;
            Ok([g.cast(dh, dtype)?, g.mul(dc, forget)?])
        })?;
        if !self.lstm.reverse {
            parts.reverse();
        }
        let dx = g.push(Concat { dim: 0 }, &parts)?;
        Ok(smallvec![dx, first[0], first[1]])
    }
}

impl Named for LstmBackward {
    const NAME: &'static str = "lstm_backward";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |sizes: &[usize], hidden: usize, reverse, arrange| {
                let lstm = Lstm {
                    sizes: sizes.to_vec(),
                    reverse,
                    saves: true,
                };
                let of = |shape: Shape| CaseOperand::new(shape, dtype).arrange(arrange);
                let [gates, _] = lstm.types(4 * hidden, dtype);
                let [states, last] = lstm.types(hidden, dtype);
                let (states, last) = (of(states.shape), of(last.shape));
                let gates = of(gates.shape).fill(Fill::Uniform(0.0, 1.0));
                let weight = of([4 * hidden, hidden].into());
                let inputs = [states.clone(), last.clone(), last, gates, states, weight];
                cases.push(Case::new(Self { lstm }, inputs));
            };
            for (sizes, hidden) in SIZES {
                for reverse in [false, true] {
                    push(sizes, hidden, reverse, ARRANGEMENTS[0]);
                }
            }
            for arrange in ARRANGEMENTS {
                push(&[3, 1], 2, false, arrange);
            }
            push(&[0, 0], 2, false, ARRANGEMENTS[0]);
        }
        cases
    }
}
