//! Time of single operations at the sizes that PyTorch is compared at.
//!
//! `cargo bench -p rustorch-tensor --bench operations -- [DEVICE] [THREADS]`. An operation runs
//! several times in one program, each time on memory of its own, so that neither caches nor what
//! it costs to start a program count.

use std::sync::Arc;
use std::time::Instant;

use half::bf16;
use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BinaryOp, Conv2d, LayerNorm, Reduce, ReduceOp, Softmax,
};
use rustorch_ir::{DType, Graph, OpError, Param, TensorType, ValueId};
use rustorch_runtime::{Backend, DeviceBuffer, DeviceType, NoProbe, Program};
use rustorch_tensor::backends;

/// Runs of a program, of which the median counts.
const RUNS: usize = 15;

/// Times that an operation is in a program.
const TIMES: usize = 8;

/// Puts an operation on values into a graph.
type Build = fn(&mut Graph, &[ValueId]) -> Result<ValueId, OpError>;

struct Subject {
    name: &'static str,
    dtype: DType,
    operands: &'static [&'static [usize]],
    build: Build,
    /// Multiplications and additions.
    operations: f64,
}

const SQUARE: &[usize] = &[8192, 8192];
const MATRIX: &[usize] = &[4096, 4096];
const IMAGES: &[usize] = &[32, 64, 56, 56];
const HEADS: &[usize] = &[4, 32, 4096, 128];

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "add",
        dtype: DType::F32,
        operands: &[SQUARE, SQUARE],
        build: |g, x| g.binary(BinaryOp::Add, x[0], x[1]),
        operations: 0.0,
    },
    Subject {
        name: "gelu",
        dtype: DType::F32,
        operands: &[SQUARE],
        build: |g, x| {
            let kind = ActivationKind::Gelu;
            g.push(Activation { kind }, x)
        },
        operations: 0.0,
    },
    Subject {
        name: "softmax",
        dtype: DType::F32,
        operands: &[SQUARE],
        build: |g, x| g.push(Softmax { dim: 1 }, x),
        operations: 0.0,
    },
    Subject {
        name: "sum",
        dtype: DType::F32,
        operands: &[SQUARE],
        build: |g, x| {
            let sum = Reduce {
                op: ReduceOp::Sum,
                dims: [0, 1].into_iter().collect(),
                keepdim: false,
            };
            g.push(sum, x)
        },
        operations: 0.0,
    },
    Subject {
        name: "layer_norm",
        dtype: DType::F32,
        operands: &[SQUARE, &[8192], &[8192]],
        build: |g, x| {
            let eps = Param(1e-5);
            g.push(LayerNorm { dims: 1, eps }, x)
        },
        operations: 0.0,
    },
    Subject {
        name: "matmul",
        dtype: DType::BF16,
        operands: &[MATRIX, MATRIX],
        build: |g, x| g.matmul(x[0], x[1]),
        operations: 2.0 * 4096.0 * 4096.0 * 4096.0,
    },
    Subject {
        name: "matmul",
        dtype: DType::F32,
        operands: &[MATRIX, MATRIX],
        build: |g, x| g.matmul(x[0], x[1]),
        operations: 2.0 * 4096.0 * 4096.0 * 4096.0,
    },
    Subject {
        name: "conv2d",
        dtype: DType::BF16,
        operands: &[IMAGES, &[64, 64, 3, 3]],
        build: |g, x| {
            let padding = [1; 2];
            g.push(
                Conv2d {
                    padding,
                    ..Conv2d::default()
                },
                x,
            )
        },
        operations: 2.0 * 32.0 * 64.0 * 56.0 * 56.0 * 64.0 * 9.0,
    },
    Subject {
        name: "attention, causal",
        dtype: DType::BF16,
        operands: &[HEADS, HEADS, HEADS],
        build: |g, x| {
            let attention = Attention {
                scale: Param(1.0 / 128_f64.sqrt()),
                causal: true,
                soft_cap: None,
                mask: false,
                past: false,
            };
            g.push(attention, x)
        },
        operations: 2.0 * 4.0 * 32.0 * 4096.0 * 4096.0 * 128.0,
    },
];

fn main() {
    // `cargo bench` adds a flag.
    let args: Vec<String> = std::env::args().skip(1).collect();
    let named = args.iter().find_map(|arg| arg.parse::<DeviceType>().ok());
    let threads = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(0);
    let (named, found) = (named.unwrap_or(DeviceType::Cpu), backends(threads));
    let device = found.iter().find(|b| b.info().device == named);
    let device = &**device.expect("a device of this machine");
    println!("{}", device.info().name);
    for (key, value) in &device.info().details {
        println!("  {key}: {value}");
    }
    for subject in SUBJECTS {
        let (seconds, bytes) = measure(device, subject);
        let rate = match subject.operations {
            0.0 => format!("{:7.1} GB/s", bytes / seconds / 1e9),
            n => format!("{:7.1} TFLOP/s", n / seconds / 1e12),
        };
        let Subject { name, dtype, .. } = subject;
        println!("{name:18} {dtype:5} {:8.4} ms {rate}", 1e3 * seconds);
    }
}

/// Seconds that the operation takes, and the bytes of its operands and its result.
fn measure(device: &dyn Backend, subject: &Subject) -> (f64, f64) {
    let mut graph = Graph::new();
    let mut types = Vec::new();
    let mut operands = Vec::new();
    for _ in 0..TIMES {
        let mut own = Vec::new();
        for &shape in subject.operands {
            let ty = TensorType::new(shape, subject.dtype);
            own.push(graph.input(ty.clone()).expect("a valid type"));
            types.push(ty);
        }
        operands.push(own);
    }
    let mut results = Vec::new();
    for own in &operands {
        let result = (subject.build)(&mut graph, own).expect("a valid graph");
        results.push(graph.ty(result).clone());
        graph.output(result);
    }
    let program = device.compile(&graph).expect("kernels for the operation");
    let inputs: Vec<_> = types.iter().map(|ty| memory(device, ty)).collect();
    let outputs: Vec<_> = results.iter().map(|ty| memory(device, ty)).collect();
    let bytes = |ty: &TensorType| ty.bytes() as f64;
    let moved: f64 = types.iter().chain(&results).map(bytes).sum();
    (
        median(&*program, &inputs, &outputs) / TIMES as f64,
        moved / TIMES as f64,
    )
}

/// Memory of pseudo-random numbers from -1 to 1.
fn memory(device: &dyn Backend, ty: &TensorType) -> Arc<dyn DeviceBuffer> {
    let buffer = device.memory().alloc(ty.bytes()).expect("enough memory");
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let bytes: Vec<u8> = match ty.dtype {
        DType::BF16 => {
            let value = || bf16::from_f32(next()).to_ne_bytes();
            std::iter::repeat_with(value)
                .take(ty.bytes() / 2)
                .flatten()
                .collect()
        }
        _ => {
            let value = || next().to_ne_bytes();
            std::iter::repeat_with(value)
                .take(ty.bytes() / 4)
                .flatten()
                .collect()
        }
    };
    // SAFETY: nothing else knows the buffer.
    unsafe { buffer.write(0, &bytes) }.expect("memory to write to");
    buffer
}

fn median(
    program: &dyn Program,
    inputs: &[Arc<dyn DeviceBuffer>],
    outputs: &[Arc<dyn DeviceBuffer>],
) -> f64 {
    let run = || {
        let start = Instant::now();
        program.run(inputs, outputs, &NoProbe).expect("no faults");
        // Work that goes on behind the caller's back is over when a result can be read.
        let mut first = [0; 2];
        // SAFETY: nothing else uses the buffer.
        unsafe { outputs[outputs.len() - 1].read(0, &mut first) }.expect("a result");
        start.elapsed().as_secs_f64()
    };
    // The first ones take memory and make a recording.
    (0..3).for_each(|_| {
        run();
    });
    let mut times: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}
