//! The runtime's choice of devices, for users.

use std::sync::LazyLock;

use rustorch_macros::track_calls;
use rustorch_runtime::{
    Absent, DeviceCapability, DeviceType, OpType, Route, Routing, Runtime, TensorInfo,
    supports_coreml,
};

use crate::device::devices::{current, global, global_routing, with_runtime};
use crate::error::{RusTorchError, RusTorchResult};
use crate::{Tensor, call, with_device};

/// A [`Runtime`] with a [`Routing`]: it reports the device of an operation, and the next one after a failure. It
/// reports the devices that the planner chooses.
pub struct HybridExecutor {
    runtime: Runtime,
    routing: Routing,
}

impl HybridExecutor {
    /// An executor for the devices of `runtime` that `routing` allows.
    pub fn new(runtime: Runtime, routing: Routing) -> Self {
        Self { runtime, routing }
    }

    /// The executor for all devices of this machine.
    pub fn global() -> &'static Self {
        static EXECUTOR: LazyLock<HybridExecutor> =
            LazyLock::new(|| HybridExecutor::new(global().clone(), global_routing()));
        &EXECUTOR
    }

    /// The runtime of the executor.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The planner's device for an operation of a family on such a tensor. It assumes a typical operation, computed
    /// alone from operands on the host, see [`Runtime::candidates`]. [`Runtime::candidates_of`] returns the devices for
    /// any operation.
    ///
    /// # Errors
    /// Fails if the family has no operation for such a tensor, or if no device can run it.
    pub fn select_device(
        &self,
        op_type: OpType,
        tensor: &TensorInfo,
    ) -> RusTorchResult<DeviceType> {
        let candidates = self.runtime.candidates(op_type, tensor, self.routing);
        let first = candidates.first().copied();
        first.ok_or_else(|| no_device(op_type, tensor))
    }

    /// The next device for such an operation after a failure, in order. `None` after the last.
    pub fn next_fallback_device(
        &self,
        op_type: OpType,
        tensor: &TensorInfo,
        failed: DeviceType,
    ) -> Option<DeviceType> {
        let candidates = self.runtime.candidates(op_type, tensor, self.routing);
        let mut rest = candidates.into_iter().peekable();
        // A device that was lost is not a candidate any more: all others are left.
        if self.runtime.is_lost(failed) {
            return rest.next();
        }
        rest.find(|device| *device == failed)?;
        rest.next()
    }

    /// Returns whether there is a working GPU.
    pub fn has_gpu_support(&self) -> bool {
        self.runtime.has_gpu()
    }

    /// Returns whether Core ML accepts an operation of this family on such a tensor. [`Self::select_device`]
    /// also checks that Core ML is present and has the operation.
    pub fn supports_coreml(&self, op_type: OpType, tensor: &TensorInfo) -> bool {
        supports_coreml(op_type, tensor)
    }

    /// The first device of the chain.
    pub fn primary_device(&self) -> DeviceType {
        self.chain().next().unwrap_or(DeviceType::Cpu)
    }

    /// The devices after the first one, best first.
    pub fn fallback_devices(&self) -> Vec<DeviceType> {
        self.chain().skip(1).collect()
    }

    fn chain(&self) -> impl Iterator<Item = DeviceType> + '_ {
        let devices = self.runtime.devices().map(|info| info.device);
        devices.filter(|device| !self.runtime.is_lost(*device))
    }

    /// The capabilities of a device, which are queried only once.
    pub fn capability(&self, device: DeviceType) -> Option<&DeviceCapability> {
        let mut all = self.runtime.capabilities();
        all.find(|capability| capability.device == device)
    }

    /// Sends an operation or a family to a device, see [`Runtime::set_route`].
    pub fn set_route(&self, route: impl Into<Route>, device: DeviceType) {
        self.runtime.set_route(route, device);
    }

    /// Removes all routes.
    pub fn clear_routes(&self) {
        self.runtime.clear_routes();
    }

    /// Calls `f`. Tensors that the closure evaluates on this thread are computed by these devices.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        with_runtime(&self.runtime, self.routing, f)
    }
}

fn no_device(op_type: OpType, tensor: &TensorInfo) -> RusTorchError {
    let what = format!("a device for {op_type:?} of {}", tensor.ty);
    let cure = "use another element type, or other operations";
    Absent::new(what, "no device has kernels for it", cure).into()
}

/// Calls `operation` with each candidate device, best first, until one succeeds. The candidates are
/// those for an operation of the family on such a tensor, which is its first result. During the
/// call, that device is the thread's current one.
///
/// Computations in `operation` ([`Tensor::eval`], [`Tensor::to_vec`]) run entirely on that device,
/// or fail there. Operations that it only records are computed later. An error that no device
/// caused ([`is_device_error`]) ends it at once.
///
/// ```
/// use rustorch_tensor::{hybrid_operation, tensor};
/// use rustorch_runtime::OpType;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let x = tensor![[1.0, 2.0], [3.0, 4.0]];
/// let (device, sum) = hybrid_operation(OpType::LinearAlgebra, &x, |device| {
///     Ok((device, x.matmul(&x)?.sum(None, false)?.to_vec::<f32>()?))
/// })?;
/// println!("computed by {device}");
/// assert_eq!(sum, [54.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails with the last device's error if all fail. The caller's mistake is returned at once. Also fails if no device
/// has such operations.
#[track_calls]
pub fn hybrid_operation<R>(
    op_type: OpType,
    x: &Tensor,
    mut operation: impl FnMut(DeviceType) -> RusTorchResult<R>,
) -> RusTorchResult<R> {
    let (runtime, routing) = current();
    let info = TensorInfo::new(x.ty().clone());
    let strict = Routing {
        strict: true,
        ..routing
    };
    let mut failure = no_device(op_type, &info);
    for device in runtime.candidates(op_type, &info, routing) {
        let attempt = || with_device(device, || call::user(|| operation(device)));
        match with_runtime(&runtime, strict, attempt).and_then(|result| result) {
            Err(e) if is_device_error(&e) => failure = e,
            result => return result,
        }
    }
    Err(failure)
}

/// [`RusTorchError::is_device_error`].
pub fn is_device_error(error: &RusTorchError) -> bool {
    error.is_device_error()
}

/// The family of the operation that computes a pending tensor. `None` for tensors in memory, and
/// for operations that only move data.
pub fn infer_operation_type(x: &Tensor) -> Option<OpType> {
    x.op_type()
}
