use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::ops::{Attention, Concat, UpdateSlice};
use crate::{BlockFormat, Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// [`Attention`] of one token of each of several sequences to the sequence's own cache and to itself. Keys and
/// values of the token are written to the cache by [`UpdateSlice`] first.
///
/// Operands: `q` `[h, n, d]`, `k` `[g, n, d]` and `v` `[g, n, dv]` of `n` tokens; `starts` `i32` `[n]`, where each
/// is written, and the attention's `past`; then, for each sequence, `keys` `[g, s, d]` and `values` `[g, s, dv]`,
/// states. Results: the attention's results `[n, h, dv]`, then the keys and values over their operands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RaggedAttention {
    /// The attention of each token, causal, with `past`.
    pub attention: Attention,
}

impl RaggedAttention {
    /// The operand that is the keys of the first sequence. Its values follow.
    pub const CACHES: usize = 4;

    /// The dimension of the cache that positions are counted along.
    const UPDATE: UpdateSlice = UpdateSlice { dim: 1 };
}

/// One token of a type `[…, n, …]`.
fn token(ty: &TensorType, dim: usize) -> TensorType {
    TensorType::new(ty.shape.clone().with_dim(dim, 1), ty.dtype)
}

impl OpDef for RaggedAttention {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn overwrites(&self, result: usize) -> Option<usize> {
        (result > 0).then(|| Self::CACHES + result - 1)
    }

    fn source(&self, result: usize) -> usize {
        // Keys have odd numbers.
        2 - result % 2
    }

    fn macs(&self, s: &Signature) -> usize {
        let keys = s.inputs[Self::CACHES].shape[1];
        let seen = self
            .attention
            .window
            .map_or(keys, |window| window.min(keys));
        seen * (s.inputs[0].shape.elements() + s.output().shape.elements())
    }

    fn written(&self, s: &Signature) -> usize {
        s.output().bytes() + s.inputs[1].bytes() + s.inputs[2].bytes()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let expected = "queries, keys, values, starts, and a cache for each token";
        let count = inputs.len();
        require(Self::NAME, count > Self::CACHES, expected, count)?;
        let (tokens, caches) = inputs.split_at(Self::CACHES);
        let (q, k, v, starts) = (tokens[0], tokens[1], tokens[2], tokens[3]);
        let ranks = [q, k, v].iter().all(|ty| ty.rank() == 3) && starts.rank() == 1;
        let got = format_args!("{q}, {k}, {v} and {starts}");
        let expected_ranks = "q [h, n, d], k [g, n, d], v [g, n, dv] and starts [n]";
        require(Self::NAME, ranks, expected_ranks, got)?;
        let n = starts.shape[0];
        let sizes = [q, k, v].iter().all(|ty| ty.shape[1] == n) && caches.len() == 2 * n;
        require(
            Self::NAME,
            sizes,
            expected,
            format_args!("{got}, {count} operands"),
        )?;
        let plain = self.attention.past && !self.attention.mask && !self.attention.log_sum_exp;
        let expected = "attention with past, without mask and log_sum_exp";
        require(Self::NAME, plain, expected, "another one")?;
        let named = |e: OpError| OpError {
            op: Self::NAME,
            ..e
        };
        let [q, k, v] = [q, k, v].map(|ty| token(ty, 1));
        let start = token(starts, 0);
        let mut results = ResultTypes::new();
        for cache in caches.chunks_exact(2) {
            for (&state, x) in cache.iter().zip([&k, &v]) {
                Self::UPDATE.infer(&[state, x, &start]).map_err(named)?;
            }
            let attended = [&q, cache[0], cache[1], &start];
            let y = self
                .attention
                .infer(&attended)
                .map_err(named)?
                .swap_remove(0);
            if results.is_empty() {
                results.push(TensorType::new([n, y.shape[0], y.shape[2]], y.dtype));
            }
            let width = (y.shape[2], results[0].shape[2]);
            require(
                Self::NAME,
                width.0 == width.1,
                "values of one width",
                cache[1],
            )?;
            results.extend(cache.iter().map(|&state| state.clone()));
        }
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let (tokens, caches) = inputs.split_at(Self::CACHES);
        let mut results: Results = smallvec![];
        let mut rows = Vec::with_capacity(caches.len() / 2);
        for (i, cache) in caches.chunks_exact(2).enumerate() {
            let start = g.slice(tokens[3], 0, i, i + 1)?;
            let mut row = [tokens[0]; 3];
            for (row, &all) in row.iter_mut().zip(tokens) {
                *row = g.slice(all, 1, i, i + 1)?;
            }
            let [q, k, v] = row;
            let keys = g.push(Self::UPDATE, &[cache[0], k, start])?;
            let values = g.push(Self::UPDATE, &[cache[1], v, start])?;
            let y = g.push(self.attention.clone(), &[q, keys, values, start])?;
            rows.push(g.permute(y, &[1, 0, 2])?);
            results.extend([keys, values]);
        }
        results.insert(0, g.push(Concat { dim: 0 }, &rows)?);
        Ok(results)
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(Self::NAME, "it writes over its caches"))
    }
}

impl Named for RaggedAttention {
    const NAME: &'static str = "ragged_attention";

    fn cases() -> Vec<Case> {
        let op = |window| Self {
            attention: Attention {
                scale: 0.25.into(),
                causal: true,
                soft_cap: None,
                mask: false,
                past: true,
                window,
                log_sum_exp: false,
            },
        };
        let case = |window, x: DType, cache: DType, n: usize, [h, g, s, d, dv]: [usize; 5]| {
            let starts = CaseOperand::new([n], DType::I32).fill(Fill::Ints(0, s as i64));
            let mut inputs = vec![
                CaseOperand::new([h, n, d], x),
                CaseOperand::new([g, n, d], x),
                CaseOperand::new([g, n, dv], x),
                starts,
            ];
            for _ in 0..n {
                inputs.push(CaseOperand::new([g, s, d], cache));
                inputs.push(CaseOperand::new([g, s, dv], cache));
            }
            Case::new(op(window), inputs)
        };
        let mut cases = Vec::new();
        for cache in [DType::F32, DType::F16, DType::BF16] {
            for (n, sizes) in [
                (1, [4, 2, 40, 32, 32]),
                (2, [8, 2, 600, 64, 64]),
                (3, [4, 4, 33, 128, 128]),
                (5, [2, 1, 17, 16, 24]),
            ] {
                cases.push(case(None, DType::F32, cache, n, sizes));
            }
        }
        cases.push(case(
            Some(50),
            DType::F32,
            DType::F16,
            3,
            [8, 2, 700, 64, 64],
        ));
        cases.push(case(None, DType::F16, DType::F16, 2, [4, 2, 40, 64, 64]));
        let blocks = DType::Block(BlockFormat::Q8_0);
        cases.push(case(None, DType::F32, blocks, 2, [4, 2, 64, 64, 32]));
        cases
    }
}
