use smallvec::smallvec;

use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// Weighted sums of elements along a dimension, for `dim` 1:
/// `out[i][j][k] = Σₜ weights[t][j] · x[i][places[t][j]][k]`.
///
/// Operands: `x`, floating point; `places` `[taps, len]`, `i64` or `i32`; `weights` `[taps, len]`, of
/// `x`'s dtype. A place outside the dimension is the caller's mistake, found at run time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Resample {
    /// The dimension.
    pub dim: usize,
}

impl OpDef for Resample {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Convolution)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, places, weights] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        require_index(Self::NAME, places)?;
        require_same(Self::NAME, x, weights)?;
        let fits = places.rank() == 2 && places.shape[0] > 0 && places.shape == weights.shape;
        let got = format_args!("{places} and {weights}");
        let expected = "places and weights [taps, len], at least one tap";
        require(Self::NAME, fits, expected, got)?;
        let shape = x.shape.clone().with_dim(self.dim, places.shape[1]);
        Ok(smallvec![TensorType::new(shape, x.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let out = g.ty(inputs[0]).clone();
        let x = g.cast(inputs[0], compute_dtype(out.dtype))?;
        let weights = g.cast(inputs[2], compute_dtype(out.dtype))?;
        let (taps, len) = (g.ty(weights).shape[0], g.ty(weights).shape[1]);
        let mut column = vec![1; out.rank() - self.dim];
        column[0] = len;
        let mut sum = None;
        for tap in 0..taps {
            let places = g.slice(inputs[1], 0, tap, tap + 1)?;
            let places = g.reshape(places, [len])?;
            let taken = g.push(IndexSelect { dim: self.dim }, &[x, places])?;
            let weight = g.slice(weights, 0, tap, tap + 1)?;
            let weight = g.reshape(weight, &column[..])?;
            let part = g.mul(taken, weight)?;
            sum = Some(match sum {
                Some(sum) => g.add(sum, part)?,
                None => part,
            });
        }
        let sum = sum.ok_or_else(|| OpError::new(Self::NAME, "at least one tap", "none"))?;
        Ok(smallvec![g.cast(sum, out.dtype)?])
    }
}

impl Named for Resample {
    const NAME: &'static str = "resample";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for index in [DType::I64, DType::I32] {
                let mut push = |x: CaseOperand, dim, taps: usize, len: usize| {
                    let size = x.ty.shape[dim] as i64;
                    let places = CaseOperand::new([taps, len], index).fill(Fill::Ints(0, size));
                    let weights = CaseOperand::new([taps, len], dtype);
                    cases.push(Case::new(Self { dim }, [x, places, weights]));
                };
                for dim in 0..3 {
                    for arrange in ARRANGEMENTS {
                        let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                        push(x, dim, dim + 1, 7);
                    }
                }
                push(CaseOperand::new([2, 40], dtype), 1, 4, 300);
                push(CaseOperand::new([0, 4], dtype), 1, 2, 3);
            }
        }
        cases
    }
}
