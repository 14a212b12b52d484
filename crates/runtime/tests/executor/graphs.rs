//! Thirty graphs as programs have them: parts of transformers, perceptrons and convolutional
//! networks, chains, reductions, and mixtures of those.

use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BinaryOp, Conv2d, IndexSelect, LayerNorm, Linear,
    Pool2d, PoolKind, ReduceOp, RmsNorm, Scan, ScanOp, Softmax, UnaryOp,
};
use rustorch_ir::{DType, Graph, TensorType, ValueId};

/// A graph to be planned.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Weights are its last inputs.
    pub(crate) graph: Graph,
    /// How many of its inputs are not weights: new in every run.
    pub(crate) fresh: usize,
}

/// Appends inputs and operations; the result is the output.
type Build = fn(&mut Graph) -> ValueId;

/// Each with the number of its inputs that are new in every run.
const CASES: [(&str, usize, Build); 30] = [
    ("block, 1 row of 256", 1, |g| block(g, [1, 256, 4])),
    ("block, 1 row of 1024", 1, |g| block(g, [1, 1024, 8])),
    ("block, 16 rows of 256", 1, |g| block(g, [16, 256, 4])),
    ("block, 64 rows of 512", 1, |g| block(g, [64, 512, 8])),
    ("block, 256 rows of 384", 1, |g| block(g, [256, 384, 6])),
    ("encoder, 32 rows of 128", 1, |g| encoder(g, [32, 128, 2])),
    ("encoder, 128 rows of 256", 1, |g| encoder(g, [128, 256, 4])),
    ("encoder, 200 rows of 512", 1, |g| encoder(g, [200, 512, 8])),
    ("perceptron, 1 × 64, 3 layers", 1, |g| {
        perceptron(g, [1, 64, 3])
    }),
    ("perceptron, 8 × 784, 2 layers", 1, |g| {
        perceptron(g, [8, 784, 2])
    }),
    ("perceptron, 64 × 512, 4 layers", 1, |g| {
        perceptron(g, [64, 512, 4])
    }),
    ("perceptron, 512 × 256, 8 layers", 1, |g| {
        perceptron(g, [512, 256, 8])
    }),
    ("perceptron, 1 × 2048, 2 layers", 1, |g| {
        perceptron(g, [1, 2048, 2])
    }),
    ("convolutions, 8 of 32²", 1, |g| {
        convolutions(g, [8, 32, 2])
    }),
    ("convolutions, 16 of 64²", 1, |g| {
        convolutions(g, [16, 64, 3])
    }),
    ("convolutions, 32 of 56²", 1, |g| {
        convolutions(g, [32, 56, 2])
    }),
    ("convolutions, 64 of 28²", 1, |g| {
        convolutions(g, [64, 28, 2])
    }),
    ("convolutions, 3 of 160²", 1, |g| {
        convolutions(g, [3, 160, 2])
    }),
    ("chain of 6, 4 K", 2, |g| chain(g, 4 << 10, 6)),
    ("chain of 10, 256 K", 2, |g| chain(g, 256 << 10, 10)),
    ("chain of 5, 2 M", 2, |g| chain(g, 2 << 20, 5)),
    ("chain of 40, 64 K", 2, |g| chain(g, 64 << 10, 40)),
    ("variance of rows, 300 × 4000", 1, |g| {
        let x = input(g, [300, 4000]);
        let square = g.mul(x, x).unwrap();
        let square = g.mean(square, 1).unwrap();
        let mean = g.mean(x, 1).unwrap();
        let mean = g.mul(mean, mean).unwrap();
        g.sub(square, mean).unwrap()
    }),
    ("sums of softmax, 2000 × 500", 1, |g| {
        let x = input(g, [2000, 500]);
        let y = g.push(Softmax { dim: 1, log: true }, &[x]).unwrap();
        let y = g.mul(y, x).unwrap();
        g.reduce(ReduceOp::Sum, y, 1).unwrap()
    }),
    ("norms behind each other, 64 × 1024", 1, |g| {
        let x = input(g, [64, 1024]);
        (0..6).fold(x, |x, _| {
            let y = g.push(RmsNorm { eps: 1e-5.into() }, &[x]).unwrap();
            g.add(x, y).unwrap()
        })
    }),
    ("largest of sums, 1000 × 1000", 1, |g| {
        let x = input(g, [1000, 1000]);
        let y = g.unary(UnaryOp::Exp, x).unwrap();
        let y = g.reduce(ReduceOp::Sum, y, 0).unwrap();
        g.reduce(ReduceOp::Max, y, 0).unwrap()
    }),
    ("rows of a table, classified", 1, |g| {
        let index = g.input(TensorType::new([64], DType::I32)).unwrap();
        let [table, head] = [input(g, [5000, 256]), input(g, [1000, 256])];
        let rows = IndexSelect { dim: 0 };
        let x = g.push(rows, &[table, index]).unwrap();
        let y = g.push(Linear, &[x, head]).unwrap();
        g.push(Softmax { dim: 1, log: false }, &[y]).unwrap()
    }),
    ("product, scan and product", 1, |g| {
        let x = input(g, [400, 400]);
        let [a, b] = [input(g, [400, 400]), input(g, [400, 400])];
        let y = g.matmul(x, a).unwrap();
        let scan = Scan {
            op: ScanOp::Sum,
            dim: 0,
        };
        let y = g.push(scan, &[y]).unwrap();
        g.matmul(y, b).unwrap()
    }),
    ("two branches", 1, |g| {
        let x = input(g, [512, 512]);
        let a = input(g, [512, 512]);
        let left = g.matmul(x, a).unwrap();
        let left = activation(g, ActivationKind::Gelu, left);
        let right = (0..8).fold(x, |y, _| g.unary(UnaryOp::Sin, y).unwrap());
        let right = g.push(Softmax { dim: 1, log: false }, &[right]).unwrap();
        g.add(left, right).unwrap()
    }),
    ("image, rows and a product", 1, |g| {
        let x = input(g, [1, 16, 48, 48]);
        let [kernel, head] = [input(g, [16, 16, 3, 3]), input(g, [100, 48 * 48])];
        let y = convolved(g, x, kernel);
        let y = g.reshape(y, [16, 48 * 48]).unwrap();
        let y = g.push(Softmax { dim: 1, log: false }, &[y]).unwrap();
        g.push(Linear, &[y, head]).unwrap()
    }),
];

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    let case = |(name, fresh, build): (&'static str, usize, Build)| {
        let mut graph = Graph::new();
        let output = build(&mut graph);
        graph.output(output);
        Case { name, graph, fresh }
    };
    CASES.into_iter().map(case).collect()
}

fn input<const N: usize>(g: &mut Graph, shape: [usize; N]) -> ValueId {
    g.input(TensorType::new(shape, DType::F32)).unwrap()
}

fn activation(g: &mut Graph, kind: ActivationKind, x: ValueId) -> ValueId {
    g.push(Activation { kind }, &[x]).unwrap()
}

/// Attention of `rows` among themselves, with weights of queries, keys, values and results.
fn attention(
    g: &mut Graph,
    x: ValueId,
    weights: [ValueId; 4],
    [rows, width, heads]: [usize; 3],
    causal: bool,
) -> ValueId {
    let [query, key, value, result] = weights;
    let [q, k, v] = [query, key, value].map(|weight| {
        let y = g.push(Linear, &[x, weight]).unwrap();
        let y = g.reshape(y, [rows, heads, width / heads]).unwrap();
        g.permute(y, &[1, 0, 2]).unwrap()
    });
    let op = Attention {
        scale: 0.125.into(),
        causal,
        soft_cap: None,
        mask: false,
        past: false,
        window: None,
        log_sum_exp: false,
    };
    let y = g.push(op, &[q, k, v]).unwrap();
    let y = g.permute(y, &[1, 0, 2]).unwrap();
    let y = g.reshape(y, [rows, width]).unwrap();
    g.push(Linear, &[y, result]).unwrap()
}

/// A decoder's block: norms, attention, gated layers.
fn block(g: &mut Graph, size: [usize; 3]) -> ValueId {
    let [rows, width, _] = size;
    let x = input(g, [rows, width]);
    let norms = [input(g, [width]), input(g, [width])];
    let weights = [(); 4].map(|()| input(g, [width, width]));
    let [up, gate] = [(); 2].map(|()| input(g, [4 * width, width]));
    let down = input(g, [width, 4 * width]);
    let eps = 1e-5.into();
    let y = g.push(RmsNorm { eps }, &[x, norms[0]]).unwrap();
    let y = attention(g, y, weights, size, true);
    let x = g.add(x, y).unwrap();
    let y = g.push(RmsNorm { eps }, &[x, norms[1]]).unwrap();
    let wide = g.push(Linear, &[y, up]).unwrap();
    let gate = g.push(Linear, &[y, gate]).unwrap();
    let gate = activation(g, ActivationKind::Silu, gate);
    let y = g.mul(wide, gate).unwrap();
    let y = g.push(Linear, &[y, down]).unwrap();
    g.add(x, y).unwrap()
}

/// An encoder's layer, with norms behind the sums.
fn encoder(g: &mut Graph, size: [usize; 3]) -> ValueId {
    let [rows, width, _] = size;
    let x = input(g, [rows, width]);
    let [a, b] = [(); 2].map(|()| [input(g, [width]), input(g, [width])]);
    let weights = [(); 4].map(|()| input(g, [width, width]));
    let [up, down] = [input(g, [4 * width, width]), input(g, [width, 4 * width])];
    let normed = |g: &mut Graph, x, [weight, bias]: [ValueId; 2]| {
        let eps = 1e-5.into();
        g.push(LayerNorm { dims: 1, eps }, &[x, weight, bias])
            .unwrap()
    };
    let y = attention(g, x, weights, size, false);
    let y = g.add(x, y).unwrap();
    let x = normed(g, y, a);
    let y = g.push(Linear, &[x, up]).unwrap();
    let y = activation(g, ActivationKind::Gelu, y);
    let y = g.push(Linear, &[y, down]).unwrap();
    let y = g.add(x, y).unwrap();
    normed(g, y, b)
}

fn perceptron(g: &mut Graph, [rows, width, layers]: [usize; 3]) -> ValueId {
    let x = input(g, [rows, width]);
    let weights: Vec<ValueId> = (0..layers).map(|_| input(g, [width, width])).collect();
    weights.into_iter().fold(x, |x, weight| {
        let y = g.push(Linear, &[x, weight]).unwrap();
        activation(g, ActivationKind::Relu, y)
    })
}

fn convolved(g: &mut Graph, x: ValueId, weight: ValueId) -> ValueId {
    let op = Conv2d {
        padding: [1; 2],
        ..Conv2d::default()
    };
    g.push(op, &[x, weight]).unwrap()
}

/// Convolutions with ReLU, each followed by a pooling.
fn convolutions(g: &mut Graph, [channels, side, layers]: [usize; 3]) -> ValueId {
    let x = input(g, [1, channels, side, side]);
    let weights = (0..layers).map(|_| input(g, [channels, channels, 3, 3]));
    let weights: Vec<ValueId> = weights.collect();
    let pool = Pool2d {
        kind: PoolKind::Max,
        kernel: [2; 2],
        stride: [2; 2],
        padding: [0; 2],
        dilation: [1; 2],
        indices: None,
    };
    weights.into_iter().fold(x, |x, weight| {
        let y = convolved(g, x, weight);
        let y = activation(g, ActivationKind::Relu, y);
        g.push(pool.clone(), &[y]).unwrap()
    })
}

/// Elementwise operations behind each other.
fn chain(g: &mut Graph, elements: usize, links: usize) -> ValueId {
    let [x, y] = [input(g, [elements]), input(g, [elements])];
    (0..links).fold(x, |v, link| match link % 3 {
        0 => g.binary(BinaryOp::Add, v, y).unwrap(),
        1 => activation(g, ActivationKind::Silu, v),
        _ => g.unary(UnaryOp::Tanh, v).unwrap(),
    })
}
