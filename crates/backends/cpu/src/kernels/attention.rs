//! Attention with grouped queries: for each group of heads and block of queries, scores by
//! matrix product, softmax, and a second product with the values. One query for each head
//! goes by `single`.

mod single;

use std::cell::RefCell;

use gemm::Parallelism;
use half::{bf16, f16};
use rustorch_ir::ops::Attention;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use self::single::Single;
use super::softmax::InPlace;
use crate::element::Element;
use crate::kernel::{Args, Misuse, SharedMut};
use crate::launch::Launch;
use crate::pool::Pool;
use crate::qmatmul::Float;
use crate::qmatmul::level::Level;
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Attention,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

/// Query rows that are worked on together: their scores stay in the cache.
const BLOCK: usize = 64;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Scores of single queries: as many as the largest cache so far has room for.
    static SCORES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// A thread's working memory: as large as its largest block so far.
#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

fn accepts(s: &Signature) -> bool {
    let cache = s.inputs[1].dtype;
    s.output.dtype == DType::F32 && matches!(cache, DType::F32 | DType::F16 | DType::BF16)
}

/// Sizes of one call.
struct Sizes {
    /// Query heads that share a key head.
    each: usize,
    t: usize,
    s: usize,
    d: usize,
    dv: usize,
    past: usize,
}

impl Sizes {
    /// Keys that query `t` may see.
    fn visible(&self, op: &Attention, t: usize) -> usize {
        if op.causal {
            (self.past + t + 1).min(self.s)
        } else {
            self.s
        }
    }
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Attention(op) = args.op else {
        return Err(Misuse("not an attention".to_owned()));
    };
    let [q, k, v] = [&args.inputs[0], &args.inputs[1], &args.inputs[2]];
    let r = q.shape().len();
    let past = match args.inputs.last().filter(|_| op.past) {
        Some(past) => {
            let past = past.data::<i32>()[0];
            usize::try_from(past).map_err(|_| Misuse(format!("past is {past}, less than 0")))?
        }
        None => 0,
    };
    let sizes = Sizes {
        each: q.shape()[r - 3] / k.shape()[r - 3],
        t: q.shape()[r - 2],
        s: k.shape()[r - 2],
        d: q.shape()[r - 1],
        dv: v.shape()[r - 1],
        past,
    };
    if op.past && past + sizes.t > sizes.s {
        let got = format!("{past} past and {} new tokens", sizes.t);
        return Err(Misuse(format!("{got} in a cache of {}", sizes.s)));
    }
    let groups: usize = k.shape()[..r - 2].iter().product();
    let rows = sizes.each * sizes.t;
    if rows == 0 || groups == 0 {
        return Ok(());
    }
    let mask = args
        .inputs
        .get(3)
        .filter(|_| op.mask)
        .map(|m| expand_mask(m, &args));
    let queries: &[f32] = q.data();
    if sizes.t == 1 && sizes.d > 0 {
        let out = args.output.data::<f32>();
        let mask = mask.as_deref();
        match k.dtype() {
            DType::F16 => one_by_one::<f16>(args.pool, op, &sizes, [k, v], queries, mask, out),
            DType::BF16 => one_by_one::<bf16>(args.pool, op, &sizes, [k, v], queries, mask, out),
            _ => one_by_one::<f32>(args.pool, op, &sizes, [k, v], queries, mask, out),
        }
        return Ok(());
    }
    let blocks = rows.div_ceil(BLOCK);
    let out = SharedMut::new(args.output.data::<f32>());
    args.pool.run(groups * blocks, &|task| {
        let (group, first) = (task / blocks, task % blocks * BLOCK);
        let count = BLOCK.min(rows - first);
        let at = group * rows + first;
        // SAFETY: each task writes rows of its own.
        let out = unsafe { out.range(at * sizes.dv, count * sizes.dv) };
        let block = Block {
            op,
            sizes: &sizes,
            queries: &queries[at * sizes.d..][..count * sizes.d],
            mask: mask
                .as_deref()
                .map(|m| &m[at * sizes.s..][..count * sizes.s]),
            first,
        };
        SCRATCH.with_borrow_mut(|scratch| block.run(k, v, group, scratch, out));
    });
    Ok(())
}

/// Attention of one query for each head.
fn one_by_one<T: Float>(
    pool: &Pool,
    op: &Attention,
    sizes: &Sizes,
    [k, v]: [&View; 2],
    queries: &[f32],
    mask: Option<&[f32]>,
    out: &mut [f32],
) {
    let Sizes { each, s, d, dv, .. } = *sizes;
    let (groups, seen) = (queries.len() / (each * d), sizes.visible(op, 0));
    let (keys, values): (&[T], &[T]) = (k.data(), v.data());
    SCORES.with_borrow_mut(|scores| {
        if scores.len() < groups * each * s {
            scores.resize(groups * each * s, 0.0);
        }
        let (scores, out) = (SharedMut::new(scores), SharedMut::new(out));
        pool.run(groups, &|group| {
            let rows = group * each;
            // SAFETY: each group has rows of its own.
            let (scores, out) = unsafe {
                (
                    scores.range(rows * s, each * s),
                    out.range(rows * dv, each * dv),
                )
            };
            Level::current().run(Single {
                queries: &queries[rows * d..][..each * d],
                width: d,
                keys: &keys[group * s * d..][..seen * d],
                values: &values[group * s * dv..][..seen * dv],
                scale: op.scale.0 as f32,
                soft_cap: op.soft_cap.map(|cap| cap.0 as f32),
                mask: mask.map(|mask| &mask[rows * s..][..each * s]),
                scores,
                out,
            });
        });
    });
}

/// The mask for each row of scores.
fn expand_mask(mask: &View, args: &Args) -> Vec<f32> {
    let q = args.inputs[0].shape();
    let s = args.inputs[1].shape()[q.len() - 2];
    let scores = rustorch_ir::Shape::from(q).with_dim(q.len() - 1, s);
    let layout = mask.layout.broadcast_to(&scores);
    let data: &[f32] = mask.data();
    layout
        .positions()
        .map(|at| data[at - layout.offset])
        .collect()
}

/// Some query rows of one group of heads.
struct Block<'a> {
    op: &'a Attention,
    sizes: &'a Sizes,
    queries: &'a [f32],
    mask: Option<&'a [f32]>,
    /// First row within the group: row r is query r % t of head r / t.
    first: usize,
}

impl Block<'_> {
    fn run(&self, k: &View, v: &View, group: usize, scratch: &mut Scratch, out: &mut [f32]) {
        let Sizes { t, s, d, dv, .. } = *self.sizes;
        let rows = self.queries.len() / d.max(1);
        let seen = (0..rows)
            .map(|row| self.sizes.visible(self.op, (self.first + row) % t))
            .max()
            .unwrap_or(0);
        let Scratch {
            scores,
            keys,
            values,
        } = scratch;
        let keys = floats(k, group * s * d, seen * d, keys);
        let values = floats(v, group * s * dv, seen * dv, values);
        scores.resize(rows * seen, 0.0);
        // scores = queries · keysᵀ
        product(
            scores,
            [rows, d, seen],
            self.queries,
            keys,
            [1, d],
            self.op.scale.0 as f32,
        );
        for (row, scores) in scores.chunks_exact_mut(seen).enumerate() {
            let visible = self.sizes.visible(self.op, (self.first + row) % t);
            if let Some(cap) = self.op.soft_cap {
                let cap = cap.0 as f32;
                scores.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
            }
            if let Some(mask) = self.mask {
                let mask = &mask[row * s..];
                scores.iter_mut().zip(mask).for_each(|(x, m)| *x += m);
            }
            scores[visible..].fill(0.0);
            Level::current().run(InPlace(&mut scores[..visible]));
        }
        // out = scores · values
        product(out, [rows, seen, dv], scores, values, [dv, 1], 1.0);
    }
}

/// `len` elements of a cache from `start` on, in single precision.
fn floats<'a>(cache: &View<'a>, start: usize, len: usize, scratch: &'a mut Vec<f32>) -> &'a [f32] {
    fn part<'a, T: Element>(cache: &View<'a>, start: usize, len: usize) -> &'a [T] {
        &cache.data()[start..][..len]
    }
    match cache.dtype() {
        DType::F16 => f16::widen(part(cache, start, len), scratch),
        DType::BF16 => bf16::widen(part(cache, start, len), scratch),
        _ => part(cache, start, len),
    }
}

/// `out [m, n] = scale · a [m, k] · b`, where `b`'s element `(i, j)` is at
/// `i · strides[0] + j · strides[1]`.
fn product(
    out: &mut [f32],
    [m, k, n]: [usize; 3],
    a: &[f32],
    b: &[f32],
    [b_row, b_column]: [usize; 2],
    scale: f32,
) {
    assert!(out.len() >= m * n && a.len() >= m * k && b.len() >= k * n);
    // SAFETY: `a` and `out` are row-major of the sizes just checked; the strides reach all
    // of `b`'s k · n elements and no more: they are [1, k] or [n, 1].
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            b_column as isize,
            b_row as isize,
            0.0,
            scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
