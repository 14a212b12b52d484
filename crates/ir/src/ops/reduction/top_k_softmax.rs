use smallvec::smallvec;

use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::ops::{Softmax, TopK};
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, ValueId};

/// The `k` largest elements along the last dimension ([`TopK`]) by [`Softmax`], and where they are: a router's choice
/// of experts.
///
/// Results: the probabilities, of the operand's dtype, and the indices, `i64`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TopKSoftmax {
    /// Number of elements, at least one.
    pub k: usize,
}

impl TopKSoftmax {
    /// Its parts for a tensor of `rank` dimensions.
    fn parts(&self, rank: usize) -> (TopK, Softmax) {
        let dim = rank.saturating_sub(1);
        let largest = TopK {
            k: self.k,
            dim,
            largest: true,
        };
        (largest, Softmax { dim, log: false })
    }
}

impl OpDef for TopKSoftmax {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let (largest, softmax) = self.parts(x.rank());
        let named = |e: OpError| OpError {
            op: Self::NAME,
            ..e
        };
        let results = largest.infer(inputs).map_err(named)?;
        softmax.infer(&[&results[0]]).map_err(named)?;
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        vec![OpKind::TopK, OpKind::Softmax]
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let (largest, softmax) = self.parts(g.ty(inputs[0]).rank());
        let best = g.push(largest, inputs)?;
        let indices = g.results(best)[1];
        Ok(smallvec![g.push(softmax, &[best])?, indices])
    }
}

/// The largest elements, whose values only a softmax needs.
pub(crate) fn top_k_softmax(f: &Finder, at: usize) -> Vec<Match> {
    let Op::TopK(best) = f.op(at) else {
        return Vec::new();
    };
    let results = f.graph().results(f.result(at));
    let op = TopKSoftmax { k: best.k };
    let (largest, softmax) = op.parts(f.ty(results[0]).rank());
    let found = (f.only_reader(results[0]))
        .filter(|&reader| *best == largest && *f.op(reader) == softmax.clone().into());
    let found = found.map(|reader| Match {
        op: op.into(),
        inputs: f.operands(at).into(),
        nodes: smallvec![at, reader],
        results: smallvec![f.result(reader), results[1]],
    });
    found.into_iter().collect()
}

impl Named for TopKSoftmax {
    const NAME: &'static str = "top_k_softmax";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for (shape, k) in [
                (&[1, 128][..], 8),
                (&[3, 32], 4),
                (&[2, 5, 7], 7),
                (&[5], 1),
                (&[2, 300], 20),
                (&[0, 8], 2),
            ] {
                // Different numbers, then many that are equal.
                let x = CaseOperand::new(shape, dtype);
                cases.push(Case::new(Self { k }, [x.clone()]));
                cases.push(Case::new(Self { k }, [x.fill(Fill::Ints(-3, 3))]));
            }
        }
        cases
    }
}
