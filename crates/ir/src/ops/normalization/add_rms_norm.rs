use smallvec::smallvec;

use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::RmsNorm;
use crate::ops::*;
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, ValueId};

/// A residual and the norm behind it: `sum = a + b` and its [`RmsNorm`].
///
/// Operands: `a` and `b` `[…, d]` of one floating-point type; optionally the norm's `weight`
/// `[d]`. Results: the sum and the norm of it, both of `a`'s type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AddRmsNorm {
    /// The norm.
    pub norm: RmsNorm,
}

impl OpDef for AddRmsNorm {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let expected = "2 or 3 operands";
        require(
            Self::NAME,
            matches!(inputs.len(), 2 | 3),
            expected,
            inputs.len(),
        )?;
        let (a, b) = (inputs[0], inputs[1]);
        let got = format_args!("{a} and {b}");
        require(Self::NAME, a == b, "two operands of one type", got)?;
        let normed = self.norm.infer(&inputs[1..]).map_err(|e| OpError {
            op: Self::NAME,
            ..e
        })?;
        Ok(smallvec![a.clone(), normed[0].clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        vec![OpKind::Binary, OpKind::RmsNorm]
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let sum = g.add(inputs[0], inputs[1])?;
        let operands: Vec<ValueId> = [&[sum], &inputs[2..]].concat();
        let normed = g.push(self.norm.clone(), &operands)?;
        Ok(smallvec![sum, normed])
    }
}

/// A norm, found by the sum that it is of.
pub(crate) fn add_rms_norm(f: &Finder, at: usize) -> Vec<Match> {
    find(f, at).into_iter().collect()
}

fn find(f: &Finder, at: usize) -> Option<Match> {
    let Op::RmsNorm(norm) = f.op(at) else {
        return None;
    };
    let sum = f.operands(at)[0];
    let at_sum = f.producer(sum)?;
    let [a, b] = f.terms(at_sum)?;
    (f.ty(a) == f.ty(b)).then_some(())?;
    let op = AddRmsNorm { norm: norm.clone() };
    let weight = f.operands(at)[1..].iter().copied();
    Some(Match {
        op: op.into(),
        inputs: [a, b].into_iter().chain(weight).collect(),
        nodes: smallvec![at_sum, at],
        results: smallvec![sum, f.result(at)],
    })
}

impl Named for AddRmsNorm {
    const NAME: &'static str = "add_rms_norm";

    fn cases() -> Vec<Case> {
        let op = Self {
            norm: RmsNorm { eps: 1e-5.into() },
        };
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
            for shape in [&[1, 64][..], &[5, 300], &[2, 3, 31], &[0, 8], &[2048]] {
                let weight = x(&shape[shape.len() - 1..]);
                cases.push(Case::new(op.clone(), [x(shape), x(shape), weight]));
            }
            cases.push(Case::new(op.clone(), [x(&[3, 40]), x(&[3, 40])]));
            for arrange in ARRANGEMENTS {
                let x = |shape: &[usize]| x(shape).arrange(arrange);
                cases.push(Case::new(
                    op.clone(),
                    [x(&[3, 5, 16]), x(&[3, 5, 16]), x(&[16])],
                ));
            }
        }
        cases
    }
}
