//! What devices have been measured to do, and what operations should therefore take.

use std::time::{Duration, Instant};

use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Graph, Node, OpError, Role, TensorType, ValueId};

use crate::journal::lock;
use crate::planner::DeviceId;
use crate::runtime::Devices;
use crate::trace::traffic;
use crate::{DeviceType, HostBuffer, Routing, RunError, Runtime, Storage};

/// Elements that are streamed to measure a device's memory: beyond its caches.
const STREAM: usize = 8 << 20;
/// Rows and columns of the matrices that are multiplied.
const MATRIX: usize = 256;
/// Launches that follow each other.
const CHAIN: usize = 16;
/// Runs of each measurement, of which the fastest counts.
const RUNS: usize = 5;

/// A device's measured rates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Bytes that it reads and writes in a second.
    pub bytes_per_second: f64,
    /// Single-precision multiplications with their additions in a second.
    pub products_per_second: f64,
    /// The time of an operation on next to nothing.
    pub launch: Duration,
}

impl Costs {
    /// What an operation should take that moves `bytes` and multiplies `products` times.
    fn time(&self, bytes: usize, products: usize) -> Duration {
        let moving = bytes as f64 / self.bytes_per_second;
        let multiplying = products as f64 / self.products_per_second;
        self.launch + Duration::from_secs_f64(moving.max(multiplying))
    }
}

impl Devices {
    /// What a node should take on a device; `None` if that was not calibrated.
    pub(crate) fn expected(
        &self,
        device: DeviceId,
        graph: &Graph,
        node: &Node,
    ) -> Option<Duration> {
        let costs = (*lock(&self.slot(device).costs))?;
        if node.op.def().role() == Role::View {
            return Some(Duration::ZERO);
        }
        let products = graph.with_signature(node, |s| node.op.def().products(s));
        Some(costs.time(traffic(graph, node), products))
    }
}

impl Runtime {
    /// Measures what a device can do, in about a tenth of a second on a processor. From then
    /// on [`Explanation::expected`](crate::Explanation) is known for it.
    ///
    /// # Errors
    /// There is no such device, or it fails.
    pub fn calibrate(&self, device: DeviceType) -> Result<Costs, RunError> {
        let stream = self.fastest(device, [STREAM, 1], |g, x| g.unary(UnaryOp::Neg, x))?;
        let product = self.fastest(device, [MATRIX; 2], |g, x| g.matmul(x, x))?;
        let chain = |n: usize| move |g: &mut Graph, x| (0..n).try_fold(x, |y, _| g.matmul(y, x));
        let one = self.fastest(device, [1, 1], chain(1))?;
        let many = self.fastest(device, [1, 1], chain(1 + CHAIN))?;
        let launch = many.saturating_sub(one) / CHAIN as u32;
        let rate = |work: usize, time: Duration| {
            work as f64 / time.saturating_sub(one).as_secs_f64().max(1e-9)
        };
        let costs = Costs {
            bytes_per_second: rate(2 * STREAM * size_of::<f32>(), stream),
            products_per_second: rate(MATRIX * MATRIX * MATRIX, product),
            launch,
        };
        for slot in self.devices.named(device) {
            *lock(&slot.costs) = Some(costs);
        }
        Ok(costs)
    }

    /// The time of the fastest of some runs of a graph of one input.
    fn fastest(
        &self,
        device: DeviceType,
        shape: [usize; 2],
        build: impl Fn(&mut Graph, ValueId) -> Result<ValueId, OpError>,
    ) -> Result<Duration, RunError> {
        let mut graph = Graph::new();
        let input = graph.input(TensorType::new(shape, DType::F32))?;
        let output = build(&mut graph, input)?;
        graph.output(output);
        let bytes = graph.inputs()[0].bytes();
        let zeros = HostBuffer::zeroed(bytes).ok_or_else(|| RunError::NoDevice {
            op: "calibration".to_owned(),
            tried: format!("the host has no {bytes} bytes"),
        })?;
        let routing = Routing {
            device,
            strict: true,
            ..Routing::AUTO
        };
        let inputs = [Storage::from_host(zeros)];
        let (executable, mut outputs) = (self.prepare(graph, routing), Vec::new());
        // The first one plans, compiles and takes memory.
        executable.run_into(&[&inputs], &mut outputs)?;
        let mut best = Duration::MAX;
        for _ in 0..RUNS {
            let start = Instant::now();
            executable.run_into(&[&inputs], &mut outputs)?;
            best = best.min(start.elapsed());
        }
        Ok(best)
    }
}
