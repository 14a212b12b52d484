//! Operations of many kinds and sizes, to see on which device each should run.

use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BinaryOp, Contiguous, Conv2d, IndexSelect, LayerNorm,
    Linear, Pool2d, PoolKind, ReduceOp, RmsNorm, Scan, ScanOp, Softmax, UnaryOp,
};
use rustorch_ir::{BlockFormat, DType, Graph, OpError, TensorType, ValueId};

/// A graph to be run.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Its inputs are new in every run, but for weights, which come last.
    pub(super) graph: Graph,
    /// Number of operands that are not weights.
    pub(super) fresh: usize,
}

/// Appends inputs, operations and the output.
type Build = fn(&mut Graph) -> Result<ValueId, OpError>;

const F32: DType = DType::F32;
const Q4_K: DType = DType::Block(BlockFormat::Q4K);
const Q6_K: DType = DType::Block(BlockFormat::Q6K);
const Q8_0: DType = DType::Block(BlockFormat::Q8_0);

/// Each with the number of its inputs that are weights. Sizes are not those that are measured.
const CASES: [(&str, usize, Build); 30] = [
    ("add 3 K", 0, |g| added(g, 3 << 10)),
    ("add 500 K", 0, |g| added(g, 500 << 10)),
    ("add 12 M", 0, |g| added(g, 12 << 20)),
    ("exp 700 K", 0, |g| {
        let x = input(g, [700 << 10])?;
        g.unary(UnaryOp::Exp, x)
    }),
    ("gelu 3 M", 0, |g| {
        let x = input(g, [3 << 20])?;
        activation(g, ActivationKind::Gelu, x)
    }),
    ("silu(x) · y, 64 × 5632", 0, |g| {
        let [x, y] = [input(g, [64, 5632])?, input(g, [64, 5632])?];
        let x = activation(g, ActivationKind::Silu, x)?;
        g.mul(x, y)
    }),
    ("6 operations in a chain, 2 M", 0, |g| {
        let [x, y] = [input(g, [2 << 20])?, input(g, [2 << 20])?];
        let v = g.mul_scalar(x, 1.5)?;
        let v = g.add(v, y)?;
        let v = activation(g, ActivationKind::Relu, v)?;
        let v = g.add_scalar(v, -2.0)?;
        let v = g.unary(UnaryOp::Abs, v)?;
        g.mul(v, y)
    }),
    ("sum of rows, 3000 × 1500", 0, |g| {
        let x = input(g, [3000, 1500])?;
        g.reduce(ReduceOp::Sum, x, 1)
    }),
    ("sum of columns, 3000 × 1500", 0, |g| {
        let x = input(g, [3000, 1500])?;
        g.reduce(ReduceOp::Sum, x, 0)
    }),
    ("cumsum 200 × 2000", 0, |g| {
        let x = input(g, [200, 2000])?;
        g.push(
            Scan {
                op: ScanOp::Sum,
                dim: 1,
            },
            &[x],
        )
    }),
    ("softmax 40 × 700", 0, |g| {
        let x = input(g, [40, 700])?;
        g.push(Softmax { dim: 1, log: false }, &[x])
    }),
    ("softmax 5000 × 700", 0, |g| {
        let x = input(g, [5000, 700])?;
        g.push(Softmax { dim: 1, log: false }, &[x])
    }),
    ("layer norm 500 × 768", 2, |g| {
        let [x, weight, bias] = [input(g, [500, 768])?, input(g, [768])?, input(g, [768])?];
        let op = LayerNorm {
            dims: 1,
            eps: 1e-5.into(),
        };
        g.push(op, &[x, weight, bias])
    }),
    ("rms norm 1 × 4096", 1, |g| normed(g, 1)),
    ("rms norm 300 × 4096", 1, |g| normed(g, 300)),
    ("matmul 24³", 0, |g| multiplied(g, [24, 24, 24])),
    ("matmul 200³", 0, |g| multiplied(g, [200, 200, 200])),
    ("matmul 700³", 0, |g| multiplied(g, [700, 700, 700])),
    ("matmul 1000 × 128 × 2000", 0, |g| {
        multiplied(g, [1000, 128, 2000])
    }),
    ("linear 1 × 1536 × 3000, f32", 1, |g| {
        linear(g, [1, 1536, 3000], F32)
    }),
    ("linear 1 × 2048 × 5632, Q4_K", 1, |g| {
        linear(g, [1, 2048, 5632], Q4_K)
    }),
    ("linear 100 × 2048 × 2048, Q4_K", 1, |g| {
        linear(g, [100, 2048, 2048], Q4_K)
    }),
    ("linear 1 × 1024 × 3072, Q8_0", 1, |g| {
        linear(g, [1, 1024, 3072], Q8_0)
    }),
    ("linear 30 × 1024 × 3072, Q6_K", 1, |g| {
        linear(g, [30, 1024, 3072], Q6_K)
    }),
    ("conv 3 → 32, 7 × 7, 160²", 1, |g| {
        convolved(g, [3, 160], [32, 7])
    }),
    ("conv 48 → 96, 3 × 3, 40²", 1, |g| {
        convolved(g, [48, 40], [96, 3])
    }),
    ("max pool 2 × 2, 32 × 100²", 0, |g| {
        let x = input(g, [1, 32, 100, 100])?;
        let op = Pool2d {
            kind: PoolKind::Max,
            kernel: [2; 2],
            stride: [2; 2],
            padding: [0; 2],
            dilation: [1; 2],
            indices: None,
        };
        g.push(op, &[x])
    }),
    ("attention 12 heads, 200 of 64", 0, |g| {
        let shape = [12, 200, 64];
        let [q, k, v] = [input(g, shape)?, input(g, shape)?, input(g, shape)?];
        let op = Attention {
            scale: 0.125.into(),
            causal: true,
            soft_cap: None,
            mask: false,
            past: false,
            window: None,
            log_sum_exp: false,
        };
        g.push(op, &[q, k, v])
    }),
    ("transposed copy 1500 × 1500", 0, |g| {
        let x = input(g, [1500, 1500])?;
        let turned = g.transpose(x)?;
        g.push(Contiguous, &[turned])
    }),
    ("500 of 10000 rows of 768", 1, |g| {
        let index = g.input(TensorType::new([500], DType::I32))?;
        let table = input(g, [10_000, 768])?;
        g.push(IndexSelect { dim: 0 }, &[table, index])
    }),
];

/// All cases.
///
/// # Errors
/// Never fails: the graphs are valid.
pub(super) fn all() -> Result<Vec<Case>, OpError> {
    let case = |(name, weights, build): (&'static str, usize, Build)| {
        let mut graph = Graph::new();
        let output = build(&mut graph)?;
        graph.output(output);
        let fresh = graph.inputs().len() - weights;
        Ok(Case { name, graph, fresh })
    };
    CASES.into_iter().map(case).collect()
}

fn input<const N: usize>(g: &mut Graph, shape: [usize; N]) -> Result<ValueId, OpError> {
    g.input(TensorType::new(shape, F32))
}

fn added(g: &mut Graph, n: usize) -> Result<ValueId, OpError> {
    let [x, y] = [input(g, [n])?, input(g, [n])?];
    g.binary(BinaryOp::Add, x, y)
}

fn activation(g: &mut Graph, kind: ActivationKind, x: ValueId) -> Result<ValueId, OpError> {
    g.push(Activation { kind }, &[x])
}

fn normed(g: &mut Graph, rows: usize) -> Result<ValueId, OpError> {
    let [x, weight] = [input(g, [rows, 4096])?, input(g, [4096])?];
    g.push(RmsNorm { eps: 1e-5.into() }, &[x, weight])
}

fn multiplied(g: &mut Graph, [m, k, n]: [usize; 3]) -> Result<ValueId, OpError> {
    let [a, b] = [input(g, [m, k])?, input(g, [k, n])?];
    g.matmul(a, b)
}

fn linear(g: &mut Graph, [m, k, n]: [usize; 3], dtype: DType) -> Result<ValueId, OpError> {
    let x = input(g, [m, k])?;
    let weight = g.input(TensorType::new([n, k], dtype))?;
    g.push(Linear, &[x, weight])
}

fn convolved(
    g: &mut Graph,
    [channels, size]: [usize; 2],
    [outputs, kernel]: [usize; 2],
) -> Result<ValueId, OpError> {
    let x = input(g, [1, channels, size, size])?;
    let weight = input(g, [outputs, channels, kernel, kernel])?;
    g.push(Conv2d::default(), &[x, weight])
}
