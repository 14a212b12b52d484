//! Errors of products, convolutions and attention in single precision, beside sums in double precision: how large they
//! are for sums of how many products, and whether they are all on one side.

mod common;

use std::process::ExitCode;
use std::sync::Arc;

use common::{Gpus, run};
use rustorch_ir::ops::{Attention, AttentionBackward, Conv2d, Matmul, ReduceOp};
use rustorch_ir::{DType, Graph, Op, OpError, TensorType, ValueId};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};
use rustorch_testing::tests;

/// Numbers of a normal distribution; their magnitudes if they `are_positive`.
fn numbers(count: usize, seed: u64, are_positive: bool) -> Vec<f32> {
    let mut state = seed + 1;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    let mut normal = || {
        let radius = (-2.0 * uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * uniform()).cos()
    };
    let numbers = (0..count).map(|_| normal() as f32);
    match are_positive {
        true => numbers.map(f32::abs).collect(),
        false => numbers.collect(),
    }
}

/// Computes an operation on a GPU.
fn compute(gpu: &Arc<dyn Backend>, op: Op, operands: &[(&[usize], &[f32])]) -> Vec<f32> {
    compute_all(gpu, operands, |graph, inputs| {
        graph.push(op.clone(), inputs)
    })
}

/// Computes operations on a GPU, of which one is the result.
fn compute_all(
    gpu: &Arc<dyn Backend>,
    operands: &[(&[usize], &[f32])],
    record: impl Fn(&mut Graph, &[ValueId]) -> Result<ValueId, OpError>,
) -> Vec<f32> {
    let mut graph = Graph::new();
    let mut storages = Vec::new();
    let mut inputs = Vec::new();
    for (shape, values) in operands {
        let ty = TensorType::new(shape.to_vec(), DType::F32);
        inputs.push(graph.input(ty).unwrap());
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
        storages.push(Storage::from_host(HostBuffer::copy_of(&bytes).unwrap()));
    }
    let y = record(&mut graph, &inputs).unwrap();
    graph.output(y);
    // Without a compiler of kernels, what does not come compiled goes to the processor.
    let routing = Routing {
        device: gpu.info().device,
        strict: rustorch_cuda::compiler().is_ok(),
        ..Routing::AUTO
    };
    let runtime = Runtime::new([gpu.clone(), Arc::new(rustorch_cpu::Cpu::new(0))]);
    let outputs = runtime.run(&graph, &storages, routing).unwrap();
    let mut bytes = vec![0; graph.ty(y).bytes()];
    runtime.read(&outputs[0], 0, &mut bytes).unwrap();
    let words = bytes.chunks_exact(4);
    words
        .map(|word| f32::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

/// The root of the mean square of errors, and the mean of errors away from zero. Both are parts of the root of the
/// mean square of right results.
fn error_and_bias(pairs: impl Iterator<Item = (f32, f64)>) -> [f64; 2] {
    let (mut squares, mut errors, mut outward) = (0.0, 0.0, 0.0);
    let mut magnitudes = 0.0;
    for (y, right) in pairs {
        let error = f64::from(y) - right;
        squares += right * right;
        errors += error * error;
        outward += error * right.signum();
        magnitudes += right.abs();
    }
    [(errors / squares).sqrt(), outward / magnitudes]
}

/// Fails beyond twice the error of PyTorch, or where errors are all on one side.
#[track_caller]
fn check(what: &str, [error, bias]: [f64; 2], of_torch: f64) {
    // Two units in the last place of single precision.
    const BIAS: f64 = 2.4e-7;
    let told = format!("{what}: error {error:.2e}, PyTorch's {of_torch:.2e}, bias {bias:.1e}");
    println!("{told}");
    assert!(error <= 2.0 * of_torch && bias.abs() <= BIAS, "{told}");
}

/// The error of PyTorch's sums of `k` products, about, see docs/cuda.md.
fn of_torch(k: usize) -> f64 {
    1.03e-8 * (k as f64).sqrt()
}

fn dot<'a>(pairs: impl Iterator<Item = (&'a f32, &'a f32)>) -> f64 {
    pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

fn products_are_those_of_single_precision(gpus: &Gpus) {
    const M: usize = 256;
    const N: usize = 512;
    /// Rows that are computed in double precision: each sixteenth.
    const STEP: usize = 16;
    for k in [16, 64, 148, 576, 1536, 4096, 16384, 65536] {
        for are_positive in [false, true] {
            let a = numbers(M * k, 1, are_positive);
            // Transposed, so that a column's elements are neighbours.
            let b = numbers(N * k, 2, are_positive);
            let mut columns = vec![0.0; N * k];
            for (i, &x) in b.iter().enumerate() {
                columns[i % k * N + i / k] = x;
            }
            let chosen = (0..M).step_by(STEP);
            let right: Vec<f64> = chosen
                .flat_map(|i| (0..N).map(move |j| (i, j)))
                .map(|(i, j)| dot(a[i * k..][..k].iter().zip(&b[j * k..][..k])))
                .collect();
            for gpu in gpus {
                let y = compute(gpu, Matmul.into(), &[(&[M, k], &a), (&[k, N], &columns)]);
                let rows = y.chunks_exact(N).step_by(STEP).flatten().copied();
                let what = format!("product, k {k}, positive: {are_positive}");
                check(
                    &what,
                    error_and_bias(rows.zip(right.iter().copied())),
                    of_torch(k),
                );
            }
        }
    }
}

fn convolutions_are_those_of_single_precision(gpus: &Gpus) {
    const SIDE: usize = 18;
    const FILTERS: usize = 96;
    const WINDOW: usize = 3;
    const OUT: usize = SIDE - WINDOW + 1;
    for channels in [2, 16, 64, 170, 455, 1820] {
        let k = channels * WINDOW * WINDOW;
        for are_positive in [false, true] {
            let x = numbers(channels * SIDE * SIDE, 3, are_positive);
            let w = numbers(FILTERS * k, 4, are_positive);
            let mut right = Vec::new();
            for filter in w.chunks_exact(k) {
                for (i, j) in (0..OUT * OUT).map(|at| (at / OUT, at % OUT)) {
                    let seen = (0..k).map(|at| {
                        let (channel, of_window) = (at / (WINDOW * WINDOW), at % (WINDOW * WINDOW));
                        let (row, column) = (i + of_window / WINDOW, j + of_window % WINDOW);
                        &x[(channel * SIDE + row) * SIDE + column]
                    });
                    right.push(dot(seen.zip(filter)));
                }
            }
            for gpu in gpus {
                let image = [1, channels, SIDE, SIDE];
                let weight = [FILTERS, channels, WINDOW, WINDOW];
                let op = Conv2d::default().into();
                let y = compute(gpu, op, &[(&image, &x), (&weight, &w)]);
                let what = format!("convolution, k {k}, positive: {are_positive}");
                let pairs = y.into_iter().zip(right.iter().copied());
                check(&what, error_and_bias(pairs), of_torch(k));
            }
        }
    }
}

/// Attention of rows of queries to keys and values, each of `d` elements.
fn attention([q, k, v]: [&[f32]; 3], d: usize, scale: f64) -> Vec<f64> {
    let mut right = Vec::new();
    for query in q.chunks_exact(d) {
        let scores = k
            .chunks_exact(d)
            .map(|key| scale * dot(query.iter().zip(key)));
        let scores: Vec<f64> = scores.collect();
        let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - peak).exp()).collect();
        let total: f64 = weights.iter().sum();
        right.extend((0..d).map(|i| {
            let weighed = weights.iter().zip(v.chunks_exact(d));
            weighed
                .map(|(w, value)| w * f64::from(value[i]))
                .sum::<f64>()
                / total
        }));
    }
    right
}

fn plain(d: usize) -> Attention {
    Attention {
        scale: (1.0 / (d as f64).sqrt()).into(),
        causal: false,
        soft_cap: None,
        mask: false,
        past: false,
        window: None,
        log_sum_exp: false,
    }
}

fn attention_is_that_of_single_precision(gpus: &Gpus) {
    // Rows of queries are so many that tensor cores make it. The last number is PyTorch's error.
    for (rows, s, d, are_positive, of_torch) in [
        (200, 100, 64, false, 6.5e-7),
        (200, 1000, 64, false, 6.5e-7),
        (200, 1000, 128, false, 6.5e-7),
        (200, 2048, 128, false, 6.5e-7),
        (200, 8192, 64, true, 6.5e-7),
        (200, 8192, 128, true, 6.5e-7),
        (20, 200_000, 64, true, 2.0e-7),
        (20, 200_000, 128, true, 2.0e-7),
    ] {
        let q = numbers(rows * d, 5, false);
        let k = numbers(s * d, 6, false);
        let v = numbers(s * d, 7, are_positive);
        let op = plain(d);
        let right = attention([&q, &k, &v], d, op.scale.0);
        for gpu in gpus {
            let operands: [(&[usize], &[f32]); 3] =
                [(&[1, rows, d], &q), (&[1, s, d], &k), (&[1, s, d], &v)];
            let y = compute(gpu, op.clone().into(), &operands);
            let what = format!("attention, {s} keys of {d}, positive: {are_positive}");
            let pairs = y.into_iter().zip(right.iter().copied());
            check(&what, error_and_bias(pairs), of_torch);
        }
    }
}

/// The gradient of keys, of the sum of an attention's results times `d_y`.
fn gradient_of_keys([q, k, v, d_y]: [&[f32]; 4], d: usize, scale: f64) -> Vec<f64> {
    let y = attention([q, k, v], d, scale);
    let mut right = vec![0.0; k.len()];
    let rows = q
        .chunks_exact(d)
        .zip(d_y.chunks_exact(d))
        .zip(y.chunks_exact(d));
    for ((query, d_y), y) in rows {
        let delta: f64 = d_y.iter().zip(y).map(|(&a, b)| f64::from(a) * b).sum();
        let scores = k
            .chunks_exact(d)
            .map(|key| scale * dot(query.iter().zip(key)));
        let weights: Vec<f64> = scores.map(f64::exp).collect();
        let total: f64 = weights.iter().sum();
        for (j, (weight, value)) in weights.iter().zip(v.chunks_exact(d)).enumerate() {
            let change = scale * weight / total * (dot(d_y.iter().zip(value)) - delta);
            for (sum, &x) in right[j * d..][..d].iter_mut().zip(query) {
                *sum += change * f64::from(x);
            }
        }
    }
    right
}

/// The gradient is a difference of numbers that are about equal. So errors of results on one side are large in it.
fn gradients_of_attention_are_those_of_single_precision(gpus: &Gpus) {
    const KEYS: usize = 64;
    const D: usize = 64;
    for (rows, of_torch) in [(100, 2.3e-7), (2000, 1.2e-7)] {
        let [q, d_y] = [8, 9].map(|seed| numbers(rows * D, seed, true));
        let [k, v] = [10, 11].map(|seed| numbers(KEYS * D, seed, true));
        let op = Attention {
            log_sum_exp: true,
            ..plain(D)
        };
        let right = gradient_of_keys([&q, &k, &v, &d_y], D, op.scale.0);
        for gpu in gpus {
            let operands: [(&[usize], &[f32]); 4] = [
                (&[1, rows, D], &q),
                (&[1, KEYS, D], &k),
                (&[1, KEYS, D], &v),
                (&[1, rows, D], &d_y),
            ];
            let found = compute_all(gpu, &operands, |g, inputs| {
                let &[q, k, v, d_y] = inputs else {
                    unreachable!("four operands")
                };
                let y = g.push(op.clone(), &[q, k, v])?;
                let totals = g.results(y)[1];
                let product = g.mul(y, d_y)?;
                let delta = g.reduce(ReduceOp::Sum, product, 2)?;
                let delta = g.reshape(delta, [1, rows])?;
                let backward = AttentionBackward {
                    attention: op.clone(),
                };
                let d_q = g.push(backward, &[q, k, v, totals, d_y, delta])?;
                Ok(g.results(d_q)[1])
            });
            let what = format!("gradient of keys, {rows} queries");
            let pairs = found.into_iter().zip(right.iter().copied());
            check(&what, error_and_bias(pairs), of_torch);
        }
    }
}

/// Long columns are cut into segments, which lanes add in turns.
fn sums_of_columns_are_those_of_single_precision(gpus: &Gpus) {
    const ROWS: usize = 1 << 20;
    for (columns, are_positive) in [(16, false), (16, true)] {
        let x = numbers(ROWS * columns, 12, are_positive);
        let mut right = vec![0.0; columns];
        for row in x.chunks_exact(columns) {
            right
                .iter_mut()
                .zip(row)
                .for_each(|(sum, &x)| *sum += f64::from(x));
        }
        for gpu in gpus {
            let operand: (&[usize], &[f32]) = (&[ROWS, columns], &x);
            let y = compute_all(gpu, &[operand], |g, x| g.reduce(ReduceOp::Sum, x[0], 0));
            let what = format!("sums of {columns} columns, positive: {are_positive}");
            let pairs = y.into_iter().zip(right.iter().copied());
            check(&what, error_and_bias(pairs), 2.4e-7);
        }
    }
}

fn main() -> ExitCode {
    run(tests![
        products_are_those_of_single_precision,
        convolutions_are_those_of_single_precision,
        attention_is_that_of_single_precision,
        gradients_of_attention_are_those_of_single_precision,
        sums_of_columns_are_those_of_single_precision,
    ])
}
