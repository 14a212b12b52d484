use smallvec::{SmallVec, smallvec};

use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, Param, ResultTypes, Results, ValueId};

/// A [`LayerNorm`] or an [`RmsNorm`] with the residual before it and a conversion after it.
///
/// Operands: `x`, floating point. If it `adds`, the summand, of `x`'s shape and any floating-point dtype. Optionally
/// the norm's `weight`, then its `bias`. Results: the sum, of `x`'s type, if there is one; the norm of it, in `dtype`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FusedNorm {
    /// Number of last dimensions that are normalised together; 1 for an RMS norm.
    pub dims: usize,
    /// Added to the variance, or to the mean square.
    pub eps: Param,
    /// Whether it is a layer norm, which subtracts the mean.
    pub is_centred: bool,
    /// Whether there is a summand.
    pub adds: bool,
    /// Whether the summand has another dtype than `x`.
    pub converts: bool,
    /// The norm's dtype, floating point, if it differs from `x`'s.
    pub dtype: Option<DType>,
}

impl FusedNorm {
    /// The norm alone.
    fn norm(&self) -> Op {
        let (dims, eps) = (self.dims, self.eps);
        match self.is_centred {
            true => LayerNorm { dims, eps }.into(),
            false => RmsNorm { eps }.into(),
        }
    }

    /// The sizes that are normalised apart, and together.
    pub fn lines(&self, x: &TensorType) -> [usize; 2] {
        let (dims, eps) = (self.dims, self.eps);
        LayerNorm { dims, eps }.lines(x)
    }

    /// The number of operands before those of the norm.
    fn before(&self) -> usize {
        usize::from(self.adds)
    }
}

impl OpDef for FusedNorm {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let expected = "x, what is added to it, and weights";
        let fits = inputs.len() > self.before();
        require(Self::NAME, fits, expected, inputs.len())?;
        let x = inputs[0];
        if self.adds {
            let other = inputs[1];
            require_float(Self::NAME, other)?;
            let expected = format_args!("a residual {}", x.shape);
            let fits = other.shape == x.shape && self.converts == (other.dtype != x.dtype);
            require(Self::NAME, fits, expected, other)?;
        }
        let is_one = self.is_centred || self.dims == 1;
        require(
            Self::NAME,
            is_one,
            "one dimension of an RMS norm",
            self.dims,
        )?;
        let of_norm = [&[x], &inputs[1 + self.before()..]].concat();
        let normed = self.norm().infer(&of_norm).map_err(|e| OpError {
            op: Self::NAME,
            ..e
        })?;
        let dtype = self.dtype.unwrap_or(x.dtype);
        require(Self::NAME, dtype.is_float(), "a float dtype", dtype)?;
        let normed = TensorType::new(normed[0].shape.clone(), dtype);
        Ok(match self.adds {
            true => smallvec![x.clone(), normed],
            false => smallvec![normed],
        })
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let parts = [
            self.converts.then_some(OpKind::Cast),
            self.adds.then_some(OpKind::Binary),
            Some(self.norm().kind()),
            self.dtype.map(|_| OpKind::Cast),
        ];
        parts.into_iter().flatten().collect()
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let mut x = inputs[0];
        if self.adds {
            let other = g.cast(inputs[1], g.ty(x).dtype)?;
            x = g.add(x, other)?;
        }
        let of_norm = [&[x], &inputs[1 + self.before()..]].concat();
        let mut normed = g.push(self.norm(), &of_norm)?;
        if let Some(dtype) = self.dtype {
            normed = g.cast(normed, dtype)?;
        }
        Ok(match self.adds {
            true => smallvec![x, normed],
            false => smallvec![normed],
        })
    }
}

/// A norm, with the sum that it is of and the only conversion of it, if there are.
pub(crate) fn fused_norm(f: &Finder, at: usize) -> Vec<Match> {
    let (dims, eps, is_centred) = match f.op(at) {
        Op::LayerNorm(norm) => (norm.dims, norm.eps, true),
        Op::RmsNorm(norm) => (1, norm.eps, false),
        _ => return Vec::new(),
    };
    let x = f.operands(at)[0];
    let sum = || {
        let by = f.producer(x)?;
        let [a, b] = f.terms(by)?;
        let fits = a != b && f.ty(a) == f.ty(x) && f.ty(b) == f.ty(x);
        fits.then_some((by, [a, b]))
    };
    let cast = || {
        let reader = f.only_reader(f.result(at))?;
        let dtype = f.ty(f.result(reader)).dtype;
        (matches!(f.op(reader), Op::Cast(_)) && dtype.is_float()).then_some(reader)
    };
    // A term may be converted first, by a node that nobody else needs.
    let converted = |v: ValueId| {
        let by = f.producer(v)?;
        let from = f.operands(by).first().copied()?;
        let fits = matches!(f.op(by), Op::Cast(_))
            && f.only_reader(v).is_some()
            && f.ty(from).dtype.is_float();
        fits.then_some((by, from))
    };
    let (sum, cast) = (sum(), cast());
    let found = |sum: Option<(usize, [ValueId; 2])>| {
        let mut nodes: SmallVec<[usize; 8]> = smallvec![];
        let mut inputs: SmallVec<[ValueId; 8]> = smallvec![x];
        let mut results: SmallVec<[ValueId; 4]> = smallvec![];
        if let Some((by, [a, b])) = sum {
            let (kept, added) = match (converted(b), converted(a)) {
                (Some(added), _) => (a, Some(added)),
                (None, Some(added)) => (b, Some(added)),
                (None, None) => (a, None),
            };
            let other = match added {
                Some((cast, from)) => {
                    nodes.push(cast);
                    from
                }
                None => b,
            };
            inputs = smallvec![kept, other];
            nodes.push(by);
            results.push(x);
        }
        inputs.extend_from_slice(&f.operands(at)[1..]);
        nodes.push(at);
        nodes.extend(cast);
        let last = cast.map_or(f.result(at), |cast| f.result(cast));
        results.push(last);
        let op = FusedNorm {
            dims,
            eps,
            is_centred,
            adds: sum.is_some(),
            converts: inputs
                .get(1)
                .is_some_and(|&v| sum.is_some() && f.ty(v).dtype != f.ty(x).dtype),
            dtype: cast.map(|_| f.ty(last).dtype),
        };
        Match {
            op: op.into(),
            inputs,
            nodes,
            results,
        }
    };
    let with_sum = sum.map(|sum| found(Some(sum)));
    // An RMS norm that nothing is converted for is an `AddRmsNorm`.
    let with_sum = with_sum.filter(|found| is_centred || found.nodes.len() > 2);
    let alone = cast.map(|_| found(None));
    with_sum.into_iter().chain(alone).collect()
}

impl Named for FusedNorm {
    const NAME: &'static str = "fused_norm";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for (adds, other, result) in [
                (true, dtype, dtype),
                (true, DType::BF16, DType::BF16),
                (true, dtype, DType::F16),
                (false, dtype, DType::BF16),
            ] {
                let mut push = |shape: &[usize], dims: usize, weights: usize, arrange| {
                    let op = Self {
                        dims,
                        eps: 1e-5.into(),
                        is_centred: weights != 1 || dims > 1,
                        adds,
                        converts: adds && other != dtype,
                        dtype: (result != dtype).then_some(result),
                    };
                    let mut operands = vec![CaseOperand::new(shape, dtype).arrange(arrange)];
                    operands.extend(adds.then(|| CaseOperand::new(shape, other).arrange(arrange)));
                    let weight = CaseOperand::new(&shape[shape.len() - dims..], dtype);
                    operands.extend(vec![weight; weights]);
                    cases.push(Case::new(op, operands));
                };
                for arrange in ARRANGEMENTS {
                    push(&[2, 3, 4, 37], 1, 2, arrange);
                    push(&[2, 3, 4, 37], 1, 1, arrange);
                }
                let contiguous = ARRANGEMENTS[0];
                push(&[3, 64], 1, 0, contiguous);
                push(&[9, 768], 1, 2, contiguous);
                push(&[9, 768], 1, 1, contiguous);
                push(&[3, 4, 16], 2, 1, contiguous);
                push(&[2, 9000], 1, 2, contiguous);
                push(&[0, 8], 1, 2, contiguous);
            }
        }
        cases
    }
}
