//! Sixty operations and more at three sizes, as their user calls them: the time from the call to
//! the result, which is then dropped.
//!
//! `cargo bench -p rustorch-tensor --bench speed -- [DEVICE] [THREADS] [NAME…]`
//!
//! `scripts/compare-torch.py` runs this program and PyTorch in turns and puts their times side by
//! side; its table of operations has the same names. Sizes are small (1,024 numbers), middle
//! (1 MiB of `f32`) and large (64 MiB).

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustorch_ir::DType;
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::fft::{self, FftNorm};
use rustorch_tensor::nn::{
    AvgPoolOptions, BatchNormOptions, ConvOptions, CrossEntropyOptions, InterpolateMode,
    InterpolateOptions, MaxPoolOptions, Reduction,
};
use rustorch_tensor::{
    AttentionOptions, PadMode, RusTorchResult, Tensor, backends, eval_all, linalg, manual_seed,
    with_runtime,
};

/// Results of a call; all are computed.
type Results = RusTorchResult<Vec<Tensor>>;

/// Time for which a call is repeated.
const TIME: Duration = Duration::from_millis(200);

/// Calls of which the median counts, at least.
const CALLS: usize = 5;

/// Time of calls after which a device's work is waited for, at least.
const BATCH: Duration = Duration::from_millis(2);

/// The sizes: rows and columns, the side of square matrices, images and heads.
struct Size {
    name: &'static str,
    rows: [usize; 2],
    side: usize,
    /// Number, channels, side.
    images: [usize; 3],
    /// Number, heads, positions, width.
    heads: [usize; 4],
}

const SIZES: [Size; 3] = [
    Size {
        name: "small",
        rows: [16, 64],
        side: 64,
        images: [1, 16, 16],
        heads: [1, 4, 64, 64],
    },
    Size {
        name: "middle",
        rows: [256, 1024],
        side: 512,
        images: [4, 32, 56],
        heads: [1, 8, 512, 64],
    },
    Size {
        name: "large",
        rows: [8192, 2048],
        side: 2048,
        images: [16, 64, 56],
        heads: [2, 16, 2048, 64],
    },
];

struct Subject {
    name: &'static str,
    /// A letter for each operand, see [`operand`].
    operands: &'static str,
    call: fn(&[Tensor]) -> Results,
}

/// A tensor that a letter stands for.
fn operand(letter: char, size: &Size) -> RusTorchResult<Tensor> {
    let Size { rows, side, .. } = *size;
    let [n, channels, pixels] = size.images;
    let unit = |shape: &[usize]| Tensor::rand(shape, DType::F32)?.mul(2)?.sub(1);
    match letter {
        // Numbers from -1 to 1, and a row and a column of them.
        'x' | 'y' | 'z' => unit(&rows),
        'r' => unit(&rows[1..]),
        'c' => unit(&[rows[0], 1]),
        // Positive numbers, halves, whole numbers, truths.
        'p' => Tensor::rand(rows, DType::F32)?.add(0.1),
        'h' => unit(&rows)?.to_dtype(DType::BF16),
        'n' => unit(&rows)?.mul(100)?.to_dtype(DType::I32),
        'm' => unit(&rows)?.gt(0),
        // Columns, for each element and for each row; rows.
        'i' => indices(&rows, rows[1]),
        't' => indices(&rows[..1], rows[1]),
        'j' => indices(&rows[..1], rows[0]),
        // Square matrices, in single and in half precision, several of them, and a vector.
        'a' | 'b' => unit(&[side, side]),
        'A' | 'B' => unit(&[side, side])?.to_dtype(DType::BF16),
        'd' | 'e' => unit(&[8, side / 2, side / 2]),
        'v' => unit(&[side]),
        // Images, windows over them, one for each channel, of one pixel, and channels.
        'g' => unit(&[n, channels, pixels, pixels]),
        'k' => unit(&[channels, channels, 3, 3]),
        'l' => unit(&[channels, 1, 3, 3]),
        'o' => unit(&[channels, channels, 1, 1]),
        'w' => unit(&[channels]),
        'q' => unit(&size.heads),
        _ => unreachable!("no operand has the letter {letter}"),
    }
}

fn indices(shape: &[usize], end: usize) -> RusTorchResult<Tensor> {
    Tensor::rand(shape, DType::F64)?
        .mul(end as f64)?
        .to_dtype(DType::I64)
}

const fn subject(
    name: &'static str,
    operands: &'static str,
    call: fn(&[Tensor]) -> Results,
) -> Subject {
    Subject {
        name,
        operands,
        call,
    }
}

fn one(result: RusTorchResult<Tensor>) -> Results {
    Ok(vec![result?])
}

fn two(results: RusTorchResult<(Tensor, Tensor)>) -> Results {
    let (first, second) = results?;
    Ok(vec![first, second])
}

fn padded() -> ConvOptions<2> {
    ConvOptions {
        padding: [1; 2].into(),
        ..Default::default()
    }
}

fn attention(t: &[Tensor], is_causal: bool) -> Results {
    let options = AttentionOptions {
        is_causal,
        ..Default::default()
    };
    one(t[0].scaled_dot_product_attention(&t[1], &t[2], options))
}

const SUBJECTS: &[Subject] = &[
    subject("add", "xy", |t| one(t[0].add(&t[1]))),
    subject("add number", "x", |t| one(t[0].add(1.5))),
    subject("add row", "xr", |t| one(t[0].add(&t[1]))),
    subject("mul column", "xc", |t| one(t[0].mul(&t[1]))),
    subject("div", "xp", |t| one(t[0].div(&t[1]))),
    subject("pow", "p", |t| one(t[0].pow(2.5))),
    subject("lerp", "xy", |t| one(t[0].lerp(&t[1], 0.3))),
    subject("addcmul", "xyz", |t| one(t[0].addcmul(&t[1], &t[2], 0.5))),
    subject("exp", "x", |t| one(t[0].exp())),
    subject("log", "p", |t| one(t[0].log())),
    subject("sqrt", "p", |t| one(t[0].sqrt())),
    subject("sin", "x", |t| one(t[0].sin())),
    subject("tanh", "x", |t| one(t[0].tanh())),
    subject("erf", "x", |t| one(t[0].erf())),
    subject("sigmoid", "x", |t| one(t[0].sigmoid())),
    subject("relu", "x", |t| one(t[0].relu())),
    subject("gelu", "x", |t| one(t[0].gelu())),
    subject("silu", "x", |t| one(t[0].silu())),
    subject("clamp", "x", |t| one(t[0].clamp(-0.5, 0.5))),
    subject("where", "mxy", |t| one(Tensor::where_(&t[0], &t[1], &t[2]))),
    subject("gt", "xy", |t| one(t[0].gt(&t[1]))),
    subject("masked_fill", "xm", |t| one(t[0].masked_fill(&t[1], 0))),
    subject("add i32", "nn", |t| one(t[0].add(&t[1]))),
    subject("add bf16", "hh", |t| one(t[0].add(&t[1]))),
    subject("to bf16", "x", |t| one(t[0].to_dtype(DType::BF16))),
    subject("sum", "x", |t| one(t[0].sum([0, 1], false))),
    subject("sum rows", "x", |t| one(t[0].sum(1, false))),
    subject("sum columns", "x", |t| one(t[0].sum(0, false))),
    subject("mean rows", "x", |t| one(t[0].mean(1, false))),
    subject("amax columns", "x", |t| one(t[0].amax(0, false))),
    subject("max rows", "x", |t| two(t[0].max_dim(1, false))),
    subject("argmax", "x", |t| one(t[0].argmax(1, false))),
    subject("var", "x", |t| one(t[0].var(1, 1, false))),
    subject("norm", "x", |t| {
        one(linalg::vector_norm(&t[0], 2.0, 1, false))
    }),
    subject("logsumexp", "x", |t| one(t[0].logsumexp(1, false))),
    subject("any", "m", |t| one(t[0].any(1, false))),
    subject("cumsum", "x", |t| one(t[0].cumsum(1))),
    subject("softmax", "x", |t| one(t[0].softmax(1))),
    subject("log_softmax", "x", |t| one(t[0].log_softmax(1))),
    subject("layer_norm", "xrr", |t| {
        one(t[0].layer_norm(t[1].shape(), Some(&t[1]), Some(&t[2]), 1e-5))
    }),
    subject("rms_norm", "xr", |t| {
        one(t[0].rms_norm(t[1].shape(), Some(&t[1]), 1e-5))
    }),
    subject("group_norm", "gww", |t| {
        one(t[0].group_norm(4, Some(&t[1]), Some(&t[2]), 1e-5))
    }),
    subject("batch_norm", "gww", |t| {
        let options = BatchNormOptions {
            weight: Some(&t[1]),
            bias: Some(&t[2]),
            training: true,
            ..Default::default()
        };
        one(t[0].batch_norm(None, None, &options))
    }),
    subject("sort", "x", |t| two(t[0].sort(1, false))),
    subject("topk", "x", |t| two(t[0].topk(10, 1, true))),
    subject("transpose", "x", |t| {
        one(t[0].transpose(0, 1)?.contiguous())
    }),
    subject("cat", "xy", |t| one(Tensor::cat(&[&t[0], &t[1]], 1))),
    subject("index_select", "xj", |t| one(t[0].index_select(0, &t[1]))),
    subject("gather", "xi", |t| one(t[0].gather(1, &t[1]))),
    subject("scatter_add", "xiy", |t| {
        one(t[0].scatter_add(1, &t[1], &t[2]))
    }),
    subject("flip", "x", |t| one(t[0].flip([1]))),
    subject("roll", "x", |t| one(t[0].roll([3], [1]))),
    subject("pad", "x", |t| {
        one(t[0].pad([2, 3], PadMode::Constant(0.into())))
    }),
    subject("tril", "x", |t| one(t[0].tril(0))),
    subject("matmul", "ab", |t| one(t[0].matmul(&t[1]))),
    subject("matmul bf16", "AB", |t| one(t[0].matmul(&t[1]))),
    subject("bmm", "de", |t| one(t[0].bmm(&t[1]))),
    subject("linear", "abv", |t| one(t[0].linear(&t[1], Some(&t[2])))),
    subject("mv", "av", |t| one(t[0].mv(&t[1]))),
    subject("outer", "vv", |t| one(t[0].outer(&t[1]))),
    subject("einsum", "de", |t| {
        one(Tensor::einsum("bij,bkj->bik", &[&t[0], &t[1]]))
    }),
    subject("conv2d 3x3", "gkw", |t| {
        one(t[0].conv2d(&t[1], Some(&t[2]), &padded()))
    }),
    subject("conv2d 1x1", "gow", |t| {
        one(t[0].conv2d(&t[1], Some(&t[2]), &ConvOptions::default()))
    }),
    subject("conv2d of channels", "gl", |t| {
        let options = ConvOptions {
            groups: t[0].shape()[1],
            ..padded()
        };
        one(t[0].conv2d(&t[1], None, &options))
    }),
    subject("max_pool2d", "g", |t| {
        one(t[0].max_pool2d([2; 2], &MaxPoolOptions::default()))
    }),
    subject("avg_pool2d", "g", |t| {
        one(t[0].avg_pool2d([2; 2], &AvgPoolOptions::default()))
    }),
    subject("interpolate", "g", |t| {
        let options = InterpolateOptions {
            mode: InterpolateMode::Linear,
            ..Default::default()
        };
        let side = 2 * t[0].shape()[2];
        one(t[0].interpolate([side, side], &options))
    }),
    subject("cross_entropy", "xt", |t| {
        one(t[0].cross_entropy(&t[1], &CrossEntropyOptions::default()))
    }),
    subject("mse_loss", "xy", |t| {
        one(t[0].mse_loss(&t[1], None, Reduction::Mean))
    }),
    subject("embedding", "xj", |t| one(t[0].embedding(&t[1]))),
    subject("attention", "qqq", |t| attention(t, false)),
    subject("attention causal", "qqq", |t| attention(t, true)),
    subject("fft", "x", |t| {
        let x = t[0].to_dtype(DType::Complex64)?;
        one(fft::fft(&x, None, -1, FftNorm::Backward))
    }),
    subject("rfft", "x", |t| {
        one(fft::rfft(&t[0], None, -1, FftNorm::Backward))
    }),
    subject("rand", "x", |t| one(Tensor::rand(t[0].shape(), DType::F32))),
    subject("randn", "x", |t| {
        one(Tensor::randn(t[0].shape(), DType::F32))
    }),
];

fn main() {
    // `cargo bench` adds a flag.
    let args = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    let (mut threads, mut named, mut names) = (0, DeviceType::Cpu, Vec::new());
    for arg in args {
        if let Ok(number) = arg.parse() {
            threads = number;
        } else if let Ok(device) = arg.parse() {
            named = device;
        } else {
            names.push(arg);
        }
    }
    let found = backends(threads).into_iter();
    let device = found.into_iter().find(|b| b.info().device == named);
    let runtime = Runtime::new([device.expect("a device of this machine")]);
    let is_named = |s: &&Subject| names.is_empty() || names.iter().any(|name| name == s.name);
    with_runtime(&runtime, Routing::AUTO, || {
        manual_seed(1);
        for subject in SUBJECTS.iter().filter(is_named) {
            for size in &SIZES {
                match time(&runtime, subject, size) {
                    Ok(time) => {
                        println!("{}\t{}\t{:.9}", subject.name, size.name, time.as_secs_f64())
                    }
                    Err(error) => println!("{}\t{}\t{error}", subject.name, size.name),
                }
            }
        }
    });
}

/// The median of a call's times.
fn time(runtime: &Runtime, subject: &Subject, size: &Size) -> RusTorchResult<Duration> {
    let operands: Vec<Tensor> = (subject.operands.chars())
        .map(|letter| operand(letter, size))
        .collect::<Result<_, _>>()?;
    eval_all(&operands.iter().collect::<Vec<_>>())?;
    let call = || -> Results {
        let results = (subject.call)(&operands)?;
        eval_all(&results.iter().collect::<Vec<_>>())?;
        Ok(results)
    };
    // The reads wait for the device, whose work belongs to the calls.
    let calls = |count: usize| -> RusTorchResult<Duration> {
        let start = Instant::now();
        (1..count).try_for_each(|_| call().map(|results| drop(black_box(results))))?;
        for result in call()? {
            runtime.read(&result.storage()?, 0, &mut [0])?;
        }
        Ok(start.elapsed() / count as u32)
    };
    // The first ones compile, take memory and copy operands.
    calls(3)?;
    let batch = (BATCH.as_nanos() / calls(2)?.as_nanos().max(1)).clamp(1, 1000) as usize;
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < CALLS || start.elapsed() < TIME {
        times.push(calls(batch)?);
    }
    times.sort();
    Ok(times[times.len() / 2])
}
