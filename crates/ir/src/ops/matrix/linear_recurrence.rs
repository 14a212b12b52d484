use smallvec::smallvec;

use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// Linear recurrence: each head has a state `S`, a matrix `[dv, dk]` that every time step decays, corrects and extends.
///
/// `S ← S · diag(w) + (S · a) bᵀ + v kᵀ`; the result of a time step is `S · r`. State space models (Mamba), gated
/// linear attention, RWKV and delta nets are such recurrences.
///
/// Operands, floats of one dtype: the first state `[b, h, dv, dk]`; `w`, `k` `[b, t, h, dk]`; `v` `[b, t, h, dv]`; `r`
/// `[b, t, h, dk]`; then, with a correction, `a` and `b` `[b, t, h, dk]`. There is at least one time step.
///
/// Results: those of all time steps `[b, t, h, dv]`, and the last state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LinearRecurrence {
    /// Whether there is a correction `(S · a) bᵀ`.
    pub corrects: bool,
    /// Whether a time step's result is read from the state before it.
    pub reads_before: bool,
}

impl LinearRecurrence {
    /// The number of operands.
    fn operands(&self) -> usize {
        match self.corrects {
            true => 7,
            false => 5,
        }
    }
}

impl OpDef for LinearRecurrence {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        let times = s.inputs[1].shape[1];
        let products = if self.corrects { 5 } else { 3 };
        let state = s.inputs[0].shape.elements();
        state.saturating_mul(times).saturating_mul(products)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let count = self.operands();
        let fits = inputs.len() == count;
        require(
            Self::NAME,
            fits,
            format_args!("{count} operands"),
            inputs.len(),
        )?;
        let (state, w) = (inputs[0], inputs[1]);
        require_float(Self::NAME, state)?;
        require(
            Self::NAME,
            state.rank() == 4,
            "a state [b, h, dv, dk]",
            state,
        )?;
        let [b, h, dv, dk] = [0, 1, 2, 3].map(|dim| state.shape[dim]);
        let times = w.shape.get(1).copied().unwrap_or(0);
        let expected = "decays [b, t, h, dk] of at least one time step";
        require(Self::NAME, w.rank() == 4 && times > 0, expected, w)?;
        let [keys, values] =
            [dk, dv].map(|width| TensorType::new([b, times, h, width], state.dtype));
        for (operand, &ty) in inputs.iter().enumerate().skip(1) {
            let expected = if operand == 3 { &values } else { &keys };
            require(Self::NAME, ty == expected, expected, ty)?;
        }
        Ok(smallvec![values, state.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let mut state = inputs[0];
        let [b, h, dv, dk] = [0, 1, 2, 3].map(|dim| g.ty(state).shape[dim]);
        let times = g.ty(inputs[1]).shape[1];
        let mut results = Vec::with_capacity(times);
        for time in 0..times {
            let part = |g: &mut Graph, operand: usize, shape: [usize; 2]| {
                let part = g.slice(inputs[operand], 1, time, time + 1)?;
                g.reshape(part, [b, h, shape[0], shape[1]])
            };
            let read = part(g, 4, [dk, 1])?;
            let before = state;
            let decay = part(g, 1, [1, dk])?;
            let mut next = g.mul(state, decay)?;
            if self.corrects {
                let (from, to) = (part(g, 5, [dk, 1])?, part(g, 6, [1, dk])?);
                let product = g.matmul(state, from)?;
                let correction = g.mul(product, to)?;
                next = g.add(next, correction)?;
            }
            let (key, value) = (part(g, 2, [1, dk])?, part(g, 3, [dv, 1])?);
            let added = g.mul(value, key)?;
            state = g.add(next, added)?;
            let source = if self.reads_before { before } else { state };
            let result = g.matmul(source, read)?;
            results.push(g.reshape(result, [b, 1, h, dv])?);
        }
        let results = match results[..] {
            [one] => one,
            _ => g.push(Concat { dim: 1 }, &results)?,
        };
        Ok(smallvec![results, state])
    }
}

impl Named for LinearRecurrence {
    const NAME: &'static str = "linear_recurrence";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let mut push = |[b, t, h, dv, dk]: [usize; 5], corrects, reads_before, dtype, arrange| {
            let of = |shape: [usize; 4], bound: f64| {
                let operand = CaseOperand::new(shape, dtype).arrange(arrange);
                operand.fill(Fill::Uniform(-bound, bound))
            };
            let keys = |bound| of([b, t, h, dk], bound);
            // The state keeps its size.
            let mut inputs = vec![
                of([b, h, dv, dk], 1.0),
                keys(0.9),
                keys(1.0),
                of([b, t, h, dv], 1.0),
                keys(1.0),
            ];
            if corrects {
                let bound = 0.5 / (dk.max(1) as f64).sqrt();
                inputs.extend([keys(bound), keys(bound)]);
            }
            let op = Self {
                corrects,
                reads_before,
            };
            cases.push(Case::new(op, inputs));
        };
        for dtype in DType::FLOATS {
            for corrects in [false, true] {
                for reads_before in [false, true] {
                    push(
                        [2, 3, 2, 5, 19],
                        corrects,
                        reads_before,
                        dtype,
                        ARRANGEMENTS[0],
                    );
                    push(
                        [1, 1, 3, 1, 16],
                        corrects,
                        reads_before,
                        dtype,
                        ARRANGEMENTS[0],
                    );
                }
                for arrange in ARRANGEMENTS {
                    push([2, 2, 3, 4, 6], corrects, false, dtype, arrange);
                }
            }
            push([1, 2, 0, 2, 3], true, false, dtype, ARRANGEMENTS[0]);
            push([1, 2, 2, 3, 0], true, false, dtype, ARRANGEMENTS[0]);
        }
        push([1, 9, 2, 37, 64], true, false, DType::F32, ARRANGEMENTS[0]);
        cases
    }
}
