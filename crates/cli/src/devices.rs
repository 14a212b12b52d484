//! The devices of this machine, as the options ask for them.

use std::sync::Arc;

use anyhow::{Result, bail};
use rustorch_cpu::pool::default_threads;
use rustorch_faulty::{Fault, Faulty};
use rustorch_llm::{GpuLayers, free_in_all};
use rustorch_runtime::{Absent, Backend, DeviceInfo, DeviceType, Hardware, Routing, Runtime};
use rustorch_tensor::{DeviceOptions, Discovered};

use crate::args::{BackendArg, ByteCount, DeviceArgs, GpuArgs, Hybrid, TensorDevice};
use crate::status;

/// The runtime of a run, and the options for it.
#[derive(Clone)]
pub(crate) struct Devices {
    pub(crate) runtime: Runtime,
    pub(crate) routing: Routing,
    /// Limits of GPUs.
    pub(crate) gpus: GpuArgs,
    /// Have operations their own devices?
    pub(crate) is_routed: bool,
    /// The backend that was asked for.
    pub(crate) name: String,
    /// Worker threads of the CPU.
    pub(crate) threads: usize,
    /// llama.cpp's batch size, if one was given.
    pub(crate) batch: Option<usize>,
}

const CURE: &str = "-b auto uses the best device of this machine";

impl Devices {
    /// The devices that the options ask for, with their measured times.
    ///
    /// # Errors
    /// Fails if this machine lacks the backend.
    pub(crate) fn open(args: &DeviceArgs) -> Result<Self> {
        let devices = Self::find(args)?;
        devices.runtime.use_calibration();
        rustorch_profile::trace_runtime(&devices.runtime);
        status::publish(&devices.runtime);
        Ok(devices)
    }

    /// The devices that the options ask for.
    ///
    /// # Errors
    /// Fails if this machine lacks the backend.
    pub(crate) fn find(args: &DeviceArgs) -> Result<Self> {
        let batch = |arg: &BackendArg| match arg {
            BackendArg::Batch(size) => Some(*size),
            _ => None,
        };
        let named = (args.backend.iter().rev()).find(|arg| batch(arg).is_none());
        let found = match named {
            // Nothing comes before these, so drivers need not be loaded.
            Some(BackendArg::Device(DeviceType::Cpu | DeviceType::Reference))
                if args.route.is_empty() && args.gpus.tensors().next().is_none() =>
            {
                Discovered {
                    backends: rustorch_tensor::host(args.workers.threads),
                    absent: Vec::new(),
                }
            }
            _ => rustorch_tensor::discover(args.coreml.options(args.workers)),
        };
        let backends = with_faults(found.backends, &args.inject.faults.0);
        let runtime = Runtime::new(backends.iter().cloned());
        if let Some(ByteCount(limit)) = args.gpus.gpu_memory {
            let devices = runtime.devices().map(|info| info.device);
            let gpus = devices.filter(|&device| !is_host(device));
            gpus.for_each(|gpu| runtime.memory().set_limit(gpu, limit));
        }
        let preferred = rustorch_tensor::prefer(&runtime);
        let routing = match named {
            None | Some(BackendArg::Batch(_)) => preferred,
            Some(arg) => routing(*arg, &backends, &found.absent)?,
        };
        let mut routes = Vec::with_capacity(args.route.len());
        for route in &args.route {
            routes.push((route.op, find(route.device, &backends, &found.absent)?));
        }
        for TensorDevice(rule) in args.gpus.tensors() {
            find_for(rule.name(), rule.device, &backends, &found.absent)?;
        }
        for (op, device) in routes {
            runtime.set_route(op, device);
        }
        Ok(Self {
            runtime,
            routing: Routing {
                strict: args.strict,
                ..routing
            },
            gpus: args.gpus.clone(),
            is_routed: !args.route.is_empty(),
            name: named.map_or_else(|| routing.device.to_string(), BackendArg::to_string),
            threads: match args.workers.threads {
                0 => default_threads(),
                n => n,
            },
            batch: args.backend.iter().rev().find_map(batch),
        })
    }

    /// The same with one of them before the others.
    ///
    /// # Errors
    /// Fails if the device is not in the list.
    pub(crate) fn first(&self, device: DeviceType) -> Result<Self> {
        let here: Vec<_> = self.runtime.devices().map(|info| info.device).collect();
        if device != DeviceType::Auto && !here.contains(&device) {
            let here: Vec<String> = here.iter().map(DeviceType::to_string).collect();
            bail!(
                "{device}: no such device in this run, which has {}; {CURE}",
                here.join(", ")
            );
        }
        Ok(Self {
            routing: Routing {
                device,
                ..self.routing
            },
            ..self.clone()
        })
    }

    /// Free memory of the devices that may compute, where it is known.
    pub(crate) fn free_memory(&self) -> Option<u64> {
        let on_host =
            is_host(self.routing.device) || self.gpus.n_gpu_layers == GpuLayers::AtMost(0);
        free_in_all(&self.runtime, !on_host)
    }

    /// The devices that have computed something, by name.
    pub(crate) fn used(&self) -> Vec<String> {
        let used = self.runtime.used_devices();
        used.iter().map(|(device, _)| device.to_string()).collect()
    }
}

/// The devices and rules of a backend.
///
/// # Errors
/// Fails if this machine lacks the backend.
pub(crate) fn routing(
    backend: BackendArg,
    backends: &[Arc<dyn Backend>],
    absent: &[Absent],
) -> Result<Routing> {
    Ok(match backend {
        BackendArg::Batch(_) => Routing::AUTO,
        BackendArg::Device(hybrid @ DeviceType::CoreMLHybrid { .. }) => {
            coreml_hybrid(hybrid, backends, absent)?
        }
        BackendArg::Device(device) => Routing {
            device: find(device, backends, absent)?,
            ..Routing::AUTO
        },
        BackendArg::Hybrid(Hybrid::Mac) => mac_hybrid(backends, absent)?,
        BackendArg::Hybrid(Hybrid::F32) if !cfg!(feature = "hybrid-f32") => bail!(
            "-b hybrid-f32: this program was built without the feature hybrid-f32; build it with \
             --features hybrid-f32; {CURE}"
        ),
        BackendArg::Hybrid(Hybrid::F32) => {
            if backends.iter().all(|b| is_host(b.info().device)) {
                tracing::warn!(
                    "-b hybrid-f32: this machine has no GPU; everything runs on the CPU"
                );
            }
            Routing::F32_HYBRID
        }
    })
}

/// Returns whether it is on every machine.
fn is_host(device: DeviceType) -> bool {
    matches!(device, DeviceType::Cpu | DeviceType::Reference)
}

/// All devices of this machine, with injected faults.
pub(crate) fn discover(options: DeviceOptions, faults: &[Fault]) -> Discovered {
    let Discovered { backends, absent } = rustorch_tensor::discover(options);
    Discovered {
        backends: with_faults(backends, faults),
        absent,
    }
}

/// The device that was named, if it is here.
fn find(
    wanted: DeviceType,
    backends: &[Arc<dyn Backend>],
    absent: &[Absent],
) -> Result<DeviceType> {
    find_for(&format!("-b {wanted}"), wanted, backends, absent)
}

/// The device that an `option` names, if it is here.
fn find_for(
    option: &str,
    wanted: DeviceType,
    backends: &[Arc<dyn Backend>],
    absent: &[Absent],
) -> Result<DeviceType> {
    let is_here = backends.iter().any(|b| b.info().device == wanted);
    if is_here || wanted == DeviceType::Auto {
        return Ok(wanted);
    }
    let name = wanted.to_string();
    if let Some(Absent { reason, cure, .. }) = absent.iter().find(|a| name.starts_with(&a.device)) {
        bail!("{option}: {reason}; {cure}; {CURE}");
    }
    let here: Vec<String> = (backends.iter())
        .map(|b| b.info().device.to_string())
        .collect();
    let kind = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    let alike: Vec<&str> = (here.iter().map(String::as_str))
        .filter(|other| kind(other) == kind(&name))
        .collect();
    match alike[..] {
        [] => {}
        [one] => bail!("{option}: this machine has only {one}; {CURE}"),
        _ => bail!(
            "{option}: this machine has {} such devices: {}; {CURE}",
            alike.len(),
            alike.join(", ")
        ),
    }
    bail!(
        "{option}: no such device on this machine, which has {}; {CURE}",
        here.join(", ")
    );
}

/// Core ML and Metal, if one of them is here.
fn mac_hybrid(backends: &[Arc<dyn Backend>], absent: &[Absent]) -> Result<Routing> {
    let is_apple = |b: &Arc<dyn Backend>| {
        let device = b.info().device;
        matches!(device, DeviceType::CoreML(_) | DeviceType::Metal(_))
    };
    if !backends.iter().any(is_apple) {
        let metal = absent.iter().find(|a| a.device == "metal");
        let reason = metal.map_or("no Metal device", |a| &a.reason);
        bail!(
            "-b mac-hybrid: this machine has neither Core ML nor Metal ({reason}); -b hybrid-f32 combines \
             other devices; {CURE}"
        );
    }
    Ok(Routing::MAC_HYBRID)
}

/// Core ML, then the GPU that is named or else the first one, if one of them is here.
fn coreml_hybrid(
    hybrid: DeviceType,
    backends: &[Arc<dyn Backend>],
    absent: &[Absent],
) -> Result<Routing> {
    let DeviceType::CoreMLHybrid {
        coreml_id,
        fallback_gpu,
    } = hybrid
    else {
        bail!("-b {hybrid}: not a hybrid backend; {CURE}");
    };
    let is_gpu = |info: &DeviceInfo| match fallback_gpu {
        Some(gpu) => info.device == DeviceType::from(gpu),
        None => info.hardware == Hardware::Gpu,
    };
    let coreml = DeviceType::CoreML(coreml_id);
    let mut infos = backends.iter().map(|b| b.info());
    if !infos.any(|info| info.device == coreml || is_gpu(info)) {
        let missing = absent.iter().find(|a| a.device == "coreml");
        let reason = missing.map_or("no Core ML device", |a| &a.reason);
        let gpu = fallback_gpu.map_or("a GPU".to_owned(), |gpu| gpu.to_string());
        bail!("-b {hybrid}: this machine has neither Core ML nor {gpu} ({reason}); {CURE}");
    }
    Ok(Routing {
        device: hybrid,
        ..Routing::AUTO
    })
}

/// The backends, those with faults wrapped so that they fail on command.
fn with_faults(backends: Vec<Arc<dyn Backend>>, faults: &[Fault]) -> Vec<Arc<dyn Backend>> {
    for fault in faults {
        if !backends.iter().any(|b| b.info().device == fault.device) {
            tracing::warn!(
                "--inject: this machine has no device {}; its faults are ignored",
                fault.device
            );
        }
    }
    let wrap = |backend: Arc<dyn Backend>| -> Arc<dyn Backend> {
        match faults.iter().any(|f| f.device == backend.info().device) {
            true => Arc::new(Faulty::new(backend, faults.iter().cloned())),
            false => backend,
        }
    };
    backends.into_iter().map(wrap).collect()
}

#[cfg(test)]
mod tests {
    use rustorch_ir::{Graph, Signature};
    use rustorch_runtime::{DeviceError, DeviceInfo, DeviceMemory, Program};

    use super::*;
    use crate::args::ThreadArgs;

    fn open(backend: &[&str]) -> Result<Devices> {
        Devices::open(&DeviceArgs {
            backend: backend.iter().map(|b| b.parse().unwrap()).collect(),
            gpus: Default::default(),
            coreml: Default::default(),
            workers: ThreadArgs { threads: 1 },
            strict: false,
            inject: Default::default(),
            route: Vec::new(),
        })
    }

    #[test]
    fn backend_and_batch_size_go_together() {
        let devices = open(&["64", "cpu", "128"]).unwrap();
        assert_eq!((devices.name.as_str(), devices.batch), ("cpu", Some(128)));
        assert_eq!(devices.routing.device, DeviceType::Cpu);
        let devices = open(&[]).unwrap();
        assert_eq!((devices.name.as_str(), devices.batch), ("auto", None));
    }

    #[test]
    fn the_f32_hybrid_is_on_every_machine() {
        let devices = open(&["hybrid-f32"]).unwrap();
        assert_eq!(devices.name, "hybrid-f32");
        assert_eq!(devices.routing, Routing::F32_HYBRID);
    }

    /// The processor under another name.
    struct Posing(DeviceInfo, Arc<dyn Backend>);

    impl Backend for Posing {
        fn info(&self) -> &DeviceInfo {
            &self.0
        }

        fn supports(&self, signature: &Signature) -> bool {
            self.1.supports(signature)
        }

        fn memory(&self) -> &dyn DeviceMemory {
            self.1.memory()
        }

        fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
            self.1.compile(graph)
        }
    }

    fn posing(device: DeviceType) -> Arc<dyn Backend> {
        let cpu = rustorch_tensor::host(1).remove(0);
        let info = DeviceInfo {
            device,
            hardware: match device {
                DeviceType::CoreML(_) => Hardware::NeuralEngine,
                _ => Hardware::Gpu,
            },
            ..cpu.info().clone()
        };
        Arc::new(Posing(info, cpu))
    }

    #[test]
    fn core_ml_and_a_gpu_are_a_hybrid_if_one_of_them_is_here() {
        let coreml = posing(DeviceType::CoreML(0));
        let opencl = posing(DeviceType::OpenCL(0));
        let cpu = rustorch_tensor::host(1).remove(0);
        let routing = |name: &str, backends: &[Arc<dyn Backend>]| {
            let routing = super::routing(name.parse().unwrap(), backends, &[]);
            routing.map(|routing| routing.device.to_string())
        };
        for (name, backends) in [
            ("coreml-hybrid:0", [&coreml, &cpu]),
            ("coreml-hybrid:0", [&opencl, &cpu]),
            ("coreml-hybrid:0+opencl:0", [&opencl, &cpu]),
            ("coreml-hybrid:0+metal:0", [&coreml, &opencl]),
        ] {
            let backends = backends.map(Arc::clone);
            assert_eq!(routing(name, &backends).unwrap(), name);
        }
        for name in [
            "coreml-hybrid",
            "coreml-hybrid:0+metal:0",
            "coreml-hybrid:1+opencl:1",
        ] {
            let backends = match name {
                "coreml-hybrid" => vec![cpu.clone()],
                _ => vec![opencl.clone(), cpu.clone()],
            };
            let refused = routing(name, &backends).unwrap_err().to_string();
            assert!(refused.contains("neither Core ML nor"), "{refused}");
        }
    }

    #[test]
    fn devices_of_a_kind_are_counted() {
        let cpu = rustorch_tensor::host(1).remove(0);
        let cuda = |n| posing(DeviceType::Cuda(n));
        let refused = |backends: &[Arc<dyn Backend>]| {
            let error = find(DeviceType::Cuda(9), backends, &[]).unwrap_err();
            error.to_string()
        };
        let one = refused(&[cpu.clone(), cuda(0)]);
        assert!(
            one.starts_with("-b cuda:9: this machine has only cuda:0; "),
            "{one}"
        );
        let two = refused(&[cuda(0), cuda(1), cpu.clone()]);
        let expected = "-b cuda:9: this machine has 2 such devices: cuda:0, cuda:1; ";
        assert!(two.starts_with(expected), "{two}");
    }

    #[test]
    fn what_is_missing_is_named_with_a_cure() {
        for name in [
            "cuda",
            "cuda:3",
            "metal",
            "opencl:9",
            "coreml",
            "mac-hybrid",
        ] {
            let error = open(&[name]).err().unwrap().to_string();
            let shown = format!("-b {}", name.parse::<BackendArg>().unwrap());
            assert!(
                error.starts_with(&shown) && error.contains("-b auto"),
                "{error}"
            );
        }
    }
}
