//! The operations that are measured.

use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BinaryOp, Cast, Concat, Contiguous, Conv2d,
    Distribution, IndexSelect, LayerNorm, Linear, Pool2d, PoolKind, Random, ReduceOp, RmsNorm,
    Scan, ScanOp, Softmax, TopK, UnaryOp,
};
use rustorch_ir::{BlockFormat, DType, Graph, OpError, TensorType, ValueId};

use crate::Bound;

/// Elements of a row, for operations other than products.
const ROW: usize = 1024;
/// Rows of the tables that are looked into, and the bound of all indices.
pub(super) const TABLE: usize = 256;
/// Rows that go through products together.
const ROWS: usize = 64;
/// Heads of an attention, and the width of each.
const HEADS: [usize; 2] = [8, 64];

/// Appends one operation of a size to a graph, with its inputs.
type Build = fn(&mut Graph, usize, DType) -> Result<ValueId, OpError>;

/// An operation that is measured at several sizes.
pub(super) struct Probe {
    /// The variable of its time.
    pub(super) bound: Bound,
    /// The bytes of its operands; of a product's weights.
    pub(super) dtype: DType,
    /// Sizes, from small to large.
    sizes: &'static [usize],
    build: Build,
}

impl Probe {
    /// A graph for each size.
    pub(super) fn graphs(&self) -> impl Iterator<Item = Result<Graph, OpError>> + '_ {
        self.sizes.iter().map(|&size| {
            let mut graph = Graph::new();
            let output = (self.build)(&mut graph, size, self.dtype)?;
            graph.output(output);
            Ok(graph)
        })
    }
}

/// Rows of elementwise operations and the like: from within a cache to beyond all.
const STREAM: &[usize] = &[1, 64, 1024, 8192];
/// Rows where that would take long.
const SHORT: &[usize] = &[1, 64, 1024];
/// Inputs, and outputs, of products. The least takes as long as threads take to share it.
const SQUARE: &[usize] = &[64, 256, 1024, 2048, 4096];
const SQUARE_OF_BLOCKS: &[usize] = &[256, 1024, 2048, 4096];

/// All probes.
pub(super) fn all() -> Vec<Probe> {
    let probe = |bound, dtype, sizes, build| Probe {
        bound,
        dtype,
        sizes,
        build,
    };
    let streams: [(&'static [usize], Build); 27] = [
        (STREAM, |g, n, dtype| binary(g, n, dtype, BinaryOp::Add)),
        (SHORT, |g, n, dtype| binary(g, n, dtype, BinaryOp::Div)),
        (SHORT, |g, n, dtype| binary(g, n, dtype, BinaryOp::Pow)),
        (STREAM, |g, n, dtype| unary(g, n, dtype, UnaryOp::Neg)),
        (STREAM, |g, n, dtype| unary(g, n, dtype, UnaryOp::Exp)),
        (SHORT, |g, n, dtype| unary(g, n, dtype, UnaryOp::Log)),
        (SHORT, |g, n, dtype| unary(g, n, dtype, UnaryOp::Sin)),
        (SHORT, |g, n, dtype| unary(g, n, dtype, UnaryOp::Tanh)),
        (SHORT, |g, n, dtype| unary(g, n, dtype, UnaryOp::Erf)),
        (STREAM, |g, n, dtype| {
            activation(g, n, dtype, ActivationKind::Silu)
        }),
        (SHORT, |g, n, dtype| {
            activation(g, n, dtype, ActivationKind::Relu)
        }),
        (SHORT, |g, n, dtype| {
            activation(g, n, dtype, ActivationKind::Gelu)
        }),
        (SHORT, |g, n, dtype| {
            activation(g, n, dtype, ActivationKind::GeluTanh)
        }),
        (STREAM, |g, n, dtype| {
            let x = rows(g, n, dtype)?;
            g.reduce(ReduceOp::Sum, x, 1)
        }),
        (SHORT, |g, n, dtype| {
            let x = rows(g, n, dtype)?;
            g.reduce(ReduceOp::Sum, x, 0)
        }),
        (SHORT, |g, n, dtype| {
            let x = rows(g, n, dtype)?;
            g.arg_reduce(true, x, 1)
        }),
        (SHORT, |g, n, dtype| {
            let x = rows(g, n, dtype)?;
            g.push(
                Scan {
                    op: ScanOp::Sum,
                    dim: 1,
                },
                &[x],
            )
        }),
        (SHORT, |g, n, dtype| {
            let (k, dim, largest) = (8, 1, true);
            let x = rows(g, n, dtype)?;
            g.push(TopK { k, dim, largest }, &[x])
        }),
        (STREAM, |g, n, dtype| {
            let x = rows(g, n, dtype)?;
            g.push(Softmax { dim: 1, log: false }, &[x])
        }),
        (STREAM, |g, n, dtype| {
            let [x, weight] = [rows(g, n, dtype)?, input(g, [ROW], dtype)?];
            let eps = 1e-5.into();
            g.push(RmsNorm { eps }, &[x, weight])
        }),
        (STREAM, |g, n, dtype| {
            let [x, weight] = [rows(g, n, dtype)?, input(g, [ROW], dtype)?];
            let bias = input(g, [ROW], dtype)?;
            let eps = 1e-5.into();
            let dims = 1;
            g.push(LayerNorm { dims, eps }, &[x, weight, bias])
        }),
        (STREAM, |g, n, dtype| {
            let dim = 0;
            let [x, y] = [rows(g, n, dtype)?, rows(g, n, dtype)?];
            g.push(Concat { dim }, &[x, y])
        }),
        (STREAM, |g, n, dtype| {
            let x = rows(g, n, dtype)?;
            let turned = g.transpose(x)?;
            g.push(Contiguous, &[turned])
        }),
        (STREAM, |g, n, dtype| {
            let x = rows(g, n, dtype)?;
            g.push(Cast { dtype: DType::F16 }, &[x])
        }),
        (STREAM, |g, n, dtype| {
            let table = input(g, [TABLE, ROW], dtype)?;
            let index = input(g, [n], DType::I32)?;
            g.push(IndexSelect { dim: 0 }, &[table, index])
        }),
        (SHORT, |g, n, dtype| {
            let shape = [n, ROW].into();
            let distribution = Distribution::Normal;
            let op = Random {
                shape,
                dtype,
                distribution,
            };
            let key = input(g, [2], DType::I64)?;
            g.push(op, &[key])
        }),
        (&[8, 64, 256], |g, n, dtype| {
            let x = input(g, [1, 16, n, n], dtype)?;
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
    ];
    let mut all: Vec<Probe> = (streams.into_iter())
        .map(|(sizes, build)| probe(Bound::Bytes, DType::F32, sizes, build))
        .collect();
    all.push(probe(
        Bound::Macs,
        DType::F32,
        &[32, 128, 512, 1024, 2048],
        |g, n, dtype| {
            let [a, b] = [input(g, [n, n], dtype)?, input(g, [n, n], dtype)?];
            g.matmul(a, b)
        },
    ));
    all.push(probe(
        Bound::Bytes,
        DType::F32,
        &[128, 512, 2048],
        |g, n, dtype| {
            let [a, b] = [input(g, [1, n], dtype)?, input(g, [n, n], dtype)?];
            g.matmul(a, b)
        },
    ));
    let formats = [BlockFormat::Q4K, BlockFormat::Q6K, BlockFormat::Q8_0].map(DType::Block);
    for dtype in [DType::F32, DType::F16].into_iter().chain(formats) {
        let sizes = match dtype.is_block() {
            true => SQUARE_OF_BLOCKS,
            false => SQUARE,
        };
        all.push(probe(Bound::Bytes, dtype, sizes, |g, n, dtype| {
            linear(g, 1, n, dtype)
        }));
        all.push(probe(Bound::Macs, dtype, sizes, |g, n, dtype| {
            linear(g, ROWS, n, dtype)
        }));
    }
    // Multiplications limit many channels. Reads and writes limit few channels.
    all.push(probe(
        Bound::Macs,
        DType::F32,
        &[2, 8, 32, 64, 128],
        |g, n, dtype| convolution(g, n, 32, dtype),
    ));
    all.push(probe(
        Bound::Bytes,
        DType::F32,
        &[8, 16, 64, 256],
        |g, n, dtype| convolution(g, 4, n, dtype),
    ));
    all.push(probe(
        Bound::Macs,
        DType::F32,
        &[16, 64, 256, 512],
        |g, n, dtype| attention(g, n, n, dtype),
    ));
    for dtype in [DType::F32, DType::F16] {
        let sizes = &[64, 512, 4096];
        all.push(probe(Bound::Bytes, dtype, sizes, |g, n, dtype| {
            attention(g, 1, n, dtype)
        }));
    }
    all
}

fn input<const N: usize>(
    g: &mut Graph,
    shape: [usize; N],
    dtype: DType,
) -> Result<ValueId, OpError> {
    g.input(TensorType::new(shape, dtype))
}

fn rows(g: &mut Graph, n: usize, dtype: DType) -> Result<ValueId, OpError> {
    input(g, [n, ROW], dtype)
}

fn unary(g: &mut Graph, n: usize, dtype: DType, op: UnaryOp) -> Result<ValueId, OpError> {
    let x = rows(g, n, dtype)?;
    g.unary(op, x)
}

fn binary(g: &mut Graph, n: usize, dtype: DType, op: BinaryOp) -> Result<ValueId, OpError> {
    let [x, y] = [rows(g, n, dtype)?, rows(g, n, dtype)?];
    g.binary(op, x, y)
}

fn activation(
    g: &mut Graph,
    n: usize,
    dtype: DType,
    kind: ActivationKind,
) -> Result<ValueId, OpError> {
    let x = rows(g, n, dtype)?;
    g.push(Activation { kind }, &[x])
}

/// `rows` of activations through `n` by `n` weights.
fn linear(g: &mut Graph, rows: usize, n: usize, dtype: DType) -> Result<ValueId, OpError> {
    let [x, weight] = [input(g, [rows, n], DType::F32)?, input(g, [n, n], dtype)?];
    g.push(Linear, &[x, weight])
}

/// 3 × 3, from and to as many channels of images with such a side.
fn convolution(
    g: &mut Graph,
    channels: usize,
    side: usize,
    dtype: DType,
) -> Result<ValueId, OpError> {
    let x = input(g, [1, channels, side, side], dtype)?;
    let weight = input(g, [channels, channels, 3, 3], dtype)?;
    let op = Conv2d {
        padding: [1; 2],
        ..Conv2d::default()
    };
    g.push(op, &[x, weight])
}

/// `queries` to `keys`.
fn attention(g: &mut Graph, queries: usize, keys: usize, dtype: DType) -> Result<ValueId, OpError> {
    let [heads, width] = HEADS;
    let q = input(g, [heads, queries, width], DType::F32)?;
    let [k, v] = [
        input(g, [heads, keys, width], dtype)?,
        input(g, [heads, keys, width], dtype)?,
    ];
    let op = Attention {
        scale: 0.125.into(),
        causal: false,
        soft_cap: None,
        mask: false,
        past: false,
        window: None,
        log_sum_exp: false,
    };
    g.push(op, &[q, k, v])
}
