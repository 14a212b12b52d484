//! The machine's devices, and those in use.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use rustorch_runtime::{Absent, Backend, Routing, Runtime, platform};

use crate::device::preferences::prefer;
use crate::thread_state::restoring;

/// Set to anything but `0` or `false`, it leaves all devices out but the processor.
const DISABLE_GPU: &str = "RUSTORCH_DISABLE_GPU";

/// The devices found on this machine.
pub struct Discovered {
    /// The devices.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Missing kinds of devices, with the reasons.
    pub absent: Vec<Absent>,
}

/// Options for opening devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    threads: usize,
    #[cfg(feature = "coreml")]
    coreml: rustorch_coreml::Options,
}

impl DeviceOptions {
    /// Number of CPU threads; 0 stands for the number of physical cores.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            #[cfg(feature = "coreml")]
            coreml: rustorch_coreml::Options::default(),
        }
    }

    /// Precision and compute units of Core ML.
    #[cfg(feature = "coreml")]
    #[must_use]
    pub fn with_coreml(self, coreml: rustorch_coreml::Options) -> Self {
        Self { coreml, ..self }
    }
}

type Found = Result<Vec<Arc<dyn Backend>>, Absent>;

/// A kind of device: its name, and how its devices are found.
type Kind = (&'static str, fn(DeviceOptions) -> Found);

/// Every kind besides the processor: the one list of them.
const KINDS: [Kind; 5] = [
    ("coreml", coreml),
    ("metal", |_| metal()),
    ("cuda", |_| cuda()),
    ("webgpu", |_| webgpu()),
    ("opencl", |_| opencl()),
];

#[cfg(not(all(
    feature = "coreml",
    feature = "cuda",
    feature = "metal",
    feature = "opencl",
    feature = "webgpu"
)))]
fn left_out(feature: &str) -> Found {
    let reason = format!("this program was built without the feature {feature}");
    let cure = format!("build it with --features {feature}");
    Err(Absent::new(feature, reason, cure))
}

#[cfg(feature = "coreml")]
fn coreml(options: DeviceOptions) -> Found {
    rustorch_coreml::devices(options.coreml)
}

#[cfg(not(feature = "coreml"))]
fn coreml(_options: DeviceOptions) -> Found {
    left_out("coreml")
}

#[cfg(feature = "metal")]
use rustorch_metal::devices as metal;

#[cfg(not(feature = "metal"))]
fn metal() -> Found {
    left_out("metal")
}

#[cfg(any(
    all(feature = "cuda", not(target_vendor = "apple")),
    feature = "opencl",
    feature = "webgpu"
))]
fn backends_of<D: rustorch_gpu::Driver>(devices: Vec<D>) -> Vec<Arc<dyn Backend>> {
    let backend = |device| Arc::new(rustorch_gpu::Gpu::new(device)) as Arc<dyn Backend>;
    devices.into_iter().map(backend).collect()
}

#[cfg(all(feature = "cuda", not(target_vendor = "apple")))]
fn cuda() -> Found {
    rustorch_cuda::devices().map(backends_of)
}

#[cfg(all(feature = "cuda", target_vendor = "apple"))]
fn cuda() -> Found {
    let reason = "Apple's systems have no driver for it";
    Err(Absent::new("cuda", reason, "use metal"))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Found {
    left_out("cuda")
}

#[cfg(feature = "opencl")]
fn opencl() -> Found {
    Ok(backends_of(rustorch_opencl::devices()?))
}

#[cfg(not(feature = "opencl"))]
fn opencl() -> Found {
    left_out("opencl")
}

#[cfg(feature = "webgpu")]
fn webgpu() -> Found {
    Ok(backends_of(rustorch_wgpu::devices()?))
}

#[cfg(not(feature = "webgpu"))]
fn webgpu() -> Found {
    left_out("webgpu")
}

/// Finds all devices of this machine.
///
/// With `RUSTORCH_DISABLE_GPU` set, it finds the CPU only.
pub fn discover(options: DeviceOptions) -> Discovered {
    find(options, platform::is_on(DISABLE_GPU))
}

fn find(options: DeviceOptions, gpus_disabled: bool) -> Discovered {
    let mut found = Discovered {
        backends: host(options.threads),
        absent: Vec::new(),
    };
    for devices in find_kinds(options, gpus_disabled) {
        match devices {
            Ok(devices) => found.backends.extend(devices),
            Err(absent) => found.absent.push(absent),
        }
    }
    found
}

/// The findings for each kind. Opening a device takes a while, so all are opened at once.
fn find_kinds(options: DeviceOptions, gpus_disabled: bool) -> Vec<Found> {
    let find = |(name, devices): Kind| match gpus_disabled {
        true => Err(Absent::new(
            name,
            format!("{DISABLE_GPU} is set"),
            format!("unset {DISABLE_GPU}"),
        )),
        false => devices(options),
    };
    platform::at_once(KINDS, find)
}

/// The CPU and the reference backend, which every machine has. No library is searched for.
pub fn host(threads: usize) -> Vec<Arc<dyn Backend>> {
    vec![
        Arc::new(rustorch_cpu::Cpu::new(threads)),
        Arc::new(rustorch_reference::Reference::new()),
    ]
}

/// The devices that [`discover`] finds; the CPU works with `threads` threads.
pub fn backends(threads: usize) -> Vec<Arc<dyn Backend>> {
    discover(DeviceOptions::new(threads)).backends
}

/// The runtime of all devices.
struct Global {
    runtime: Runtime,
    /// The devices that the features select.
    routing: Routing,
    absent: Vec<Absent>,
}

static GLOBAL: LazyLock<Global> = LazyLock::new(|| {
    let found = discover(DeviceOptions::default());
    let runtime = Runtime::new(found.backends);
    runtime.use_calibration();
    #[cfg(feature = "profile")]
    rustorch_profile::trace_runtime(&runtime);
    Global {
        routing: prefer(&runtime),
        runtime,
        absent: found.absent,
    }
});

/// The runtime of all devices, made when it is first needed.
pub(crate) fn global() -> &'static Runtime {
    &GLOBAL.runtime
}

/// The routing of that runtime that the features ask for.
pub(crate) fn global_routing() -> Routing {
    GLOBAL.routing
}

/// The kinds of devices that this machine has none of.
pub(crate) fn absent() -> &'static [Absent] {
    &GLOBAL.absent
}

thread_local! {
    static CHOSEN: RefCell<Option<(Runtime, Routing)>> = const { RefCell::new(None) };
}

/// The runtime of this thread's tensors. It is that of the innermost [`with_runtime`], else a default one with all
/// [`backends`]. The default runtime is made when it is first needed.
pub fn runtime() -> Runtime {
    current().0
}

/// [`runtime`], and which of its devices may be used.
pub(crate) fn current() -> (Runtime, Routing) {
    let chosen = CHOSEN.with_borrow(Option::clone);
    chosen.unwrap_or_else(|| (global().clone(), global_routing()))
}

/// Calls `f`. Tensors that it evaluates on this thread are computed by `runtime`, on the devices
/// that `routing` names.
pub fn with_runtime<R>(runtime: &Runtime, routing: Routing, f: impl FnOnce() -> R) -> R {
    let before = CHOSEN.replace(Some((runtime.clone(), routing)));
    restoring(before, |before| drop(CHOSEN.replace(before)), f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustorch_runtime::{DeviceType, Hardware};

    #[test]
    fn gpus_can_be_disabled() {
        let found = find(DeviceOptions::new(1), true);
        let infos = || found.backends.iter().map(|b| b.info());
        assert!(infos().all(|info| info.hardware == Hardware::Processor));
        assert!(infos().any(|info| info.device == DeviceType::Cpu));
        let names: Vec<&str> = found.absent.iter().map(|a| a.device.as_str()).collect();
        assert_eq!(names, ["coreml", "metal", "cuda", "webgpu", "opencl"]);
        let why = found.absent[4].to_string();
        assert_eq!(
            why,
            "opencl: RUSTORCH_DISABLE_GPU is set; unset RUSTORCH_DISABLE_GPU"
        );
    }

    #[test]
    fn every_kind_is_there_or_says_why_not() {
        let found = find(DeviceOptions::new(1), false);
        for (name, _) in KINDS {
            let device = |text: String| text.starts_with(name);
            let is_here = found
                .backends
                .iter()
                .any(|b| device(b.info().device.to_string()));
            let why = found.absent.iter().find(|absent| absent.device == name);
            assert_ne!(is_here, why.is_some(), "{name}");
            assert!(why.is_none_or(|a| !a.reason.is_empty() && !a.cure.is_empty()));
        }
    }
}
