//! Two operations that show most of a device's speed: one that only moves memory, and a product of
//! matrices.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Graph, OpError, TensorType, ValueId};
use rustorch_runtime::{HostBuffer, Routing, Runtime, Storage};

/// Elements that are streamed: beyond most caches.
const STREAM: usize = 16 << 20;
/// Rows and columns of the matrices that are multiplied.
const MATRIX: usize = 1024;
/// Number of runs of each; the fastest counts.
const RUNS: usize = 5;

/// The rates of a device, in single precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Bytes that a negation reads and writes per second.
    pub(crate) bytes_per_second: f64,
    /// Operations, an addition and a multiplication being two, in a second by a product of
    /// two square matrices.
    pub(crate) operations_per_second: f64,
}

/// Measures the only device of `runtime`.
pub(crate) fn measure(runtime: &Runtime) -> Result<Rates> {
    let stream = fastest(runtime, [STREAM, 1], |g, x| g.unary(UnaryOp::Neg, x))?;
    let product = fastest(runtime, [MATRIX; 2], |g, x| g.matmul(x, x))?;
    Ok(Rates {
        bytes_per_second: (2 * STREAM * size_of::<f32>()) as f64 / stream.as_secs_f64(),
        operations_per_second: 2.0 * (MATRIX as f64).powi(3) / product.as_secs_f64(),
    })
}

/// The time of the fastest of some runs of a graph of one input, which is all ones.
fn fastest(
    runtime: &Runtime,
    shape: [usize; 2],
    build: impl Fn(&mut Graph, ValueId) -> Result<ValueId, OpError>,
) -> Result<Duration> {
    let mut graph = Graph::new();
    let input = graph.input(TensorType::new(shape, DType::F32))?;
    let output = build(&mut graph, input)?;
    graph.output(output);
    let ones = vec![1_f32; shape.iter().product()];
    let bytes: Vec<u8> = ones.iter().flat_map(|x| x.to_le_bytes()).collect();
    let buffer = HostBuffer::copy_of(&bytes).context("not enough memory for the measurement")?;
    let inputs = [Storage::from_host(buffer)];
    fastest_run(runtime, graph, Routing::AUTO, &inputs)
}

/// The time of the fastest of some runs of a graph.
pub(super) fn fastest_run(
    runtime: &Runtime,
    graph: Graph,
    routing: Routing,
    inputs: &[Storage],
) -> Result<Duration> {
    let (executable, mut outputs) = (runtime.prepare(graph, routing), Vec::new());
    let mut run = || -> Result<Duration> {
        let start = Instant::now();
        executable.run_into(&[inputs], &mut outputs)?;
        // Work that goes on behind the caller's back is over when a result can be read.
        runtime.read(&outputs[0], 0, &mut [0; 2])?;
        Ok(start.elapsed())
    };
    // The first one plans, compiles and takes memory.
    run()?;
    let times = (0..RUNS).map(|_| run()).collect::<Result<Vec<_>>>()?;
    Ok(times.into_iter().min().unwrap_or_default())
}
