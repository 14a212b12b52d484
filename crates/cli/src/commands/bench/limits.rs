//! What the device that computes a model can do at most, measured on it: bytes of memory and
//! products of matrices a second.

use std::time::Duration;

use anyhow::{Context, Result};
use rustorch_ir::ops::{Distribution, Random, UnaryOp};
use rustorch_ir::{DType, Graph, OpError, Shape, TensorType, ValueId};
use rustorch_runtime::{DeviceType, HostBuffer, Routing, Runtime, Storage};

use super::bandwidth;
use super::kernels::fastest_run;
use crate::output::note;

/// Runs take at least this long, so that launching them does not count.
const LONG: Duration = Duration::from_millis(2);
/// Elements of the smallest and largest vector that is copied.
const VECTORS: [usize; 2] = [1 << 22, 1 << 30];
/// Rows and columns of the smallest and largest matrices.
const MATRICES: [usize; 2] = [256, 8192];
/// Of the memory that is free, the part that an operand may take.
const PART: u64 = 8;

/// What a device reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) device: DeviceType,
    /// Bytes a second: read by the threads of the CPU, elsewhere read and written by a copy.
    pub(super) bandwidth: Option<f64>,
    /// Operations a second, a multiplication and an addition being two, of a product of `bf16`
    /// matrices; not known of the CPU.
    pub(super) matrix_rate: Option<f64>,
}

impl Limits {
    /// Measures the device that most of the work ran on.
    pub(super) fn measure(runtime: &Runtime, threads: usize) -> Self {
        let used = runtime.used_devices();
        let most = used.iter().max_by_key(|(_, runs)| *runs);
        let device = most.map_or(DeviceType::Cpu, |(device, _)| *device);
        let (bandwidth, matrix_rate) = match device {
            DeviceType::Cpu | DeviceType::Reference => (bandwidth::measure(threads), None),
            _ => {
                let told = |what: &str, rate: Result<f64>| {
                    let problem = |e| note(format_args!("{what} was not measured: {e:#}"));
                    rate.map_err(problem).ok()
                };
                (
                    told("memory", copy_rate(runtime, device)),
                    told("a matrix product", matrix_rate(runtime, device)),
                )
            }
        };
        runtime.memory().trim();
        Self {
            device,
            bandwidth,
            matrix_rate,
        }
    }
}

/// Bytes read and written in a second by a negation.
fn copy_rate(runtime: &Runtime, device: DeviceType) -> Result<f64> {
    let time = |len: usize| {
        let shape = Shape::from([len].as_slice());
        time(runtime, device, shape, DType::F32, |g, x| {
            g.unary(UnaryOp::Neg, x)
        })
    };
    let bytes = |len: usize| len * size_of::<f32>();
    let (len, time) = longest(runtime, device, VECTORS, bytes, time)?;
    Ok((2 * bytes(len)) as f64 / time.as_secs_f64())
}

/// Operations in a second of a product of square matrices.
fn matrix_rate(runtime: &Runtime, device: DeviceType) -> Result<f64> {
    let time = |n: usize| {
        let shape = Shape::from([n, n].as_slice());
        time(runtime, device, shape, DType::BF16, |g, x| g.matmul(x, x))
    };
    let bytes = |n: usize| n * n * size_of::<u16>();
    let (n, time) = longest(runtime, device, MATRICES, bytes, time)?;
    Ok(2.0 * (n as f64).powi(3) / time.as_secs_f64())
}

/// The first of these sizes, each twice the one before, that takes long enough, or for whose
/// double there is no room; with its time.
fn longest(
    runtime: &Runtime,
    device: DeviceType,
    [mut size, largest]: [usize; 2],
    bytes: impl Fn(usize) -> usize,
    time: impl Fn(usize) -> Result<Duration>,
) -> Result<(usize, Duration)> {
    let pools = runtime.memory().pools();
    let pool = pools.iter().find(|pool| pool.device == device);
    let free = pool.and_then(|pool| pool.free).unwrap_or(u64::MAX);
    loop {
        let took = time(size)?;
        let next = 2 * size;
        if took >= LONG || next > largest || bytes(next) as u64 > free / PART {
            return Ok((size, took));
        }
        size = next;
    }
}

/// The time of an operation on random numbers, which come to be on the device.
fn time(
    runtime: &Runtime,
    device: DeviceType,
    shape: Shape,
    dtype: DType,
    build: impl Fn(&mut Graph, ValueId) -> Result<ValueId, OpError>,
) -> Result<Duration> {
    let routing = Routing {
        device,
        strict: true,
        ..Routing::AUTO
    };
    let mut numbers = Graph::new();
    let random = Random {
        distribution: Distribution::Normal,
        shape: shape.clone(),
        dtype,
    };
    let key = numbers.input(TensorType::new([2], DType::I64))?;
    let drawn = numbers.push(random, &[key])?;
    numbers.output(drawn);
    let key = HostBuffer::zeroed(16).map(Storage::from_host);
    let key = key.context("the host is out of memory")?;
    let inputs = runtime.run(&numbers, &[key], routing)?;
    let mut graph = Graph::new();
    let input = graph.input(TensorType::new(shape, dtype))?;
    let output = build(&mut graph, input)?;
    graph.output(output);
    fastest_run(runtime, graph, routing, &inputs)
}
