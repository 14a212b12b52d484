use smallvec::{SmallVec, smallvec};

use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::ops::{Attention, Rope, RopeLayout, RopeScaling, UpdateSlice};
use crate::passes::{Finder, Match};
use crate::{
    BlockFormat, Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, Signature, ValueId,
};

/// [`Attention`] of new tokens to a cache and to themselves: queries and keys are rotated by
/// [`Rope`], keys and values written to the cache by [`UpdateSlice`], and the whole is attended to.
///
/// Operands: `q` `[…, h, t, d]`, `k` `[…, g, t, d]` and `v` `[…, g, t, dv]` before rotation; `keys`
/// `[…, g, s, d]` and `values` `[…, g, s, dv]`, states; `positions` `i32` `[t]`; `factors` `f32`
/// where `factors` says so; `start`, one `i32`: where keys and values are written, and the
/// attention's `past` if it has one; then the `mask` if the attention has one. Results: the
/// attention's result, the keys and the values, the latter two over their operands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CachedAttention {
    /// The rotation.
    pub rope: Rope,
    /// Whether there are factors for its frequencies.
    pub factors: bool,
    /// The attention.
    pub attention: Attention,
}

impl CachedAttention {
    /// The operand of factors.
    pub fn factors(&self) -> Option<usize> {
        self.factors.then_some(6)
    }

    /// The operand that says where the cache is written.
    pub fn start(&self) -> usize {
        6 + usize::from(self.factors)
    }

    /// The operand of the mask.
    pub fn mask(&self) -> Option<usize> {
        self.attention.mask.then_some(self.start() + 1)
    }

    /// The operand of the position of the first query among the keys.
    pub fn past(&self) -> Option<usize> {
        self.attention.past.then(|| self.start())
    }

    fn count(&self) -> usize {
        self.start() + 1 + usize::from(self.attention.mask)
    }

    /// The dimension of the cache that positions are counted along, from the rank of `keys`.
    fn dim(rank: usize) -> UpdateSlice {
        UpdateSlice { dim: rank - 2 }
    }

    /// Operands of the rotation of `x`.
    fn rotated<T: Copy>(&self, x: T, inputs: &[T]) -> SmallVec<[T; 3]> {
        let factors = self.factors().map(|i| inputs[i]);
        [x, inputs[5]].into_iter().chain(factors).collect()
    }

    /// Operands of the attention.
    fn attended<T: Copy>(&self, qkv: [T; 3], inputs: &[T]) -> SmallVec<[T; 5]> {
        let others = [self.mask(), self.past()];
        let others = others.into_iter().flatten().map(|i| inputs[i]);
        qkv.into_iter().chain(others).collect()
    }
}

impl OpDef for CachedAttention {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn overwrites(&self, result: usize) -> Option<usize> {
        [None, Some(3), Some(4)][result]
    }

    fn source(&self, result: usize) -> usize {
        // Keys and values stand where their results do.
        result
    }

    fn macs(&self, s: &Signature) -> usize {
        let attended = self.attended([s.inputs[0], s.inputs[3], s.inputs[4]], s.inputs);
        self.attention.macs(&Signature {
            op: s.op,
            inputs: &attended,
            outputs: &s.outputs[..1],
        })
    }

    fn written(&self, s: &Signature) -> usize {
        s.output().bytes() + s.inputs[1].bytes() + s.inputs[2].bytes()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let count = self.count();
        let expected = format_args!("{count} operands");
        require(Self::NAME, inputs.len() == count, expected, inputs.len())?;
        let (q, k, v, keys, values) = (inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]);
        let ranks = keys.rank() >= 3 && values.rank() == keys.rank();
        require(Self::NAME, ranks, "a cache [.., g, s, d]", keys)?;
        let named = |e: OpError| OpError {
            op: Self::NAME,
            ..e
        };
        for x in [q, k] {
            self.rope.infer(&self.rotated(x, inputs)).map_err(named)?;
        }
        for (state, x) in [(keys, k), (values, v)] {
            let update = Self::dim(state.rank());
            update
                .infer(&[state, x, inputs[self.start()]])
                .map_err(named)?;
        }
        let legal = !self.attention.log_sum_exp;
        require(
            Self::NAME,
            legal,
            "attention without log_sum_exp",
            "one with it",
        )?;
        let attended = self.attended([q, keys, values], inputs);
        let mut results = self.attention.infer(&attended).map_err(named)?;
        results.extend([keys.clone(), values.clone()]);
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        use OpKind::{Attention, Rope, UpdateSlice};
        vec![Rope, Rope, UpdateSlice, UpdateSlice, Attention]
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let q = g.push(self.rope.clone(), &self.rotated(inputs[0], inputs))?;
        let k = g.push(self.rope.clone(), &self.rotated(inputs[1], inputs))?;
        let start = inputs[self.start()];
        let update = Self::dim(g.ty(inputs[3]).rank());
        let keys = g.push(update.clone(), &[inputs[3], k, start])?;
        let values = g.push(update, &[inputs[4], inputs[2], start])?;
        let attended = self.attended([q, keys, values], inputs);
        let y = g.push(self.attention.clone(), &attended)?;
        Ok(smallvec![y, keys, values])
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(Self::NAME, "it writes over its cache"))
    }
}

/// Attention, found by the first of its rotations, with all that comes before it.
pub(crate) fn cached_attention(f: &Finder, at: usize) -> Vec<Match> {
    find(f, at).into_iter().collect()
}

fn find(f: &Finder, at: usize) -> Option<Match> {
    let Op::Rope(rope) = f.op(at) else {
        return None;
    };
    let made_by = |value, is: fn(&Op) -> bool| f.producer(value).filter(|&n| is(f.op(n)));
    let is_rope = |op: &Op| matches!(op, Op::Rope(_));
    let is_update = |op: &Op| matches!(op, Op::UpdateSlice(_));
    // The attention reads the rotated queries. The write to the cache reads the rotated keys.
    let mut reader = f.only_reader(f.result(at))?;
    if is_update(f.op(reader)) {
        let attention = f.readers(f.result(reader)).iter();
        reader = *attention
            .clone()
            .find(|&&n| matches!(f.op(n), Op::Attention(_)))?;
    }
    let Op::Attention(attention) = f.op(reader) else {
        return None;
    };
    let attended = f.operands(reader);
    let rope_q = made_by(attended[0], is_rope)?;
    let [update_k, update_v] = [1, 2].map(|i| made_by(attended[i], is_update));
    let (update_k, update_v) = (update_k?, update_v?);
    let rope_k = made_by(f.operands(update_k)[1], is_rope)?;
    let (q, k) = (f.operands(rope_q), f.operands(rope_k));
    let (keys, values) = (f.operands(update_k), f.operands(update_v));
    let updates = [update_k, update_v].map(|n| f.op(n).clone());
    let dim = CachedAttention::dim(f.ty(keys[0]).rank());
    let fits = [rope_q, rope_k]
        .iter()
        .all(|&n| *f.op(n) == Op::Rope(rope.clone()))
        && !attention.log_sum_exp
        && q[1..] == k[1..]
        && keys[2] == values[2]
        && (!attention.past || attended.last() == Some(&keys[2]))
        && updates
            .iter()
            .all(|update| *update == Op::UpdateSlice(dim.clone()));
    if !fits {
        return None;
    }
    let op = CachedAttention {
        rope: rope.clone(),
        factors: q.len() == 3,
        attention: attention.clone(),
    };
    let inputs = [q[0], k[0], values[1], keys[0], values[0]].into_iter();
    let inputs = inputs.chain(q[1..].iter().copied()).chain([keys[2]]);
    let mask = attended.get(3).filter(|_| attention.mask);
    let inputs = inputs.chain(mask.copied()).collect();
    Some(Match {
        op: op.into(),
        inputs,
        nodes: smallvec![rope_q, rope_k, update_k, update_v, reader],
        results: smallvec![f.result(reader), f.result(update_k), f.result(update_v)],
    })
}

impl Named for CachedAttention {
    const NAME: &'static str = "cached_attention";

    fn cases() -> Vec<Case> {
        let op = |layout, factors, mask| Self {
            rope: Rope {
                dims: 16,
                layout,
                base: 1e4.into(),
                scaling: RopeScaling::Linear { factor: 1.0.into() },
            },
            factors,
            attention: Attention {
                scale: 0.25.into(),
                causal: true,
                soft_cap: None,
                mask,
                past: true,
                window: None,
                log_sum_exp: false,
            },
        };
        let at = |past: i64| CaseOperand::new([1], DType::I32).fill(Fill::Ints(past, past + 1));
        let case = |op: &Self, x: DType, cache: DType, [h, g, t, s, d, dv]: [usize; 6], past| {
            let positions = CaseOperand::new([t], DType::I32).fill(Fill::Ints(0, s as i64));
            let factors = CaseOperand::new([8], DType::F32).fill(Fill::Uniform(0.5, 2.0));
            let mut inputs = vec![
                CaseOperand::new([h, t, d], x),
                CaseOperand::new([g, t, d], x),
                CaseOperand::new([g, t, dv], x),
                CaseOperand::new([g, s, d], cache),
                CaseOperand::new([g, s, dv], cache),
                positions,
            ];
            inputs.extend(op.factors.then_some(factors));
            inputs.push(at(past));
            let mask = CaseOperand::new([t, s], x).fill(Fill::Mask);
            inputs.extend(op.attention.mask.then_some(mask));
            Case::new(op.clone(), inputs)
        };
        let mut cases = Vec::new();
        let blocks = DType::Block(BlockFormat::Q8_0);
        for layout in [RopeLayout::Halves, RopeLayout::Interleaved] {
            for factors in [false, true] {
                let op = op(layout, factors, false);
                for cache in [DType::F32, DType::F16, DType::BF16] {
                    for sizes in [
                        [4, 2, 1, 40, 32, 32],
                        [8, 2, 1, 600, 64, 64],
                        [2, 2, 5, 33, 16, 24],
                    ] {
                        let past = sizes[3] as i64 - 20;
                        cases.push(case(&op, DType::F32, cache, sizes, past));
                    }
                }
                for sizes in [[4, 2, 1, 64, 64, 32], [4, 4, 3, 64, 32, 64]] {
                    cases.push(case(&op, DType::F32, blocks, sizes, 30));
                }
            }
        }
        let halves = op(RopeLayout::Halves, false, false);
        for dtype in [DType::F64, DType::F16, DType::BF16] {
            cases.push(case(&halves, dtype, DType::F16, [4, 2, 1, 40, 32, 32], 7));
        }
        let mut windowed = halves.clone();
        windowed.attention.window = Some(50);
        for sizes in [[8, 2, 1, 600, 64, 64], [2, 2, 5, 83, 16, 24]] {
            let past = sizes[3] as i64 - 20;
            cases.push(case(&windowed, DType::F32, DType::F16, sizes, past));
        }
        let masked = op(RopeLayout::Halves, true, true);
        cases.push(case(
            &masked,
            DType::F32,
            DType::F16,
            [4, 2, 2, 40, 32, 32],
            7,
        ));
        cases
    }
}
