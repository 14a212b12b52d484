use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::ops::{AttentionBackward, CompareOp, ReduceOp, Softmax};
use crate::{
    BlockFormat, Graph, Named, OpDef, OpType, Param, ResultTypes, Results, Signature, ValueId,
};

/// Scaled dot-product attention with grouped queries.
///
/// Operands: `q` `[…, h, t, d]`; `k` `[…, g, s, d]` and `v` `[…, g, s, dv]`, of one
/// floating-point dtype or block format, `g` dividing `h`; then, where the fields say so,
/// `mask`, which broadcasts to `[…, h, t, s]`, of `q`'s dtype, added to the scores; and
/// `past`, one `i32` read at run time.
///
/// Results: `[…, h, t, dv]` of `q`'s dtype; then, if `log_sum_exp`, `log Σ exp(score)` over the
/// keys that a query sees, `[…, h, t]`, `f64` of `f64` queries, else `f32`: −∞ where it sees none.
///
/// Query `i` sees keys `0 ..= i + past` if `causal`, else all keys. A causal run without
/// `past` aligns the first query with the first key. With a `window` it sees only the last
/// `window` of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attention {
    /// Multiplier of the scores.
    pub scale: Param,
    /// Only keys up to the query's own position?
    pub causal: bool,
    /// `c · tanh(score / c)` before the mask, if `c` is given.
    pub soft_cap: Option<Param>,
    /// Whether `mask` is among the operands.
    pub mask: bool,
    /// Whether `past` is among the operands. Needs `causal`.
    pub past: bool,
    /// Number of keys that a query sees, its own position included. Needs `causal`, and without `past`
    /// a key for each query.
    pub window: Option<usize>,
    /// Whether the logarithm of the weights' total is a result, too.
    pub log_sum_exp: bool,
}

impl OpDef for Attention {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        let [t, keys] = [0, 1].map(|i| s.inputs[i].shape.iter().rev().nth(1).map_or(0, |&n| n));
        self.window_of(t, keys) * (s.inputs[0].shape.elements() + s.output().shape.elements())
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let count = 3 + usize::from(self.mask) + usize::from(self.past);
        require(
            Self::NAME,
            inputs.len() == count,
            format!("{count} operands"),
            inputs.len(),
        )?;
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        require_float(Self::NAME, q)?;
        require(
            Self::NAME,
            k.dtype.is_float() || k.dtype.is_block(),
            "keys in floating point or blocks",
            k,
        )?;
        require_same(Self::NAME, k, v)?;
        let r = q.rank();
        let got = format_args!("{q}, {k} and {v}");
        let expected = "q [.., h, t, d], k [.., g, s, d] and v [.., g, s, dv]";
        let ranks = r >= 3 && k.rank() == r && v.rank() == r;
        require(Self::NAME, ranks, expected, got)?;
        let sizes = q.shape[..r - 3] == k.shape[..r - 3]
            && k.shape[..r - 1] == v.shape[..r - 1]
            && q.shape[r - 1] == k.shape[r - 1];
        require(Self::NAME, sizes, expected, got)?;
        let groups = k.shape[r - 3] > 0 && q.shape[r - 3].is_multiple_of(k.shape[r - 3]);
        require(
            Self::NAME,
            groups,
            "a number of query heads that the key heads divide",
            got,
        )?;
        require(Self::NAME, k.shape[r - 2] > 0, "at least one key", got)?;
        if self.mask {
            let mask = inputs[3];
            require_same(Self::NAME, q, mask)?;
            let scores = q.shape.clone().with_dim(r - 1, k.shape[r - 2]);
            let fits = crate::broadcast_shapes(Self::NAME, &mask.shape, &scores)? == scores;
            require(
                Self::NAME,
                fits,
                format!("a mask that broadcasts to {scores}"),
                mask,
            )?;
        }
        if let Some(window) = self.window {
            let fits = self.causal && window > 0 && (self.past || q.shape[r - 2] <= k.shape[r - 2]);
            let expected = "a window of at least one key, with causal and a key for each query";
            require(Self::NAME, fits, expected, format_args!("{window}, {got}"))?;
        }
        if self.past {
            let past = inputs[count - 1];
            let one = self.causal && past.dtype == DType::I32 && past.shape.elements() == 1;
            require(Self::NAME, one, "past of one i32, with causal", past)?;
        }
        let shape = q.shape.clone().with_dim(r - 1, v.shape[r - 1]);
        let totals = || TensorType::new(&q.shape[..r - 1], compute_dtype(q.dtype));
        let mut results = smallvec![TensorType {
            shape,
            dtype: q.dtype,
        }];
        results.extend(self.log_sum_exp.then(totals));
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let scores = self.scores(g, inputs)?;
        let (q_ty, v_ty) = (g.ty(inputs[0]).clone(), g.ty(inputs[2]).clone());
        let dim = q_ty.rank();
        let softmax = Softmax { dim, log: false };
        let weights = softmax.decompose(g, &[scores.masked])?[0];
        let y = g.matmul(weights, scores.v)?;
        let shape = q_ty.shape.clone().with_dim(dim - 1, v_ty.shape[dim - 1]);
        let y = g.reshape(y, shape)?;
        let mut results = smallvec![g.cast(y, q_ty.dtype)?];
        if self.log_sum_exp {
            let totals = log_sum_exp(g, scores.masked, dim)?;
            let totals = g.reshape(totals, &q_ty.shape[..dim - 1])?;
            results.push(totals);
        }
        Ok(results)
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let [q, k, v] = [0, 1, 2].map(|i| node.inputs[i]);
        let is_mask_needed = self.mask && node.needed[3];
        if is_mask_needed || g.ty(k).dtype.is_block() {
            return node.through_parts(g, |g, inputs| self.decompose(g, inputs));
        }
        let results: Results = match self.log_sum_exp {
            true => node.results.into(),
            false => {
                let op = Self {
                    log_sum_exp: true,
                    ..self.clone()
                };
                let y = g.push(op, node.inputs)?;
                g.results(y)
            }
        };
        let (y, totals) = (results[0], results[1]);
        let (compute, dim) = (g.ty(totals).dtype, g.ty(y).rank() - 1);
        let d_y = node.cotangent(g, 0)?;
        let [y, wide] = [y, d_y].map(|x| g.cast(x, compute));
        let product = g.mul(y?, wide?)?;
        let delta = g.reduce(ReduceOp::Sum, product, dim)?;
        let mut delta = g.reshape(delta, g.ty(totals).shape.clone())?;
        if let Some(&Some(d_totals)) = node.cotangents.get(1) {
            delta = g.sub(delta, d_totals)?;
        }
        let mut inputs = vec![q, k, v, totals, d_y, delta];
        inputs.extend(&node.inputs[3..]);
        let backward = AttentionBackward {
            attention: self.clone(),
        };
        let d_q = g.push(backward, &inputs)?;
        let gradients = g.results(d_q);
        node.each(g, |_, i| Ok(gradients[i]))
    }
}

/// Parts of attention, in the dtype of the computation. Queries of one group share its keys:
/// `[…, g, h / g, t, d]` with `[…, g, 1, s, d]`.
pub(in crate::ops) struct Scores {
    pub(in crate::ops) q: ValueId,
    pub(in crate::ops) k: ValueId,
    /// Values. A row that no query may see is 0, since it may hold anything, NaN included.
    pub(in crate::ops) v: ValueId,
    /// `tanh(score / c)`, where scores are capped.
    pub(in crate::ops) tanh: Option<ValueId>,
    /// `[…, g, h / g, t, s]`: −∞ where a query does not see a key.
    pub(in crate::ops) masked: ValueId,
    /// Keys that any query sees, `[s, 1]`, where not all need be.
    pub(in crate::ops) seen: Option<ValueId>,
}

impl Attention {
    /// The largest number of `keys` keys that `t` queries see.
    pub fn window_of(&self, t: usize, keys: usize) -> usize {
        let seen = self
            .window
            .map(|window| window.saturating_add(t).saturating_sub(1));
        seen.map_or(keys, |seen| seen.min(keys))
    }

    /// Scores of the operands of an attention.
    pub(in crate::ops) fn scores(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Scores, OpError> {
        let (q_ty, k_ty, v_ty) = (g.ty(inputs[0]), g.ty(inputs[1]), g.ty(inputs[2]));
        let (q_ty, k_ty, v_ty) = (q_ty.clone(), k_ty.clone(), v_ty.clone());
        let r = q_ty.rank();
        let lead = &q_ty.shape[..r - 3];
        let (heads, t, s) = (q_ty.shape[r - 3], q_ty.shape[r - 2], k_ty.shape[r - 2]);
        let groups = k_ty.shape[r - 3];
        let each = heads / groups;
        let compute = compute_dtype(q_ty.dtype);

        let q = g.cast(inputs[0], compute)?;
        let q = g.reshape(q, [lead, &[groups, each, t, q_ty.shape[r - 1]]].concat())?;
        let shared = |g: &mut Graph, x: ValueId, ty: &TensorType| {
            let x = g.cast(x, compute)?;
            g.reshape(x, [lead, &[groups, 1, s, ty.shape[r - 1]]].concat())
        };
        let (k, mut v) = (shared(g, inputs[1], &k_ty)?, shared(g, inputs[2], &v_ty)?);
        let columns = g.transpose(k)?;
        let scores = g.matmul(q, columns)?;
        let mut masked = g.mul_scalar(scores, self.scale.0)?;
        let mut tanh = None;
        if let Some(cap) = self.soft_cap {
            let x = g.mul_scalar(masked, 1.0 / cap.0)?;
            let x = g.unary(UnaryOp::Tanh, x)?;
            masked = g.mul_scalar(x, cap.0)?;
            tanh = Some(x);
        }
        if self.mask {
            let mask = g.cast(inputs[3], compute)?;
            let full = [lead, &[heads, t, s]].concat();
            let mask = g.broadcast(mask, full)?;
            let mask = g.reshape(mask, [lead, &[groups, each, t, s]].concat())?;
            masked = g.add(masked, mask)?;
        }
        let mut seen = None;
        if self.causal {
            let keys = g.arange(s, DType::I32)?;
            let queries = g.arange(t, DType::I32)?;
            let mut last = g.reshape(queries, [t, 1])?;
            let mut newest = g.constant(t as i64 - 1, DType::I32)?;
            if self.past {
                let past = g.reshape(inputs[inputs.len() - 1], [1])?;
                last = g.add(last, past)?;
                newest = g.add(newest, past)?;
            }
            let mut sees = g.compare(CompareOp::Le, keys, last)?;
            let mut any = g.compare(CompareOp::Le, keys, newest)?;
            if let Some(window) = self.window.filter(|&window| window < s) {
                // The oldest query is the first one.
                let oldest = g.constant(t as i64 - 1, DType::I32)?;
                let oldest = g.sub(newest, oldest)?;
                let window = g.constant(window as i64, DType::I32)?;
                for (seen, position) in [(&mut sees, last), (&mut any, oldest)] {
                    let before = g.sub(position, window)?;
                    let is_near = g.compare(CompareOp::Lt, before, keys)?;
                    *seen = g.binary(BinaryOp::And, *seen, is_near)?;
                }
            }
            let never = g.constant(f64::NEG_INFINITY, compute)?;
            masked = g.select(sees, masked, never)?;
            let any = g.reshape(any, [s, 1])?;
            let zero = g.constant(0.0, compute)?;
            v = g.select(any, v, zero)?;
            seen = Some(any);
        }
        Ok(Scores {
            q,
            k,
            v,
            tanh,
            masked,
            seen,
        })
    }
}

/// `log Σ exp(x)` along a dimension, which is kept with size 1.
fn log_sum_exp(g: &mut Graph, x: ValueId, dim: usize) -> Result<ValueId, OpError> {
    let dtype = g.ty(x).dtype;
    let max = g.reduce(ReduceOp::Max, x, dim)?;
    // Infinite maxima would make NaN of their difference to themselves.
    let size = g.unary(UnaryOp::Abs, max)?;
    let infinity = g.constant(f64::INFINITY, dtype)?;
    let is_finite = g.compare(CompareOp::Lt, size, infinity)?;
    let zero = g.constant(0.0, dtype)?;
    let max = g.select(is_finite, max, zero)?;
    let shifted = g.sub(x, max)?;
    let exp = g.unary(UnaryOp::Exp, shifted)?;
    let sum = g.reduce(ReduceOp::Sum, exp, dim)?;
    let log = g.unary(UnaryOp::Log, sum)?;
    g.add(log, max)
}

impl Named for Attention {
    const NAME: &'static str = "attention";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let plain = Self {
            scale: 0.25.into(),
            causal: false,
            soft_cap: None,
            mask: false,
            past: false,
            window: None,
            log_sum_exp: false,
        };
        let causal = Self {
            causal: true,
            ..plain.clone()
        };
        let cached = Self {
            past: true,
            ..causal.clone()
        };
        let capped = Self {
            soft_cap: Some(5.0.into()),
            ..causal.clone()
        };
        let masked = Self {
            mask: true,
            ..plain.clone()
        };
        let windowed = |window: usize, op: &Self| Self {
            window: Some(window),
            ..op.clone()
        };
        let (near, near_in_cache) = (windowed(3, &causal), windowed(4, &cached));
        let past = || CaseOperand::new([1], DType::I32).fill(Fill::Ints(6, 7));
        for dtype in DType::FLOATS {
            // The totals of the weights as well.
            let q = CaseOperand::new([2, 4, 3, 16], dtype);
            let k = CaseOperand::new([2, 2, 11, 16], dtype);
            let inputs = [q, k.clone(), k];
            for op in [
                &plain,
                &causal,
                &capped,
                &masked,
                &cached,
                &near,
                &near_in_cache,
            ] {
                let mut inputs = inputs.to_vec();
                let mask = CaseOperand::new([3, 11], dtype).fill(Fill::Mask);
                inputs.extend(op.mask.then_some(mask));
                inputs.extend(op.past.then(past));
                let op = Self {
                    log_sum_exp: true,
                    ..op.clone()
                };
                cases.push(Case::new(op, inputs));
            }
            for cache in DType::FLOATS {
                for (heads, groups, t, s) in [(4, 2, 3, 11), (2, 2, 1, 7), (8, 1, 5, 40)] {
                    let q = CaseOperand::new([heads, t, 16], dtype);
                    let k = CaseOperand::new([groups, s, 16], cache);
                    let v = CaseOperand::new([groups, s, 12], cache);
                    for op in [&plain, &causal, &capped] {
                        cases.push(Case::new(op.clone(), [q.clone(), k.clone(), v.clone()]));
                    }
                    let mask = CaseOperand::new([t, s], dtype);
                    for mask in [mask.clone(), mask.fill(Fill::Mask)] {
                        let inputs = [q.clone(), k.clone(), v.clone(), mask];
                        cases.push(Case::new(masked.clone(), inputs));
                    }
                    if s >= t + 6 {
                        let inputs = [q, k, v, past()];
                        cases.push(Case::new(cached.clone(), inputs.clone()));
                        cases.push(Case::new(near_in_cache.clone(), inputs));
                    }
                }
            }
            // One query for each head, of widths that fill no vector.
            for cache in DType::FLOATS {
                let k = CaseOperand::new([2, 9, 20], cache);
                let inputs = [
                    CaseOperand::new([6, 1, 20], dtype),
                    k,
                    CaseOperand::new([2, 9, 70], cache),
                ];
                let with = |last| [&inputs[..], &[last]].concat();
                cases.push(Case::new(
                    masked.clone(),
                    with(CaseOperand::new([1, 9], dtype)),
                ));
                cases.push(Case::new(cached.clone(), with(past())));
            }
            // Caches of several blocks, for few queries and for many, narrow and wide.
            for (t, d, dv) in [
                (1, 64, 64),
                (3, 20, 33),
                (40, 40, 24),
                (70, 144, 16),
                (70, 64, 64),
            ] {
                let past = CaseOperand::new([1], DType::I32).fill(Fill::Ints(500, 501));
                let inputs = [
                    CaseOperand::new([4, t, d], dtype),
                    CaseOperand::new([2, 600, d], DType::F16),
                    CaseOperand::new([2, 600, dv], DType::F16),
                    past,
                ];
                cases.push(Case::new(cached.clone(), inputs.clone()));
                for window in [1, 100, 333, 1000] {
                    cases.push(Case::new(windowed(window, &cached), inputs.clone()));
                }
            }
            // The same in blocks, for one query and for many.
            for (t, d, dv) in [(1, 64, 32), (5, 32, 64), (70, 160, 96)] {
                let past = CaseOperand::new([1], DType::I32).fill(Fill::Ints(300, 301));
                let blocks = DType::Block(BlockFormat::Q8_0);
                let inputs = [
                    CaseOperand::new([4, t, d], dtype),
                    CaseOperand::new([2, 400, d], blocks),
                    CaseOperand::new([2, 400, dv], blocks),
                    past,
                ];
                cases.push(Case::new(cached.clone(), inputs.clone()));
                cases.push(Case::new(windowed(90, &cached), inputs));
            }
            for arrange in ARRANGEMENTS {
                let x = |heads: usize, t: usize| {
                    CaseOperand::new([2, heads, t, 8], dtype).arrange(arrange)
                };
                let inputs = [x(4, 3), x(2, 5), x(2, 5)];
                cases.push(Case::new(causal.clone(), inputs.clone()));
                cases.push(Case::new(windowed(2, &causal), inputs));
            }
            for op in [&plain, &causal] {
                let none = CaseOperand::new([2, 0, 8], dtype);
                let keys = CaseOperand::new([2, 5, 8], dtype);
                cases.push(Case::new(op.clone(), [none, keys.clone(), keys]));
            }
        }
        cases
    }
}
