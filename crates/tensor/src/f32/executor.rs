//! The rules of the f32 hybrid, and reports of what ran where.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustorch_macros::track_calls;
use rustorch_runtime::{Explanation, Routing, Runtime};

use super::{F32DeviceSelector, F32Tensor};
use crate::devices::global;
use crate::error::RusTorchResult;
use crate::eval::eval_with;
use crate::{Activity, HybridExecutor, Tensor};

/// Runs `f32` tensors on the devices that their operations are best on.
///
/// | operation | device |
/// | --- | --- |
/// | products above 10 000 elements (of the largest operand or result) | Metal |
/// | convolutions, activations and other functions of elements | Core ML |
/// | all else | the CPU |
///
/// Where there is no Metal, the first GPU of the chain takes its place; where there is no Core
/// ML, that GPU. Where there is no GPU either, the processor's OpenCL driver counts as one, and
/// without that everything is the CPU's. What a device cannot do, or fails at, goes down the
/// chain as ever. All of them compute in `f32`, so that nothing is converted on the way.
///
/// Core ML never runs `f32` programs on the Neural Engine: they are the GPU's and the CPU's.
pub struct F32HybridExecutor {
    chain: HybridExecutor,
    routing: Routing,
}

/// What a run of an [`F32HybridExecutor`] did.
#[derive(Clone, PartialEq, Debug)]
pub struct F32Report {
    /// Which operations ran where, and why.
    pub operations: Vec<Explanation>,
    /// Conversions and copies while it ran, by the runtime's counters.
    pub activity: Activity,
    /// From the start of planning until the results were there.
    pub time: Duration,
}

#[track_calls]
impl F32HybridExecutor {
    /// The devices of `runtime`.
    pub fn new(runtime: Runtime) -> Self {
        Self::with_routing(runtime, Routing::F32_HYBRID)
    }

    /// The devices of `runtime` that `routing` allows.
    pub fn with_routing(runtime: Runtime, routing: Routing) -> Self {
        let chain = HybridExecutor::new(runtime, routing);
        Self { chain, routing }
    }

    /// All devices of this machine.
    pub fn global() -> &'static Self {
        static EXECUTOR: LazyLock<F32HybridExecutor> =
            LazyLock::new(|| F32HybridExecutor::new(global().clone()));
        &EXECUTOR
    }

    /// The runtime behind it.
    pub fn runtime(&self) -> &Runtime {
        self.chain.runtime()
    }

    /// The rules, to be asked.
    pub fn selector(&self) -> F32DeviceSelector<'_> {
        F32DeviceSelector(&self.chain)
    }

    /// Calls `f`; what it evaluates on this thread is computed by these devices and rules.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        self.chain.run(f)
    }

    /// Computes tensors together, as [`eval_all`](crate::eval_all), and reports what ran where,
    /// what was converted and what was copied. What other threads do with the same runtime
    /// meanwhile is counted too.
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
