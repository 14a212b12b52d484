use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::ops::{Attention, CompareOp};
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The gradients of an [`Attention`]'s queries, keys and values
/// ([Dao et al. 2022](https://arxiv.org/abs/2205.14135), algorithm 4).
///
/// Operands: `q` `[…, h, t, d]`, `k` `[…, g, s, d]` and `v` `[…, g, s, dv]`, floating point, as the attention
/// has them; `totals` `[…, h, t]`, the logarithms of its weights' totals; `d_y` `[…, h, t, dv]`, of `q`'s dtype,
/// the gradient of its result `y`; `delta`, like `totals`: `Σ d_y · y` over the last dimension, less the gradient of
/// `totals`, if that has one; then the attention's `mask` and `past`, where it has them.
///
/// Results: the gradients of `q`, `k` and `v`, of their types. Queries that see no key have gradients
/// of 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AttentionBackward {
    /// The attention. It does not depend on whether the attention returns totals.
    pub attention: Attention,
}

impl AttentionBackward {
    /// The attention's operands, out of those of this operation.
    fn operands<T: Copy>(inputs: &[T]) -> Vec<T> {
        let others = inputs.iter().skip(6);
        inputs.iter().take(3).chain(others).copied().collect()
    }
}

impl OpDef for AttentionBackward {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        let keys = s.inputs[1].shape.iter().rev().nth(1).map_or(0, |&n| n);
        // Scores, their gradients and three results.
        keys * (3 * s.inputs[0].shape.elements() + 2 * s.inputs[4].shape.elements())
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let enough = inputs.len() >= 6;
        require(Self::NAME, enough, "6 operands or more", inputs.len())?;
        let attention = Attention {
            log_sum_exp: true,
            ..self.attention.clone()
        };
        let named = |e: OpError| OpError {
            op: Self::NAME,
            ..e
        };
        let results = attention.infer(&Self::operands(inputs)).map_err(named)?;
        let [k, totals, d_y, delta] = [1, 3, 4, 5].map(|i| inputs[i]);
        require(Self::NAME, k.dtype.is_float(), "keys in floating point", k)?;
        let fits = |ty: &TensorType, expected: &TensorType, what: &str| {
            let expected_text = format_args!("{what} {expected}");
            require(Self::NAME, ty == expected, expected_text, ty)
        };
        fits(d_y, &results[0], "a gradient")?;
        fits(totals, &results[1], "totals")?;
        fits(delta, &results[1], "delta")?;
        Ok(inputs[..3].iter().map(|&ty| ty.clone()).collect())
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let scores = self.attention.scores(g, &Self::operands(inputs))?;
        let types = [0, 1, 2].map(|i| g.ty(inputs[i]).clone());
        let r = types[0].rank();
        let grouped = g.ty(scores.masked).clone();
        let (each, t) = (grouped.shape[r - 2], grouped.shape[r - 1]);
        let lead = &grouped.shape[..r - 2];
        let compute = grouped.dtype;
        let zero = g.constant(0.0, compute)?;
        let in_groups = |g: &mut Graph, x: ValueId, width: usize| {
            let x = g.cast(x, compute)?;
            g.reshape(x, [lead, &[each, t, width]].concat())
        };
        let [totals, delta] = [inputs[3], inputs[5]].map(|x| in_groups(g, x, 1));
        let (totals, delta) = (totals?, delta?);
        let d_y = in_groups(g, inputs[4], types[2].shape[r - 1])?;
        // Queries that see no key have totals of −∞, and delta may be NaN.
        let none = g.constant(f64::NEG_INFINITY, compute)?;
        let sees_any = g.compare(CompareOp::Gt, totals, none)?;
        let [totals, delta] = [totals, delta].map(|x| g.select(sees_any, x, zero));
        let (totals, delta) = (totals?, delta?);

        let weights = g.sub(scores.masked, totals)?;
        let weights = g.unary(UnaryOp::Exp, weights)?;
        let values = g.transpose(scores.v)?;
        let change = g.matmul(d_y, values)?;
        let change = g.sub(change, delta)?;
        let mut change = g.mul(weights, change)?;
        if let Some(tanh) = scores.tanh {
            let square = g.square(tanh)?;
            let part = g.mul(change, square)?;
            change = g.sub(change, part)?;
        }
        let change = g.mul_scalar(change, self.attention.scale.0)?;
        // Keys that no query sees may hold anything, NaN included.
        let k = match scores.seen {
            Some(seen) => g.select(seen, scores.k, zero)?,
            None => scores.k,
        };
        let d_q = g.matmul(change, k)?;
        // Products with the rows of all queries of a group sum over them.
        let of_group = |g: &mut Graph, x: ValueId| {
            let width = g.ty(x).shape[r];
            g.reshape(x, [lead, &[each * t, width]].concat())
        };
        let summed = |g: &mut Graph, a: ValueId, b: ValueId| {
            let (a, b) = (of_group(g, a)?, of_group(g, b)?);
            let a = g.transpose(a)?;
            g.matmul(a, b)
        };
        let d_k = summed(g, change, scores.q)?;
        let d_v = summed(g, weights, d_y)?;
        let mut results = Results::new();
        for (x, ty) in [d_q, d_k, d_v].into_iter().zip(types) {
            let x = g.reshape(x, ty.shape)?;
            results.push(g.cast(x, ty.dtype)?);
        }
        Ok(results)
    }
}

impl Named for AttentionBackward {
    const NAME: &'static str = "attention_backward";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let plain = Attention {
            scale: 0.25.into(),
            causal: false,
            soft_cap: None,
            mask: false,
            past: false,
            window: None,
            log_sum_exp: true,
        };
        let causal = Attention {
            causal: true,
            ..plain.clone()
        };
        let cached = Attention {
            past: true,
            ..causal.clone()
        };
        let capped = Attention {
            soft_cap: Some(5.0.into()),
            ..causal.clone()
        };
        let masked = Attention {
            mask: true,
            ..plain.clone()
        };
        let near = Attention {
            window: Some(4),
            ..causal.clone()
        };
        let near_in_cache = Attention {
            window: Some(3),
            ..cached.clone()
        };
        // Totals are near the logarithm of the number of keys, so that not all weights are large.
        let totals = |shape: &[usize], dtype: DType, keys: usize| {
            let about = (keys as f64).ln();
            let fill = Fill::Uniform(about - 0.5, about + 0.5);
            CaseOperand::new(shape, compute_dtype(dtype)).fill(fill)
        };
        let operands = |q: &CaseOperand, k: &CaseOperand, v: &CaseOperand| {
            let (rank, keys) = (q.ty.rank(), k.ty.shape[k.ty.rank() - 2]);
            let rows = &q.ty.shape[..rank - 1];
            let d_y = q.ty.shape.clone().with_dim(rank - 1, v.ty.shape[rank - 1]);
            vec![
                q.clone(),
                k.clone(),
                v.clone(),
                totals(rows, q.ty.dtype, keys),
                CaseOperand::new(d_y, q.ty.dtype).arrange(q.arrange),
                CaseOperand::new(rows, compute_dtype(q.ty.dtype)),
            ]
        };
        for dtype in DType::FLOATS {
            // Numbers that are computed in single precision have no slopes in double precision.
            let is_double = |dtype| dtype == DType::F64;
            let same = |cache: &DType| is_double(*cache) == is_double(dtype);
            for cache in DType::FLOATS.into_iter().filter(same) {
                let q = CaseOperand::new([2, 4, 5, 16], dtype);
                let k = CaseOperand::new([2, 2, 11, 16], cache);
                let v = CaseOperand::new([2, 2, 11, 12], cache);
                for op in [
                    &plain,
                    &causal,
                    &capped,
                    &masked,
                    &cached,
                    &near,
                    &near_in_cache,
                ] {
                    let mut inputs = operands(&q, &k, &v);
                    let mask = CaseOperand::new([5, 11], dtype).fill(Fill::Mask);
                    let past = CaseOperand::new([1], DType::I32).fill(Fill::Ints(3, 4));
                    inputs.extend(op.mask.then_some(mask));
                    inputs.extend(op.past.then_some(past));
                    let attention = op.clone();
                    cases.push(Case::new(Self { attention }, inputs));
                }
            }
            // Widths that models have, with more rows than a tile has, and with fewer.
            for (t, s, d) in [
                (150, 150, 64),
                (70, 200, 64),
                (200, 70, 64),
                (140, 140, 128),
            ] {
                let q = CaseOperand::new([1, 4, t, d], dtype);
                let k = CaseOperand::new([1, 2, s, d], dtype);
                for op in [&plain, &causal] {
                    let attention = Attention {
                        scale: (1.0 / (d as f64).sqrt()).into(),
                        ..op.clone()
                    };
                    let case = Case::new(Self { attention }, operands(&q, &k, &k));
                    cases.push(case);
                }
            }
            for arrange in ARRANGEMENTS {
                let x = |heads: usize, t: usize| {
                    let x = CaseOperand::new([2, heads, t, 64], dtype);
                    x.arrange(arrange)
                };
                let attention = causal.clone();
                let inputs = operands(&x(4, 20), &x(2, 24), &x(2, 24));
                cases.push(Case::new(Self { attention }, inputs));
            }
            let none = CaseOperand::new([2, 0, 8], dtype);
            let keys = CaseOperand::new([2, 5, 8], dtype);
            for op in [&plain, &causal] {
                let attention = op.clone();
                let inputs = operands(&none, &keys, &keys);
                cases.push(Case::new(Self { attention }, inputs));
            }
        }
        cases
    }
}
