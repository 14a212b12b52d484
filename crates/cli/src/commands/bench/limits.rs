//! Measured limits of the devices that compute a model: bytes of memory and products of matrices a second.

use std::time::Duration;

use anyhow::{Context, Result};
use rustorch_cpu::bandwidth;
use rustorch_ir::ops::{Distribution, Random, UnaryOp};
use rustorch_ir::{DType, Graph, OpError, Shape, TensorType, ValueId};
use rustorch_runtime::{DeviceType, HostBuffer, Routing, Runtime, Storage};
use serde::{Deserialize, Serialize};

use super::kernels::fastest_run;
use crate::output::note;

/// Runs take at least this long, so that launching them does not count.
const LONG: Duration = Duration::from_millis(2);
/// Elements of the smallest and largest vector that is copied.
const VECTORS: [usize; 2] = [1 << 22, 1 << 30];
/// Rows and columns of the smallest and largest matrices.
const MATRICES: [usize; 2] = [256, 8192];
/// The share of free memory that an operand may take.
const PART: u64 = 8;

/// The roofs of a device: its speed with work that needs memory only, and with work that needs products
/// only.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Roofs {
    pub(crate) device: String,
    /// Bytes that a copy of a large vector reads and writes per second.
    pub(crate) bytes_per_second: Option<f64>,
    /// Operations per second of large matrix products, by types.
    pub(crate) flops_per_second: Vec<(String, f64)>,
}

impl Roofs {
    /// Measures a device; measurements that are impossible there are left out.
    pub(crate) fn measure(runtime: &Runtime, device: DeviceType) -> Self {
        let bytes_per_second = copy_rate(runtime, device).ok();
        let products = [DType::F32, DType::BF16].map(|dtype| {
            let rate = matrix_rate(runtime, device, dtype).ok()?;
            Some((dtype.to_string(), rate))
        });
        runtime.memory().trim();
        Self {
            device: device.to_string(),
            bytes_per_second,
            flops_per_second: products.into_iter().flatten().collect(),
        }
    }
}

/// A device's measured limits.
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
    /// Measures the devices in use. The device that ran most comes first.
    pub(super) fn measure(runtime: &Runtime, threads: usize) -> Vec<Self> {
        let mut used = runtime.used_devices();
        used.sort_by_key(|&(_, runs)| std::cmp::Reverse(runs));
        let devices = used.into_iter().map(|(device, _)| device);
        devices.map(|d| Self::of(runtime, d, threads)).collect()
    }

    fn of(runtime: &Runtime, device: DeviceType, threads: usize) -> Self {
        let (bandwidth, matrix_rate) = match device {
            DeviceType::Cpu | DeviceType::Reference => (bandwidth::measure(threads), None),
            _ => {
                let told = |what: &str, rate: Result<f64>| {
                    let problem = |e| note(format_args!("warning: cannot measure {what}: {e:#}"));
                    rate.map_err(problem).ok()
                };
                (
                    told("memory", copy_rate(runtime, device)),
                    told(
                        "a matrix product",
                        matrix_rate(runtime, device, DType::BF16),
                    ),
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

/// The combined rate of devices that work one after the other, each on its share of the `work`; `None` where one's
/// rate is not known. Work without a known device counts as the fastest device's: more than it can do.
pub(super) fn together(
    limits: &[Limits],
    work: &[(Option<DeviceType>, f64)],
    rate: impl Fn(&Limits) -> Option<f64>,
) -> Option<f64> {
    if work.iter().any(|(device, _)| device.is_none()) {
        let rates = limits.iter().map(rate).collect::<Option<Vec<f64>>>()?;
        return rates.into_iter().reduce(f64::max);
    }
    let seconds = |(device, work): &(Option<DeviceType>, f64)| {
        let limits = limits
            .iter()
            .find(|limits| Some(limits.device) == *device)?;
        Some(work / rate(limits)?)
    };
    let seconds: Option<f64> = work.iter().map(seconds).sum();
    Some(work.iter().map(|(_, work)| work).sum::<f64>() / seconds?)
}

/// Bytes that a negation reads and writes per second.
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

/// Operations per second of a product of square matrices.
fn matrix_rate(runtime: &Runtime, device: DeviceType, dtype: DType) -> Result<f64> {
    let time = |n: usize| {
        let shape = Shape::from([n, n].as_slice());
        time(runtime, device, shape, dtype, |g, x| g.matmul(x, x))
    };
    let bytes = |n: usize| dtype.bytes_of(&[n, n]).unwrap_or(usize::MAX);
    let (n, time) = longest(runtime, device, MATRICES, bytes, time)?;
    Ok(2.0 * (n as f64).powi(3) / time.as_secs_f64())
}

/// The first of these doubling sizes that takes long enough, or whose double does not fit in memory; with its
/// time.
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

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: DeviceType = DeviceType::Cpu;
    const GPU: DeviceType = DeviceType::Cuda(0);

    /// A processor that reads 10 bytes a second, and a GPU that copies 1000.
    fn limits() -> [Limits; 2] {
        [(CPU, 10.0, None), (GPU, 1000.0, Some(5.0))].map(|(device, bandwidth, matrix_rate)| {
            Limits {
                device,
                bandwidth: Some(bandwidth),
                matrix_rate,
            }
        })
    }

    #[test]
    fn each_device_counts_for_the_weights_that_it_holds() {
        // The first layer takes 1 s, the others 0.9 s together: no way to read them faster.
        let work = [(Some(CPU), 10.0), (Some(GPU), 400.0), (Some(GPU), 500.0)];
        let rate = together(&limits(), &work, |l| l.bandwidth).unwrap();
        assert!((rate - 910.0 / 1.9).abs() < 1e-9, "{rate}");
        let work = work.map(|(_, bytes)| (Some(CPU), bytes));
        let alone = together(&limits()[..1], &work, |l| l.bandwidth);
        assert_eq!(alone, Some(10.0));
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let matrix = |devices: [Option<DeviceType>; 2]| {
            let work = devices.map(|device| (device, 1.0));
            together(&limits(), &work, |l| l.matrix_rate)
        };
        assert_eq!(matrix([Some(GPU); 2]), Some(5.0));
        assert_eq!(matrix([Some(CPU), Some(GPU)]), None);
        assert_eq!(matrix([None; 2]), None);
        assert_eq!(matrix([Some(DeviceType::Metal(0)), Some(GPU)]), None);
        // Layers on unknown devices are no faster than the fastest device.
        let rate = together(&limits(), &[(None, 1.0); 2], |l| l.bandwidth);
        assert_eq!(rate, Some(1000.0));
    }
}
