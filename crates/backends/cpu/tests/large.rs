//! Operands so large that kernels cut them into blocks, tiles and segments and share them
//! among threads: results are the reference's, and the same for any number of threads.

use std::sync::Arc;

use rustorch_cpu::Cpu;
#[cfg(feature = "linalg")]
use rustorch_ir::ops::Eigh;
use rustorch_ir::ops::{
    Activation, ActivationKind, Arange, ArgReduce, BinaryOp, Concat, Conv2d, ConvTranspose2d,
    Distribution, Gather, IndexSelect, KthValue, LayerNorm, Matmul, Pad, Pool2d, PoolIndices,
    PoolKind, Random, Reduce, ReduceOp, Scan, ScanOp, Scatter, ScatterMode, Softmax, TopK, UnaryOp,
};
#[cfg(feature = "fft")]
use rustorch_ir::ops::{Fft, FftKind};
use rustorch_ir::{DType, Graph, Op, OpError, Scalar, ValueId};
use rustorch_reference::{Reference, Values};
use rustorch_runtime::{Backend, Routing, Runtime, Storage};

/// Largest normalised mean squared error of single precision, and of half.
const SINGLE: f64 = 1e-12;
const HALF: f64 = 1e-5;

/// The bytes of each output of a graph without inputs.
fn run(backend: impl Backend + 'static, graph: &Graph) -> Vec<Vec<u8>> {
    let runtime = Runtime::new([Arc::new(backend) as Arc<dyn Backend>]);
    let executable = runtime.prepare(graph.clone(), Routing::default());
    let outputs = executable.run(&[]).unwrap();
    let read = |output: &Storage| {
        let mut bytes = vec![0; output.bytes()];
        runtime.read(output, 0, &mut bytes).unwrap();
        bytes
    };
    outputs.iter().map(read).collect()
}

/// Numbers for comparison.
fn numbers(values: Values) -> Vec<f64> {
    match values {
        Values::Float(x) => x,
        Values::Int(x) => x.into_iter().map(|x| x as f64).collect(),
        Values::Complex(x) => x.into_iter().flat_map(|z| [z.re, z.im]).collect(),
        Values::Blocks(_) => panic!("no results are blocks"),
    }
}

/// Checks all results of the node that `build` returns one of.
fn check(name: &str, limit: f64, build: impl Fn(&mut Graph) -> Result<ValueId, OpError>) {
    let mut graph = Graph::new();
    let first = build(&mut graph).unwrap();
    let results = graph.results(first);
    results.iter().for_each(|&result| graph.output(result));
    let outputs = run(Cpu::new(1), &graph);
    for threads in [2, 5] {
        assert!(
            run(Cpu::new(threads), &graph) == outputs,
            "{name} depends on the threads"
        );
    }
    let expected = run(Reference::new(), &graph);
    for ((result, bytes), expected) in results.into_iter().zip(outputs).zip(expected) {
        let dtype = graph.ty(result).dtype;
        let [result, expected] = [bytes, expected].map(|bytes| Values::decode(bytes, dtype));
        compare(name, limit, dtype, &numbers(result), &numbers(expected));
    }
}

fn compare(name: &str, limit: f64, dtype: DType, result: &[f64], expected: &[f64]) {
    let error: f64 = result
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).powi(2))
        .sum();
    let signal: f64 = expected.iter().map(|x| x * x).sum();
    let limit = if dtype.is_float() || dtype.is_complex() {
        limit
    } else {
        0.0
    };
    assert!(
        signal > 0.0 && error <= limit * signal,
        "{name}: {error} of {signal}"
    );
}

/// Numbers from 0 to 1 that all devices agree on.
fn uniform(g: &mut Graph, shape: &[usize], dtype: DType, seed: i64) -> Result<ValueId, OpError> {
    let distribution = Distribution::Uniform;
    let shape = shape.into();
    let random = Random {
        distribution,
        shape,
        dtype,
    };
    // A seed, and no offset.
    let (start, step) = (Scalar::Int(seed), Scalar::Int(-seed));
    let key = Arange {
        start,
        step,
        len: 2,
        dtype: DType::I64,
    };
    let key = g.push(key, &[])?;
    g.push(random, &[key])
}

fn x(g: &mut Graph, shape: &[usize]) -> Result<ValueId, OpError> {
    uniform(g, shape, DType::F32, 1)
}

fn y(g: &mut Graph, shape: &[usize]) -> Result<ValueId, OpError> {
    uniform(g, shape, DType::F32, 2)
}

/// Scattered whole numbers below `limit`.
fn whole(g: &mut Graph, shape: &[usize], limit: i64, dtype: DType) -> Result<ValueId, OpError> {
    let count = g.arange(shape.iter().product(), dtype)?;
    let step = g.constant(Scalar::Int(7919), dtype)?;
    let limit = g.constant(Scalar::Int(limit), dtype)?;
    let spread = g.mul(count, step)?;
    let small = g.binary(BinaryOp::Remainder, spread, limit)?;
    g.reshape(small, shape)
}

#[test]
fn elementwise() {
    check("add with rows and columns", SINGLE, |g| {
        let (a, b) = (x(g, &[301, 1000])?, y(g, &[301, 1])?);
        let sum = g.add(a, b)?;
        let row = y(g, &[1000])?;
        g.mul(sum, row)
    });
    check("add with a transposed operand", SINGLE, |g| {
        let (a, b) = (x(g, &[301, 1000])?, y(g, &[1000, 301])?);
        let b = g.transpose(b)?;
        g.add(a, b)
    });
    check("half precision", HALF, |g| {
        let a = uniform(g, &[70_000], DType::F16, 1)?;
        let b = uniform(g, &[1], DType::F16, 2)?;
        let sum = g.add(a, b)?;
        g.unary(UnaryOp::Tanh, sum)
    });
    for &kind in ActivationKind::ALL {
        check("activation", SINGLE, |g| {
            let x = x(g, &[70_001])?;
            let x = g.add_scalar(x, -0.5)?;
            let x = g.mul_scalar(x, 12.0)?;
            g.push(Activation { kind }, &[x])
        });
    }
    check("where", SINGLE, |g| {
        let (a, b) = (x(g, &[50_001])?, y(g, &[50_001])?);
        let larger = g.compare(rustorch_ir::ops::CompareOp::Gt, a, b)?;
        g.select(larger, a, b)
    });
}

#[test]
fn transposed_copies() {
    for order in [[0, 2, 1], [1, 2, 0], [2, 1, 0], [2, 0, 1], [1, 0, 2]] {
        check("permuted", 0.0, |g| {
            let x = x(g, &[65, 33, 130])?;
            g.permute(x, &order)
        });
    }
}

#[test]
fn reductions() {
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        for dims in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[0, 1, 2]] {
            check("reduce", SINGLE, |g| {
                let x = x(g, &[21, 210, 70])?;
                let (dims, keepdim) = (dims.into(), false);
                g.push(Reduce { op, dims, keepdim }, &[x])
            });
        }
    }
    for (dim, largest) in [(0, true), (1, false)] {
        check("arg_reduce", SINGLE, |g| {
            let x = x(g, &[300, 3000])?;
            let values = true;
            let op = ArgReduce {
                largest,
                dim,
                values,
            };
            g.push(op, &[x])
        });
        check("top_k", SINGLE, |g| {
            let x = x(g, &[300, 300])?;
            let k = 100;
            g.push(TopK { k, dim, largest }, &[x])
        });
    }
}

/// Threads share the line; the second of these has few different elements, the third one.
#[test]
fn kth_values_of_long_lines() {
    const SIZE: usize = 140_001;
    for (limit, dtype) in [
        (100_003, DType::I64),
        (40, DType::F32),
        (2, DType::F64),
        (250, DType::BF16),
    ] {
        check("kth_value", SINGLE, |g| {
            let x = whole(g, &[2, SIZE], limit, DType::I64)?;
            let x = g.cast(x, dtype)?;
            let places = whole(g, &[2, 10], SIZE as i64, DType::I64)?;
            let (k, dim) = (SIZE, 1);
            g.push(KthValue { k, dim }, &[x, places])
        });
    }
    check("kth_value of columns", SINGLE, |g| {
        let x = x(g, &[3000, 70])?;
        let places = whole(g, &[1, 70], 3000, DType::I64)?;
        let (k, dim) = (3000, 0);
        g.push(KthValue { k, dim }, &[x, places])
    });
}

#[test]
fn lines() {
    for dim in 0..3 {
        check("softmax", SINGLE, |g| {
            let x = x(g, &[40, 50, 60])?;
            g.push(Softmax { dim, log: false }, &[x])
        });
        check("softmax of half precision", HALF, |g| {
            let x = uniform(g, &[40, 50, 60], DType::BF16, 1)?;
            g.push(Softmax { dim, log: false }, &[x])
        });
        check("cumsum", SINGLE, |g| {
            let x = whole(g, &[40, 50, 60], 100, DType::I32)?;
            g.push(
                Scan {
                    op: ScanOp::Sum,
                    dim,
                },
                &[x],
            )
        });
    }
    check("layer_norm", SINGLE, |g| {
        let (x, weight) = (x(g, &[60, 3000])?, y(g, &[3000])?);
        let (dims, eps) = (1, 1e-5.into());
        g.push(LayerNorm { dims, eps }, &[x, weight])
    });
}

#[test]
fn selections() {
    for dim in 0..2 {
        check("index_select", 0.0, |g| {
            let x = x(g, &[200, 300])?;
            let index = whole(g, &[2000], 200, DType::I32)?;
            g.push(IndexSelect { dim }, &[x, index])
        });
        let picked = if dim == 0 { [900, 300] } else { [200, 900] };
        check("gather", 0.0, |g| {
            let x = x(g, &[200, 300])?;
            let index = whole(g, &picked, 200, DType::I64)?;
            g.push(Gather { dim }, &[x, index])
        });
        for mode in [ScatterMode::Set, ScatterMode::Add] {
            check("scatter", SINGLE, |g| {
                let (x, source) = (x(g, &[200, 300])?, y(g, &picked)?);
                let index = whole(g, &picked, 200, DType::I64)?;
                g.push(Scatter { dim, mode }, &[x, index, source])
            });
        }
        check("concat", 0.0, |g| {
            let (a, b) = (x(g, &[300, 300])?, y(g, &[300, 300])?);
            let b = g.transpose(b)?;
            g.push(Concat { dim }, &[a, b, a])
        });
    }
    check("pad", 0.0, |g| {
        let x = x(g, &[30, 70, 40])?;
        let padding = [(1, 2), (0, 3), (4, 0)].into_iter().collect();
        let value = Scalar::from(0.5);
        g.push(Pad { padding, value }, &[x])
    });
}

#[test]
fn products() {
    for (a, b) in [
        (&[300, 130][..], &[130, 600][..]),
        (&[1, 700], &[700, 2000]),
        (&[3, 1, 70, 40], &[50, 40, 30]),
    ] {
        check("matmul", SINGLE, |g| {
            let (a, b) = (x(g, a)?, y(g, b)?);
            g.push(Matmul, &[a, b])
        });
        check("matmul of integers", SINGLE, |g| {
            let a = whole(g, a, 1000, DType::I32)?;
            let b = whole(g, b, 1000, DType::I32)?;
            g.push(Matmul, &[a, b])
        });
        check("matmul of half precision", HALF, |g| {
            let a = uniform(g, a, DType::BF16, 1)?;
            let b = uniform(g, b, DType::BF16, 2)?;
            g.push(Matmul, &[a, b])
        });
    }
}

/// Products that are large enough for a matrix unit, with numbers that it cannot hold.
#[test]
fn products_at_the_ends_of_the_range() {
    let (far, tiny) = (1e36, 1e-20);
    for (value, scale) in [
        (f64::INFINITY, 1.0),
        (f64::NEG_INFINITY, 1.0),
        (f64::NAN, 1.0),
        (f64::from(f32::MAX), 1.0),
        (far, 1.0),
        (0.5, tiny),
        (0.0, 1.0),
    ] {
        let mut graph = Graph::new();
        let g = &mut graph;
        let mut build = || {
            let (a, b) = (x(g, &[99, 80])?, y(g, &[80, 96])?);
            // A row of the value, among others.
            let (padding, value) = ([(1, 0), (0, 0)].into_iter().collect(), value.into());
            let a = g.push(Pad { padding, value }, &[a])?;
            let (a, b) = (g.mul_scalar(a, scale)?, g.mul_scalar(b, scale)?);
            g.push(Matmul, &[a, b])
        };
        let result = build().unwrap();
        graph.output(result);
        let decoded = |bytes| numbers(Values::decode(bytes, DType::F32));
        let expected = decoded(run(Reference::new(), &graph).remove(0));
        let result = decoded(run(Cpu::new(2), &graph).remove(0));
        // Each of 80 sums may lose one step of the subnormal numbers.
        let least = 80.0 * f64::from(f32::from_bits(1));
        for (i, (x, y)) in result.iter().zip(&expected).enumerate() {
            let near = (x - y).abs() <= 1e-6 * y.abs() + least;
            assert!(
                x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan() || near,
                "{value} times {scale}: {x} instead of {y} at {i}"
            );
        }
    }
}

#[test]
fn windows() {
    let (stride, padding, dilation) = ([2, 1], [1, 2], [1, 1]);
    for groups in [1, 4] {
        let conv: Op = Conv2d {
            stride,
            padding,
            dilation,
            groups,
        }
        .into();
        check("conv2d", SINGLE, |g| {
            let (x, w) = (x(g, &[2, 8, 40, 50])?, y(g, &[72, 8 / groups, 3, 3])?);
            g.push(conv.clone(), &[x, w])
        });
        let output_padding = [1, 0];
        let spread = ConvTranspose2d {
            stride,
            padding,
            output_padding,
            dilation,
            groups,
        };
        check("conv_transpose2d", SINGLE, |g| {
            let (x, w) = (x(g, &[2, 8, 30, 20])?, y(g, &[8, 12, 3, 3])?);
            g.push(spread.clone(), &[x, w])
        });
    }
    for (kind, indices) in [
        (PoolKind::Max, None),
        (PoolKind::Max, Some(PoolIndices::Plane)),
        (PoolKind::Average, None),
    ] {
        check("pool2d", SINGLE, |g| {
            let x = x(g, &[2, 20, 41, 50])?;
            let kernel = [3, 4];
            g.push(
                Pool2d {
                    kind,
                    kernel,
                    stride,
                    padding: [1, 2],
                    dilation,
                    indices,
                },
                &[x],
            )
        });
    }
}

#[test]
#[cfg(feature = "fft")]
fn transforms() {
    for (dim, kind) in [(0, FftKind::Forward), (1, FftKind::RealToComplex)] {
        check(&format!("{kind:?} along {dim}"), SINGLE, |g| {
            let a = x(g, &[150, 500])?;
            let a = match kind {
                FftKind::RealToComplex => a,
                _ => g.cast(a, DType::Complex64)?,
            };
            g.push(Fft { dim, kind }, &[a])
        });
    }
}

#[test]
#[cfg(feature = "linalg")]
fn matrices() {
    check("eigenvalues of many matrices", SINGLE, |g| {
        let a = uniform(g, &[64, 24, 24], DType::F64, 1)?;
        g.push(Eigh { vectors: false }, &[a])
    });
}
