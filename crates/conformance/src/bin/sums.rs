//! Errors of sums compared with double precision, on any device, and of PyTorch on the CPU.
//!
//! Operations are products, convolutions, attention, norms, reductions and some of their gradients. Each sum has
//! `k` addends, positive or of both signs. Each has two figures. The error is the root mean square, relative to
//! that of the results. The bias is the mean excess of results, relative to their mean size. PyTorch's figures
//! come from `scripts/torch-sums.py`. The status is 1 if an error is more than twice PyTorch's, and more than a
//! rounding.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use rustorch_ir::{DType, DeviceType};
use rustorch_tensor::nn::{AttentionOptions, BatchNormOptions, ConvOptions};
use rustorch_tensor::{RusTorchResult, Tensor, with_device};
use serde::Deserialize;

/// Compares sums in single precision with double precision and with PyTorch's.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The device that computes: cpu, opencl, cuda, metal
    #[arg(short, long, default_value = "cpu")]
    backend: DeviceType,
    /// The most addends
    #[arg(short, long, default_value_t = 1_000_000)]
    most: usize,
    /// Rows and columns of products of matrices; PyTorch's figures are those of 64
    #[arg(short, long, default_value_t = 64)]
    side: usize,
    /// Cases whose names have this in them
    #[arg(short, long, default_value = "")]
    case: String,
}

/// PyTorch's figures: for positive numbers and for others, by case and number of addends.
#[derive(Deserialize)]
struct Peer {
    torch: String,
    cases: BTreeMap<String, BTreeMap<usize, [[f64; 2]; 2]>>,
}

/// Half the distance of 1 and the next number: an error that a rounding alone makes.
const ROUNDING: f64 = 5.960_464_5e-8;

/// Rows of products that are computed in double precision.
const ROWS: usize = 64;

struct Case {
    name: &'static str,
    /// Shapes of operands with `k` addends; products have a given number of rows.
    shapes: fn(usize, usize) -> Vec<Vec<usize>>,
    run: fn(&[Tensor]) -> RusTorchResult<Tensor>,
}

fn rows(k: usize) -> usize {
    ((1 << 21) / k).clamp(4, 64)
}

fn by_rows(k: usize, _: usize) -> Vec<Vec<usize>> {
    vec![vec![rows(k), k]]
}

fn by_columns(k: usize, _: usize) -> Vec<Vec<usize>> {
    vec![vec![k, rows(k)]]
}

fn normed(x: &Tensor) -> RusTorchResult<Tensor> {
    let options = BatchNormOptions {
        training: true,
        ..Default::default()
    };
    x.batch_norm(None, None, &options)
}

fn attend(x: &[Tensor]) -> RusTorchResult<Tensor> {
    x[0].scaled_dot_product_attention(&x[1], &x[2], AttentionOptions::default())
}

/// The gradient of the sum of `run`'s result by one operand.
fn gradient(
    x: &[Tensor],
    which: usize,
    run: impl Fn(&[Tensor]) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Tensor> {
    let mut x: Vec<Tensor> = x.iter().map(Tensor::detach).collect();
    x[which] = x[which].requires_grad_(true)?;
    run(&x)?.sum(None, false)?.backward()?;
    x[which].grad().map_or_else(|| x[which].zeros_like(), Ok)
}

fn cases() -> Vec<Case> {
    let case = |name, shapes, run| Case { name, shapes, run };
    vec![
        case("sum of rows", by_rows, |x| x[0].sum(1, false)),
        case("sum of columns", by_columns, |x| x[0].sum(0, false)),
        case("cumsum", by_rows, |x| x[0].cumsum(1)),
        case("var", by_rows, |x| x[0].var(1, 1.0, false)),
        case("vector_norm", by_rows, |x| x[0].norm(2.0, 1, false)),
        case("logsumexp", by_rows, |x| x[0].logsumexp(1, false)),
        case("softmax", by_rows, |x| x[0].softmax(1)),
        case("layer_norm", by_rows, |x| {
            x[0].layer_norm(&x[0].shape()[1..], None, None, 1e-5)
        }),
        case("rms_norm", by_rows, |x| {
            x[0].rms_norm(&x[0].shape()[1..], None, 1e-5)
        }),
        case("batch_norm", by_columns, |x| normed(&x[0])),
        case(
            "cosine_similarity",
            |k, side| [by_rows(k, side), by_rows(k, side)].concat(),
            |x| x[0].cosine_similarity(&x[1], 1, 1e-8),
        ),
        case("index_add", by_columns, |x| {
            let index =
                Tensor::arange_with(0, x[0].shape()[0] as i64, 1, DType::I64)?.remainder(4)?;
            Tensor::zeros([4, x[0].shape()[1]], x[0].dtype())?.index_add(0, &index, &x[0], 1.0)
        }),
        case(
            "matmul",
            |k, side| vec![vec![side, k], vec![k, side]],
            |x| x[0].matmul(&x[1]),
        ),
        case(
            "matrix by vector",
            |k, _| vec![vec![rows(k), k], vec![k]],
            |x| x[0].matmul(&x[1]),
        ),
        case(
            "vector by matrix",
            |k, _| vec![vec![k], vec![k, rows(k)]],
            |x| x[0].matmul(&x[1]),
        ),
        case(
            "conv2d",
            |k, _| vec![vec![1, k.div_ceil(9), 8, 8], vec![8, k.div_ceil(9), 3, 3]],
            |x| x[0].conv2d(&x[1], None, &ConvOptions::default()),
        ),
        case(
            "attention",
            |k, _| vec![vec![1, 64, 64], vec![1, k, 64], vec![1, k, 64]],
            attend,
        ),
        case(
            "gradient of conv2d's weight",
            |k, _| {
                let n = k.div_ceil(64);
                vec![vec![n, 4, 10, 10], vec![4, 4, 3, 3], vec![n, 4, 8, 8]]
            },
            |x| {
                let weighed = |x: &[Tensor]| {
                    x[0].conv2d(&x[1], None, &ConvOptions::default())?
                        .mul(&x[2])
                };
                gradient(x, 1, weighed)
            },
        ),
        case(
            "gradient of attention's keys",
            |k, _| {
                let (many, few) = (vec![1, k, 64], vec![1, 64, 64]);
                vec![many.clone(), few.clone(), few, many]
            },
            |x| gradient(x, 1, |x| attend(x)?.mul(&x[3])),
        ),
        case(
            "gradient of layer_norm's weight",
            |k, _| vec![vec![k, 16], vec![16], vec![k, 16]],
            |x| {
                let weighed = |x: &[Tensor]| x[0].layer_norm([16], Some(&x[1]), None, 1e-5);
                gradient(x, 1, |x| weighed(x)?.mul(&x[2]))
            },
        ),
        case(
            "gradient of batch_norm",
            |k, side| [by_columns(k, side), by_columns(k, side)].concat(),
            |x| gradient(x, 0, |x| normed(&x[0])?.mul(&x[1])),
        ),
    ]
}

/// Numbers in [0, 1), or in [-1, 1), that splitmix64 (Steele, Lea and Flood 2014) makes of their places.
fn elements(shape: &[usize], operand: usize, is_positive: bool) -> RusTorchResult<Tensor> {
    let start = (operand as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let element = |place: u64| {
        let z = (place + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = z.wrapping_add(start);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let unit = ((z ^ (z >> 31)) >> 40) as f32 / (1 << 24) as f32;
        if is_positive { unit } else { 2.0 * unit - 1.0 }
    };
    let count = shape.iter().product::<usize>() as u64;
    let x: Vec<f32> = (0..count).map(element).collect();
    Tensor::from_slice(&x, shape)
}

/// Error and bias of a case.
fn measure(case: &Case, options: &Options, k: usize, is_positive: bool) -> Result<[f64; 2]> {
    let shapes = (case.shapes)(k, options.side);
    let x = shapes.iter().enumerate();
    let x: Vec<Tensor> = x
        .map(|(i, shape)| elements(shape, i, is_positive))
        .collect::<RusTorchResult<_>>()?;
    let found = with_device(options.backend, || (case.run)(&x)?.to_vec::<f32>())??;
    let mut wide: Vec<Tensor> =
        (x.iter().map(|x| x.to_dtype(DType::F64))).collect::<RusTorchResult<_>>()?;
    if case.name == "matmul" {
        wide[0] = wide[0].narrow(0, 0, ROWS.min(options.side))?;
    }
    let truth = with_device(DeviceType::Cpu, || (case.run)(&wide)?.to_vec::<f64>())??;
    let (mut squares, mut all, mut wrong, mut size) = (0.0, 0.0, 0.0, 0.0);
    for (&found, truth) in found.iter().zip(truth) {
        let error = f64::from(found) - truth;
        squares += error * error;
        all += truth * truth;
        wrong += error * truth.signum();
        size += truth.abs();
    }
    Ok([(squares / all).sqrt(), wrong / size])
}

fn compare(options: &Options) -> Result<bool> {
    let peer: Peer = serde_json::from_str(include_str!("sums.json"))?;
    println!("{} beside PyTorch {}", options.backend, peer.torch);
    println!(
        "{:32} {:>8}  {:>9} {:>9} {:>9}  {:>9} {:>9} {:>9}",
        "", "", "positive", "bias", "PyTorch", "signs", "bias", "PyTorch"
    );
    let (mut is_near, mut count) = (true, 0);
    for case in cases() {
        if !case.name.contains(&options.case) {
            continue;
        }
        let sizes = (1..=6).map(|n| 10usize.pow(n));
        for k in sizes.filter(|&k| k <= options.most) {
            let theirs = peer.cases.get(case.name).and_then(|sizes| sizes.get(&k));
            print!("{:32} {k:>8}", case.name);
            let mut is_far = false;
            for (i, is_positive) in [true, false].into_iter().enumerate() {
                let [error, bias] = measure(&case, options, k, is_positive)?;
                let peer = theirs.map_or(f64::NAN, |signs| signs[i][0]);
                print!("  {error:>9.2e} {bias:>9.1e} {peer:>9.2e}");
                is_far |= error.is_nan() || error > 2.0 * peer.max(ROUNDING);
            }
            println!("{}", if is_far { "  far" } else { "" });
            is_near &= !is_far;
            count += 1;
        }
    }
    ensure!(count > 0, "no case has {} in its name", options.case);
    Ok(is_near)
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("sums: {e:#}");
            ExitCode::from(2)
        }
    }
}
