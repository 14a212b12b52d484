//! Elementwise operations on so many elements that a thread has several.

mod common;

use std::process::ExitCode;
use std::sync::Arc;

use common::{Gpus, run};
use rustorch_ir::ops::{BinaryOp, UnaryOp};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};
use rustorch_testing::tests;

/// No multiple of what a group takes.
const ELEMENTS: usize = (1 << 18) + 12_345;

/// `|x · y| + x`, whose every operation is rounded alike on all devices.
fn graph(dtype: DType) -> Graph {
    let mut g = Graph::new();
    let ty = TensorType::new([ELEMENTS], dtype);
    let [x, y] = [(); 2].map(|()| g.input(ty.clone()).unwrap());
    let product = g.mul(x, y).unwrap();
    let size = g.unary(UnaryOp::Abs, product).unwrap();
    let sum = g.binary(BinaryOp::Add, size, x).unwrap();
    g.output(sum);
    g
}

fn compute(backend: Arc<dyn Backend>, dtype: DType) -> Vec<u8> {
    let runtime = Runtime::new(vec![backend]);
    let bytes = ELEMENTS * dtype.size().unwrap();
    let storage = |factor: usize| {
        // Small integers, and as floating-point numbers of all dtypes small numbers, too.
        let values: Vec<u8> = (0..bytes).map(|i| (i * factor % 53) as u8).collect();
        Storage::from_host(HostBuffer::copy_of(&values).unwrap())
    };
    let executable = runtime.prepare(graph(dtype), Routing::AUTO);
    let outputs = executable.run(&[storage(7), storage(11)]).unwrap();
    let mut result = vec![0; bytes];
    runtime.read(&outputs[0], 0, &mut result).unwrap();
    result
}

fn large_tensors_equal_those_of_the_cpu(gpus: &Gpus) {
    for dtype in [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::U8,
    ] {
        for gpu in gpus {
            let expected = compute(Arc::new(rustorch_cpu::Cpu::new(0)), dtype);
            assert!(compute(gpu.clone(), dtype) == expected, "{dtype}");
        }
    }
}

fn main() -> ExitCode {
    run(tests![large_tensors_equal_those_of_the_cpu])
}
