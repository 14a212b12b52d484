//! Cost of running a graph besides its kernels: `cargo bench -p rustorch-runtime`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustorch_cpu::Cpu;
use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

/// Runs of which the mean is taken.
const RUNS: u32 = 2000;
/// Means of which the least is shown: the one that was disturbed least.
const ROUNDS: usize = 50;

fn measure(what: &str, mut run: impl FnMut()) {
    let round = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..RUNS).for_each(|_| run());
        start.elapsed() / RUNS
    };
    run();
    let best: Duration = (0..ROUNDS)
        .map(|_| round(&mut run))
        .min()
        .unwrap_or_default();
    println!("{what:<44} {:>8.3} µs", best.as_secs_f64() * 1e6);
}

fn main() {
    let mut graph = Graph::new();
    let x = graph
        .input(TensorType::new([4], DType::F32))
        .expect("an input");
    let y = graph.unary(UnaryOp::Neg, x).expect("an operation");
    graph.output(y);
    let runtime = Runtime::new([Arc::new(Cpu::new(0)) as Arc<dyn Backend>]);
    let input = HostBuffer::zeroed(16).map(Storage::from_host);
    let inputs = [input.expect("16 bytes")];
    measure("one operation, looked up among known graphs", || {
        let outputs = runtime.run(&graph, &inputs, Routing::AUTO);
        black_box(outputs.expect("a result"));
    });
    let executable = runtime.prepare(graph.clone(), Routing::AUTO);
    let mut outputs = Vec::new();
    measure("one operation, replayed", || {
        let ran = executable.run_into(&[&inputs], &mut outputs);
        ran.expect("a result");
    });
}
