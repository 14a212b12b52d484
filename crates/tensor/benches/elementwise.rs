//! Time of one elementwise operation on 64 Mi elements, and of eight in one launch.
//!
//! `cargo bench -p rustorch-tensor --bench elementwise -- [DEVICE] [THREADS]`, on the CPU unless
//! another device is named.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use rustorch_ir::ops::{Activation, ActivationKind, BinaryOp, UnaryOp};
use rustorch_ir::{DType, Graph, OpError, TensorType, ValueId};
use rustorch_runtime::{Backend, DeviceBuffer, DeviceType, NoProbe};
use rustorch_tensor::backends;

const ELEMENTS: usize = 64 << 20;
const RUNS: usize = 15;

fn main() {
    // `cargo bench` adds a flag.
    let args: Vec<String> = std::env::args().skip(1).collect();
    let named = args.iter().find_map(|arg| arg.parse::<DeviceType>().ok());
    let threads = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(0);
    let (named, found) = (named.unwrap_or(DeviceType::Cpu), backends(threads));
    let device = found.iter().find(|b| b.info().device == named);
    let device = &**device.expect("a device of this machine");
    println!("{}, {ELEMENTS} elements", device.info().name);
    for (key, value) in &device.info().details {
        println!("  {key}: {value}");
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let graphs: [Build; 3] = [|g, x, _| g.mul_scalar(x, 1.5), |g, x, y| g.mul(x, y), chain];
        let [scaled, multiplied, chained] = best(graphs.map(|build| launch(device, dtype, build)));
        let bytes = (ELEMENTS * dtype.size().expect("a scalar")) as f64;
        let report = |name: &str, time: f64, tensors: f64| {
            println!(
                "{dtype:5} {name:20} {:6.1} ms {:5.1} GB/s {:5.2}",
                1e3 * time,
                tensors * bytes / time / 1e9,
                time / scaled,
            );
        };
        report("x * a", scaled, 2.0);
        report("x * y", multiplied, 3.0);
        report("8 operations", chained, 3.0);
    }
}

/// Puts operations on two values into a graph.
type Build = fn(&mut Graph, ValueId, ValueId) -> Result<ValueId, OpError>;

/// Eight operations on two tensors and scalars.
fn chain(g: &mut Graph, x: ValueId, y: ValueId) -> Result<ValueId, OpError> {
    let dtype = g.ty(x).dtype;
    let kind = ActivationKind::Relu;
    let v = g.mul_scalar(x, 1.5)?;
    let v = g.add_scalar(v, 0.25)?;
    let v = g.push(Activation { kind }, &[v])?;
    let v = g.add_scalar(v, -2.0)?;
    let v = g.unary(UnaryOp::Abs, v)?;
    let least = g.constant(0.5, dtype)?;
    let v = g.binary(BinaryOp::Maximum, v, least)?;
    let v = g.mul(v, y)?;
    g.add_scalar(v, 3.0)
}

/// A run of a graph of two operands on memory of its own.
fn launch(device: &dyn Backend, dtype: DType, build: Build) -> impl Fn() {
    let mut graph = Graph::new();
    let ty = TensorType::new([ELEMENTS], dtype);
    let operands = [(); 2].map(|()| graph.input(ty.clone()).expect("a valid type"));
    let result = build(&mut graph, operands[0], operands[1]).expect("a valid graph");
    graph.output(result);
    let program = device.compile(&graph).expect("kernels for all operations");
    let memory = || -> Arc<dyn DeviceBuffer> {
        let buffer = device.memory().alloc(ty.bytes()).expect("enough memory");
        // SAFETY: nothing else knows the buffer.
        unsafe { buffer.write(0, &vec![0x11; ty.bytes()]) }.expect("memory to write to");
        buffer
    };
    let (inputs, outputs) = ([memory(), memory()], [memory()]);
    move || {
        program.run(&inputs, &outputs, &NoProbe).expect("no faults");
        black_box(&outputs);
    }
}

/// The shortest run of each, in seconds; they take turns.
fn best<const N: usize>(launches: [impl Fn(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    for _ in 0..RUNS {
        for (best, launch) in best.iter_mut().zip(&launches) {
            let start = Instant::now();
            launch();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best
}
