//! Time of single operations at the sizes that PyTorch is compared at.
//!
//! `cargo bench -p rustorch-tensor --bench operations -- [DEVICE] [THREADS [MIB…]] [DTYPE] [NAME…] [told]`
//!
//! Without sizes the table is that of the GPUs: an operation runs several times in one program,
//! each time on memory of its own. So neither caches nor the start of a program count.
//!
//! With sizes, an operation runs by itself, again and again on the same operands. The default sizes
//! are 1 and 256 MiB of `f32`; a DTYPE may be named. The work around it counts as well. A `matmul`
//! has as many rows and columns as a size says, 256 to 2048:
//!
//! | column | what is timed |
//! | --- | --- |
//! | into | a compiled program, its result in memory that is there: PyTorch's `out=` |
//! | replay | a `Trace` run with `run_into` |
//! | fresh | operations on `Tensor`s, and their result dropped: PyTorch's functions |
//!
//! `scripts/peer-torch.py` prints the same rows for PyTorch.
//!
//! With `told`, the table compares the times that `explain` reports with the clock. The operation
//! runs several times in one program, of which a timed run reports one launch. It also runs by
//! itself in a program of its own, whose runs on the same operands are queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use half::{bf16, f16};
use rustorch_ir::{DType, Op, TensorType};
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceType, HostBuffer, LaunchTime, NoProbe, Nodes, Probe,
    Program, Routing, Runtime, Storage,
};
use rustorch_tensor::nn::ConvOptions;
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor, Trace, backends, with_runtime};

/// Runs of a program, of which the median counts.
const RUNS: usize = 15;

/// Times that an operation is in a program.
const TIMES: usize = 8;

/// Elements of a row of operands whose size was chosen.
const WIDTH: usize = 1024;

/// Elements of an operation of which fewer runs are enough.
const LARGE: usize = 1 << 24;

struct Subject {
    name: &'static str,
    dtype: DType,
    operands: &'static [Operand],
    build: fn(&[Tensor]) -> RusTorchResult<Tensor>,
    /// Multiplications and additions.
    operations: f64,
}

enum Operand {
    /// A matrix with the side that was chosen; 4096 where none was.
    Square,
    /// Always of this shape.
    Fixed(&'static [usize]),
    /// Rows as many as fill the size that was chosen; 8192 × 8192 where none was.
    Rows,
    /// One of these rows.
    Row,
}

use Operand::{Fixed, Row, Rows, Square};

const HEADS: Operand = Fixed(&[4, 32, 4096, 128]);

const SUBJECTS: &[Subject] = &[
    elementwise("add", &[Rows, Rows], |x| x[0].add(&x[1])),
    elementwise("gelu", &[Rows], |x| x[0].gelu()),
    elementwise("softmax", &[Rows], |x| x[0].softmax(1)),
    elementwise("sum", &[Rows], |x| x[0].sum([0, 1], false)),
    elementwise("sum of rows", &[Rows], |x| x[0].sum([1], false)),
    elementwise("layer_norm", &[Rows, Row, Row], |x| {
        x[0].layer_norm(x[1].shape(), Some(&x[1]), Some(&x[2]), 1e-5)
    }),
    elementwise("exp", &[Rows], |x| x[0].exp()),
    elementwise("tanh", &[Rows], |x| x[0].tanh()),
    elementwise("sigmoid", &[Rows], |x| x[0].sigmoid()),
    elementwise("8 operations", &[Rows, Rows], |x| {
        let y = x[0].mul(1.5)?.add(&x[1])?.sigmoid()?.mul(&x[0])?;
        y.tanh()?.sub(&x[1])?.abs()?.sqrt()
    }),
    Subject {
        name: "matmul",
        dtype: DType::BF16,
        operands: &[Square, Square],
        build: |x| x[0].matmul(&x[1]),
        operations: 2.0 * 4096.0 * 4096.0 * 4096.0,
    },
    Subject {
        name: "matmul",
        dtype: DType::F32,
        operands: &[Square, Square],
        build: |x| x[0].matmul(&x[1]),
        operations: 2.0 * 4096.0 * 4096.0 * 4096.0,
    },
    Subject {
        name: "conv2d",
        dtype: DType::BF16,
        operands: &[Fixed(&[32, 64, 56, 56]), Fixed(&[64, 64, 3, 3])],
        build: |x| {
            let options = ConvOptions {
                padding: [1; 2].into(),
                ..Default::default()
            };
            x[0].conv2d(&x[1], None, &options)
        },
        operations: 2.0 * 32.0 * 64.0 * 56.0 * 56.0 * 64.0 * 9.0,
    },
    Subject {
        name: "attention, causal",
        dtype: DType::BF16,
        operands: &[HEADS, HEADS, HEADS],
        build: |x| {
            let options = AttentionOptions {
                is_causal: true,
                ..AttentionOptions::default()
            };
            x[0].scaled_dot_product_attention(&x[1], &x[2], options)
        },
        operations: 2.0 * 4.0 * 32.0 * 4096.0 * 4096.0 * 128.0,
    },
];

/// A subject whose time is that of memory.
const fn elementwise(
    name: &'static str,
    operands: &'static [Operand],
    build: fn(&[Tensor]) -> RusTorchResult<Tensor>,
) -> Subject {
    Subject {
        name,
        dtype: DType::F32,
        operands,
        build,
        operations: 0.0,
    }
}

impl Subject {
    /// Is its size to be chosen, and, where products of several types are listed, its type this?
    fn is_sized(&self, dtype: DType) -> bool {
        self.operands.iter().any(|o| matches!(o, Rows)) || self.is_square() && self.dtype == dtype
    }

    /// Is its size the side of matrices?
    fn is_square(&self) -> bool {
        self.operands.iter().any(|o| matches!(o, Square))
    }

    /// Its operands' types.
    fn types(&self, [rows, width]: [usize; 2], side: usize, dtype: DType) -> Vec<TensorType> {
        let ty = |operand: &Operand| match operand {
            Square => TensorType::new([side, side], dtype),
            Fixed(shape) => TensorType::new(*shape, dtype),
            Rows => TensorType::new([rows, width], dtype),
            Row => TensorType::new([width], dtype),
        };
        self.operands.iter().map(ty).collect()
    }

    /// It, recorded `times` times, each with operands of its own.
    fn trace(&self, types: &[TensorType], times: usize) -> Trace {
        let placeholder = |ty: &TensorType| Tensor::placeholder(&*ty.shape, ty.dtype);
        let operands: Vec<Tensor> = (0..times)
            .flat_map(|_| types.iter().map(placeholder))
            .collect::<Result<_, _>>()
            .expect("valid types");
        let results: Vec<Tensor> = (operands.chunks(types.len()))
            .map(self.build)
            .collect::<Result<_, _>>()
            .expect("a valid graph");
        let (operands, results): (Vec<_>, Vec<_>) =
            (operands.iter().collect(), results.iter().collect());
        Trace::new(&operands, &results).expect("a recording")
    }
}

fn main() {
    // `cargo bench` adds a flag.
    let args = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    let (mut numbers, mut named, mut dtype, mut names) = (Vec::new(), None, None, Vec::new());
    let mut is_told = false;
    for arg in args {
        if arg == "told" {
            is_told = true;
        } else if let Ok(number) = arg.parse::<usize>() {
            numbers.push(number);
        } else if let Ok(device) = arg.parse::<DeviceType>() {
            named = Some(device);
        } else if let Ok(ty) = arg.parse::<DType>() {
            dtype = Some(ty);
        } else {
            names.push(arg);
        }
    }
    let threads = numbers.first().copied().unwrap_or(0);
    let sizes = numbers.get(1..).unwrap_or_default();
    let (named, found) = (named.unwrap_or(DeviceType::Cpu), backends(threads));
    let device = found.into_iter().find(|b| b.info().device == named);
    let device = device.expect("a device of this machine");
    println!("{}", device.info().name);
    for (key, value) in &device.info().details {
        println!("  {key}: {value}");
    }
    let is_named = |s: &&Subject| names.is_empty() || names.iter().any(|name| name == s.name);
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(is_named).collect();
    let runtime = Runtime::new([device.clone()]);
    with_runtime(&runtime, Routing::AUTO, || match sizes {
        sizes if is_told => {
            println!("{:24}     alone      told    ratio", "");
            let mib = sizes.first().copied();
            subjects.into_iter().for_each(|s| told(&*device, s, mib));
        }
        [] => subjects.into_iter().for_each(|s| together(&*device, s)),
        sizes => {
            println!("{:40}      into    replay     fresh", "");
            let dtype = dtype.unwrap_or(DType::F32);
            for &mib in sizes {
                let sized = subjects.iter().filter(|s| s.is_sized(dtype));
                sized.for_each(|s| alone(&*device, s, dtype, mib));
            }
        }
    });
}

/// Prints what the operation takes where it runs several times.
fn together(device: &dyn Backend, subject: &Subject) {
    let types = subject.types([8192; 2], 4096, subject.dtype);
    let trace = subject.trace(&types, TIMES);
    let (program, outputs) = compile(device, &trace);
    let inputs: Vec<_> = (0..TIMES)
        .flat_map(|_| types.iter().map(|ty| memory(device, ty)))
        .collect();
    let seconds = median(RUNS, || run(&*program, &inputs, &outputs)) / TIMES as f64;
    let results = trace.outputs().iter().map(TensorType::bytes).sum::<usize>() / TIMES;
    let bytes = types.iter().map(TensorType::bytes).sum::<usize>() + results;
    let rate = match subject.operations {
        0.0 => format!("{:7.1} GB/s", bytes as f64 / seconds / 1e9),
        n => format!("{:7.1} TFLOP/s", n / seconds / 1e12),
    };
    let Subject { name, dtype, .. } = subject;
    println!("{name:18} {dtype:5} {:8.4} ms {rate}", 1e3 * seconds);
}

/// The time that a run tells of all its launches.
struct Told {
    begin: Instant,
    nanoseconds: AtomicU64,
}

impl Probe for Told {
    fn before(&self, _: usize, _: &Op) -> Result<(), DeviceError> {
        Ok(())
    }

    fn timed_since(&self) -> Option<Instant> {
        Some(self.begin)
    }

    fn took(&self, _: &Arc<[Nodes]>, _: usize, times: &[LaunchTime]) {
        let sum = times.iter().map(|launch| launch.time).sum();
        self.nanoseconds.fetch_add(sum, Ordering::Relaxed);
    }
}

/// Prints the operation's time by itself, and the time that a run reports. Operands are `mib` MiB,
/// or as large as those of GPUs.
fn told(device: &dyn Backend, subject: &Subject, mib: Option<usize>) {
    let size = subject.dtype.size().expect("elements of bytes");
    let types = match mib {
        Some(mib) => subject.types([(mib << 20) / WIDTH / size, WIDTH], 1024, subject.dtype),
        None => subject.types([8192; 2], 4096, subject.dtype),
    };
    let [(one, result), (several, results)] =
        [1, TIMES].map(|times| compile(device, &subject.trace(&types, times)));
    let inputs: Vec<_> = (0..TIMES)
        .flat_map(|_| types.iter().map(|ty| memory(device, ty)))
        .collect();
    let operands: Vec<_> = inputs.chunks(types.len()).collect();
    let (last, before) = operands.split_last().expect("several times");
    // A device has the next run before one is waited for.
    let alone = median(RUNS, || {
        for operands in before {
            one.run(operands, &result, &NoProbe).expect("no faults");
        }
        run(&*one, last, &result);
    }) / TIMES as f64;
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let told = Told {
                begin: Instant::now(),
                nanoseconds: AtomicU64::new(0),
            };
            let ran = several.run(&inputs, &results, &told);
            ran.expect("no faults");
            1e-9 * told.nanoseconds.into_inner() as f64 / TIMES as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let told = times[RUNS / 2];
    let label = format!("{} {}", subject.name, subject.dtype);
    let ratio = told / alone;
    println!(
        "{label:24} {:9.4} {:9.4} {ratio:8.2}",
        1e3 * alone,
        1e3 * told
    );
}

/// Prints what the operation takes by itself, on `mib` MiB, or on matrices with that side.
fn alone(device: &dyn Backend, subject: &Subject, dtype: DType, mib: usize) {
    let rows = (mib << 20) / WIDTH / dtype.size().expect("elements of bytes");
    let types = subject.types([rows, WIDTH], mib, dtype);
    let trace = subject.trace(&types, 1);
    let (program, outputs) = compile(device, &trace);
    let storages: Vec<Storage> = types
        .iter()
        .map(|ty| Storage::from_host(numbers(ty)))
        .collect();
    let tensors: Vec<Tensor> = (storages.iter().zip(&types))
        .map(|(storage, ty)| Tensor::from_storage(storage.clone(), &*ty.shape, ty.dtype))
        .collect::<Result<_, _>>()
        .expect("tensors");
    let inputs: Vec<_> = types.iter().map(|ty| memory(device, ty)).collect();
    // An element of a product is worth hundreds.
    let work = match subject.is_square() {
        true => mib.pow(3) / 256,
        false => rows * WIDTH,
    };
    let runs = if work < LARGE { 20 * RUNS } else { RUNS / 2 };
    let into = median(runs, || run(&*program, &inputs, &outputs));
    let mut results = Vec::new();
    let replay = median(runs, || {
        trace.run_into(&storages, &mut results).expect("no faults")
    });
    let fresh = median(runs, || {
        (subject.build)(&tensors)
            .and_then(|result| result.eval().map(drop))
            .expect("a result");
    });
    let unit = if subject.is_square() { "" } else { " MiB" };
    let label = format!("{} {dtype} {mib}{unit}", subject.name);
    let [into, replay, fresh] = [into, replay, fresh].map(|seconds| 1e3 * seconds);
    println!("{label:40} {into:9.4} {replay:9.4} {fresh:9.4} ms");
}

/// A recording as a program, and memory for its results.
fn compile(device: &dyn Backend, trace: &Trace) -> (Box<dyn Program>, Vec<Arc<dyn DeviceBuffer>>) {
    let program = device.compile(trace.executable().graph());
    let outputs = trace.outputs().iter().map(|ty| memory(device, ty));
    (
        program.expect("kernels for the operation"),
        outputs.collect(),
    )
}

/// Pseudo-random numbers from -1 to 1 in memory of the device.
fn memory(device: &dyn Backend, ty: &TensorType) -> Arc<dyn DeviceBuffer> {
    let adopted = device.memory().adopt(&numbers(ty));
    adopted.expect("enough memory")
}

/// Pseudo-random numbers from -1 to 1.
fn numbers(ty: &TensorType) -> HostBuffer {
    let buffer = HostBuffer::uninit(ty.bytes()).expect("enough memory");
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    // SAFETY: nothing else knows the buffer, which is as long.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr(), ty.bytes()) };
    match ty.dtype {
        DType::BF16 => {
            let values = bytes.as_chunks_mut().0.iter_mut();
            values.for_each(|value| *value = bf16::from_f32(next()).to_ne_bytes());
        }
        DType::F16 => {
            let values = bytes.as_chunks_mut().0.iter_mut();
            values.for_each(|value| *value = f16::from_f32(next()).to_ne_bytes());
        }
        _ => {
            let values = bytes.as_chunks_mut().0.iter_mut();
            values.for_each(|value| *value = next().to_ne_bytes());
        }
    }
    buffer
}

fn run(program: &dyn Program, inputs: &[Arc<dyn DeviceBuffer>], outputs: &[Arc<dyn DeviceBuffer>]) {
    program.run(inputs, outputs, &NoProbe).expect("no faults");
    // Work that goes on behind the caller's back is over when a result can be read.
    let mut first = [0; 2];
    // SAFETY: nothing else uses the buffer.
    unsafe { outputs[outputs.len() - 1].read(0, &mut first) }.expect("a result");
}

/// The median of some runs' seconds.
fn median(runs: usize, mut run: impl FnMut()) -> f64 {
    // The first ones take memory and make a recording.
    (0..3).for_each(|_| run());
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}
