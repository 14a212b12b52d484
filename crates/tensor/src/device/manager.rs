//! The current device of a thread, and the list of devices.

use std::cell::Cell;

use rustorch_ir::OpError;
use rustorch_macros::track_calls;
use rustorch_runtime::{
    Absent, DeviceCapability, DeviceInfo, DeviceType, GpuDevice, Hardware, Runtime,
};

use crate::call;
use crate::device::devices::{absent, runtime};
use crate::error::RusTorchResult;
use crate::thread_state::{ThreadState, restoring};

thread_local! {
    static CURRENT: Cell<DeviceType> = const { Cell::new(DeviceType::Auto) };
}

/// The device of this thread's new tensors and operations: [`DeviceType::Auto`] unless
/// [`set_device`] chose another one.
pub fn current_device() -> DeviceType {
    CURRENT.get()
}

/// The device that new operations are pinned to.
pub(crate) fn current_pin() -> Option<DeviceType> {
    pin(current_device())
}

/// [`DeviceType::Auto`] pins nothing.
pub(crate) fn pin(device: DeviceType) -> Option<DeviceType> {
    (device != DeviceType::Auto).then_some(device)
}

/// A device as an argument: a [`DeviceType`], or its name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no device",
    label = "expected a device",
    note = "a device is a `DeviceType` such as `DeviceType::Cuda(0)`, or a text such as \"cpu\" or \"cuda:0\""
)]
pub trait IntoDevice {
    /// The device; errors name the function `op`.
    ///
    /// # Errors
    /// Fails for a text that names no device.
    fn into_device(self, op: &'static str) -> RusTorchResult<DeviceType>;
}

impl IntoDevice for DeviceType {
    fn into_device(self, _: &'static str) -> RusTorchResult<DeviceType> {
        Ok(self)
    }
}

impl IntoDevice for &DeviceType {
    fn into_device(self, _: &'static str) -> RusTorchResult<DeviceType> {
        Ok(*self)
    }
}

impl IntoDevice for GpuDevice {
    fn into_device(self, _: &'static str) -> RusTorchResult<DeviceType> {
        Ok(self.into())
    }
}

impl IntoDevice for &String {
    fn into_device(self, op: &'static str) -> RusTorchResult<DeviceType> {
        self.as_str().into_device(op)
    }
}

impl IntoDevice for &str {
    fn into_device(self, op: &'static str) -> RusTorchResult<DeviceType> {
        let expected = "a device such as cpu, cuda:0, metal, opencl:1 or auto";
        let unknown = |_| OpError::new(op, expected, format_args!("{self:?}"));
        Ok(self.parse().map_err(unknown)?)
    }
}

/// Fails if the current runtime has no such device. Names of several devices are for callers that choose among
/// them.
pub(crate) fn require_device(device: DeviceType) -> RusTorchResult<()> {
    match device {
        DeviceType::Auto | DeviceType::CoreMLHybrid { .. } => Ok(()),
        device => Ok(DeviceManager::new().find(device).map(|_| ())?),
    }
}

/// Runs this thread's new tensors and operations on `device` from now on. Operations on tensors
/// that were moved to another device are not affected. [`DeviceType::Auto`] returns the choice to
/// the runtime.
///
/// # Errors
/// Fails if the [`runtime`](crate::runtime) lacks the device, or if a text names none.
#[track_calls]
#[doc(alias = "set_default_device")]
pub fn set_device(device: impl IntoDevice) -> RusTorchResult<()> {
    DeviceManager::new().set(device.into_device("set_device")?)
}

/// Returns whether there is a working GPU.
pub fn is_gpu_available() -> bool {
    runtime().has_gpu()
}

/// Returns whether Core ML works on this machine.
pub fn is_coreml_available() -> bool {
    is_available(|device| matches!(device, DeviceType::CoreML(_)))
}

/// Returns whether a Metal device works on this machine.
pub fn is_metal_available() -> bool {
    is_available(|device| matches!(device, DeviceType::Metal(_)))
}

fn is_available(is_kind: impl Fn(DeviceType) -> bool) -> bool {
    let runtime = runtime();
    let mut devices = runtime.devices().map(|info| info.device);
    devices.any(|device| is_kind(device) && !runtime.is_lost(device))
}

/// Calls `f` with `device` as this thread's current one.
///
/// # Errors
/// The same errors as [`set_device`].
#[track_calls]
pub fn with_device<R>(device: impl IntoDevice, f: impl FnOnce() -> R) -> RusTorchResult<R> {
    let _current = enter(device.into_device("with_device")?)?;
    Ok(call::user(f))
}

/// Calls `f` with the best GPU as this thread's current device, unless one was set.
pub(crate) fn prefer_gpu<R>(f: impl FnOnce() -> R) -> R {
    let before = current_device();
    if before != DeviceType::Auto {
        return f();
    }
    let runtime = runtime();
    let gpu = first_gpu(&runtime).map_or(before, |gpu| gpu.device);
    restoring(CURRENT.replace(gpu), |before| CURRENT.set(before), f)
}

/// Makes `device` the current one until the result is dropped.
fn enter(device: DeviceType) -> RusTorchResult<ThreadState<DeviceType>> {
    let before = current_device();
    set_device(device)?;
    let set: fn(DeviceType) = |before| CURRENT.set(before);
    Ok(ThreadState::restoring(before, set))
}

/// The best graphics processor that was not lost.
fn first_gpu(runtime: &Runtime) -> Option<&DeviceInfo> {
    let works =
        |info: &&DeviceInfo| info.hardware == Hardware::Gpu && !runtime.is_lost(info.device);
    runtime.devices().find(works)
}

/// The devices of the current [`runtime`](crate::runtime).
pub struct DeviceManager {
    runtime: Runtime,
}

impl DeviceManager {
    /// The devices of the current runtime.
    pub fn new() -> Self {
        Self { runtime: runtime() }
    }

    /// The description of each device, best first.
    pub fn list(&self) -> Vec<DeviceInfo> {
        self.runtime.devices().cloned().collect()
    }

    /// The capabilities of each device, best first.
    pub fn capabilities(&self) -> Vec<DeviceCapability> {
        self.runtime.capabilities().cloned().collect()
    }

    /// The kinds of devices that this machine lacks, with the reasons.
    pub fn absent(&self) -> &'static [Absent] {
        absent()
    }

    /// [`current_device`].
    pub fn current(&self) -> DeviceType {
        current_device()
    }

    /// [`set_device`].
    ///
    /// # Errors
    /// Fails if the device does not exist.
    pub fn set(&self, device: DeviceType) -> RusTorchResult<()> {
        self.require(device)?;
        CURRENT.set(device);
        Ok(())
    }

    /// The best working GPU.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn best_gpu(&self) -> RusTorchResult<DeviceInfo> {
        let gpu = first_gpu(&self.runtime).cloned();
        let cure = "the list of absent devices says what each one needs";
        Ok(gpu.ok_or_else(|| Absent::new("gpu", "this machine has none", cure))?)
    }

    /// Fails unless there is such a device.
    pub(crate) fn require(&self, device: DeviceType) -> RusTorchResult<()> {
        self.find(device)?;
        Ok(())
    }

    /// The device with this name; the first one if there are several.
    fn find(&self, device: DeviceType) -> Result<Option<&DeviceInfo>, Absent> {
        let first = match device {
            DeviceType::Auto => return Ok(None),
            DeviceType::CoreMLHybrid { coreml_id, .. } => DeviceType::CoreML(coreml_id),
            other => other,
        };
        let found = self.runtime.devices().find(|info| info.device == first);
        found.map(Some).ok_or_else(|| self.why_not(first))
    }

    fn why_not(&self, device: DeviceType) -> Absent {
        let name = device.to_string();
        let here: Vec<String> = (self.runtime.devices())
            .map(|info| info.device.to_string())
            .collect();
        let here = format!("there are {}", here.join(", "));
        let is_kind = |absent: &&Absent| name.starts_with(&absent.device);
        if let Some(Absent { reason, cure, .. }) = absent().iter().find(is_kind) {
            return Absent::new(name, reason, format!("{cure}; {here}"));
        }
        Absent::new(name, "this machine has no such device", here)
    }
}

impl Default for DeviceManager {
    fn default() -> Self {
        Self::new()
    }
}

/// A GPU as the current device of this thread, until it is dropped.
pub struct GpuContext {
    info: DeviceInfo,
    _current: ThreadState<DeviceType>,
}

impl GpuContext {
    /// Makes `gpu` the current device.
    ///
    /// # Errors
    /// Fails if the device does not exist.
    pub fn new(gpu: GpuDevice) -> RusTorchResult<Self> {
        let (manager, device) = (DeviceManager::new(), DeviceType::from(gpu));
        let info = manager.find(device)?.cloned();
        let info = info.ok_or_else(|| manager.why_not(device))?;
        let _current = enter(device)?;
        Ok(Self { info, _current })
    }

    /// The best working GPU.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn best() -> RusTorchResult<Self> {
        let info = DeviceManager::new().best_gpu()?;
        let _current = enter(info.device)?;
        Ok(Self { info, _current })
    }

    /// The device's description.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Bytes of tensors in the device's memory now. Host memory that the device uses in place does
    /// not count; [`MemoryManager::pools`](rustorch_runtime::MemoryManager::pools) counts it.
    pub fn memory_pool_size(&self) -> u64 {
        let pools = runtime().memory().pools();
        let mut own = pools.iter().filter(|pool| pool.device == self.info.device);
        own.next().map_or(0, |pool| pool.in_use)
    }

    /// Number of queues of the device, each processed in order:
    /// [`Backend::streams`](rustorch_runtime::Backend::streams).
    pub fn stream_count(&self) -> usize {
        runtime().streams(self.info.device)
    }
}
