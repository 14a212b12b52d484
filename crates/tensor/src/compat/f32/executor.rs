//! The rules of the f32 hybrid, and reports of the devices used.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use rustorch_macros::track_calls;
use rustorch_runtime::platform::Instant;
use rustorch_runtime::{Explanation, Routing, Runtime};

use super::{F32DeviceSelector, F32Tensor};
use crate::device::devices::global;
use crate::error::RusTorchResult;
use crate::lazy::eval::eval_with;
use crate::{Activity, HybridExecutor, Tensor};

/// Runs `f32` tensors on the best devices for their operations.
///
/// | operation | device |
/// | --- | --- |
/// | products above 10 000 elements (of the largest operand or result) | Metal |
/// | convolutions, activations and other functions of elements | Core ML |
/// | all else | the CPU |
///
/// Without Metal or Core ML, the first GPU of the chain takes its place. Without a GPU, the CPU's
/// OpenCL driver counts as one. Otherwise everything runs on the CPU. Operations that fail fall
/// back to the next device. All of them compute in `f32`, so nothing is converted.
///
/// Core ML never runs `f32` programs on the Neural Engine, only on the GPU and the CPU.
pub struct F32HybridExecutor {
    chain: HybridExecutor,
    routing: Routing,
}

/// Statistics of a run of an [`F32HybridExecutor`].
#[derive(Clone, PartialEq, Debug)]
pub struct F32Report {
    /// The device of each operation, and why.
    pub operations: Vec<Explanation>,
    /// Conversions and copies during the run, by the runtime's counters.
    pub activity: Activity,
    /// Time from the start of planning until the results are ready.
    pub time: Duration,
}

#[track_calls]
impl F32HybridExecutor {
    /// An executor for the devices of `runtime`.
    pub fn new(runtime: Runtime) -> Self {
        Self::with_routing(runtime, Routing::F32_HYBRID)
    }

    /// An executor for the devices of `runtime` that `routing` allows.
    pub fn with_routing(runtime: Runtime, routing: Routing) -> Self {
        let chain = HybridExecutor::new(runtime, routing);
        Self { chain, routing }
    }

    /// The executor for all devices of this machine.
    pub fn global() -> &'static Self {
        static EXECUTOR: LazyLock<F32HybridExecutor> =
            LazyLock::new(|| F32HybridExecutor::new(global().clone()));
        &EXECUTOR
    }

    /// The runtime of the executor.
    pub fn runtime(&self) -> &Runtime {
        self.chain.runtime()
    }

    /// The rules that choose devices.
    pub fn selector(&self) -> F32DeviceSelector<'_> {
        F32DeviceSelector(&self.chain)
    }

    /// Calls `f`. Tensors that the closure evaluates on this thread are computed by these devices
    /// and rules.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        self.chain.run(f)
    }

    /// Computes tensors together, as [`eval_all`](crate::eval_all). Reports devices, conversions and copies.
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn execute(&self, tensors: &[&F32Tensor]) -> RusTorchResult<F32Report> {
        let runtime = self.runtime();
        let tensors: Vec<&Tensor> = tensors.iter().map(|t| t.as_ref()).collect();
        let before = Activity::of(runtime);
        let start = Instant::now();
        let mut operations = Vec::new();
        eval_with(&tensors, runtime, self.routing, |outline, leaves, _| {
            let executable = runtime.prepare(outline.graph()?, self.routing);
            let results = executable.run(leaves)?.into();
            operations = executable.explain()?;
            Ok(results)
        })?;
        Ok(F32Report {
            operations,
            activity: Activity::of(runtime).since(before),
            time: start.elapsed(),
        })
    }
}

impl fmt::Display for F32Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.operations {
            let (op, count, device) = (&row.op, row.count, row.device.to_string());
            writeln!(f, "{count:>4} {op:<16} {device:<10} {}", row.reason)?;
        }
        write!(f, "{} in {:.3?}", self.activity, self.time)
    }
}
