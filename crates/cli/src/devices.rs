//! The devices of this machine, as the options ask for them.

use std::sync::Arc;

use anyhow::{Result, bail};
use rustorch_cpu::pool::default_threads;
use rustorch_faulty::{Fault, Faulty};
use rustorch_runtime::{Absent, Backend, DeviceType, Routing, Runtime};
use rustorch_tensor::Discovered;

use crate::args::{BackendArg, DeviceArgs};

/// The runtime of a run, and what was asked for.
pub(crate) struct Devices {
    pub(crate) runtime: Runtime,
    pub(crate) routing: Routing,
    /// The backend that was asked for.
    pub(crate) name: String,
    /// Worker threads of the CPU.
    pub(crate) threads: usize,
    /// llama.cpp's batch size, if one was given.
    pub(crate) batch: Option<usize>,
}

const CURE: &str = "-b auto takes the best device there is";

impl Devices {
    /// The devices that the options ask for.
    ///
    /// # Errors
    /// The backend is not one of this machine's.
    pub(crate) fn open(args: &DeviceArgs) -> Result<Self> {
        let batch = |arg: &BackendArg| match arg {
            BackendArg::Batch(size) => Some(*size),
            _ => None,
        };
        let named = (args.backend.iter().rev()).find(|arg| batch(arg).is_none());
        let found = match named {
            // Nothing comes before these, so drivers need not be loaded.
            Some(BackendArg::Device(DeviceType::Cpu | DeviceType::Reference))
                if args.route.is_empty() =>
            {
                Discovered {
                    backends: rustorch_tensor::host(args.threads),
                    absent: Vec::new(),
                }
            }
            _ => rustorch_tensor::discover(args.threads),
        };
        let backends = with_faults(found.backends, &args.inject.0);
        let device = match named {
            None => DeviceType::Auto,
            Some(arg) => find(*arg, &backends, &found.absent)?,
        };
        let mut routes = Vec::with_capacity(args.route.len());
        for route in &args.route {
            let device = BackendArg::Device(route.device);
            routes.push((route.op, find(device, &backends, &found.absent)?));
        }
        let runtime = Runtime::new(backends);
        for (op, device) in routes {
            runtime.set_route(op, device);
        }
        Ok(Self {
            runtime,
            routing: Routing {
                device,
                strict: args.strict,
                ..Routing::AUTO
            },
            name: named.map_or_else(|| device.to_string(), BackendArg::to_string),
            threads: match args.threads {
                0 => default_threads(),
                n => n,
            },
            batch: args.backend.iter().rev().find_map(batch),
        })
    }

    /// The devices that have computed something, by name.
    pub(crate) fn used(&self) -> Vec<String> {
        let used = self.runtime.used_devices();
        used.iter().map(|(device, _)| device.to_string()).collect()
    }
}

/// The device that an argument names, if it is here.
fn find(arg: BackendArg, backends: &[Arc<dyn Backend>], absent: &[Absent]) -> Result<DeviceType> {
    if let BackendArg::Device(wanted) = arg {
        let is_here = backends.iter().any(|b| b.info().device == wanted);
        if is_here || wanted == DeviceType::Auto {
            return Ok(wanted);
        }
    }
    let name = arg.to_string();
    // What combines Apple's devices needs the first of them.
    let kind = match arg {
        BackendArg::Hybrid(_) => "coreml",
        _ => &name,
    };
    if let Some(Absent { reason, cure, .. }) = absent.iter().find(|a| kind.starts_with(&a.device)) {
        bail!("-b {name}: {reason}; {cure}; {CURE}");
    }
    let here: Vec<String> = (backends.iter())
        .map(|b| b.info().device.to_string())
        .collect();
    bail!(
        "-b {name}: this machine has no such device, but {}; {CURE}",
        here.join(", ")
    );
}

/// The backends, those with faults wrapped so that they fail on command.
fn with_faults(backends: Vec<Arc<dyn Backend>>, faults: &[Fault]) -> Vec<Arc<dyn Backend>> {
    for fault in faults {
        if !backends.iter().any(|b| b.info().device == fault.device) {
            tracing::warn!("--inject: there is no {} that could fail", fault.device);
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
    use super::*;

    fn open(backend: &[&str]) -> Result<Devices> {
        Devices::open(&DeviceArgs {
            backend: backend.iter().map(|b| b.parse().unwrap()).collect(),
            threads: 1,
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
    fn what_is_missing_is_named_with_a_cure() {
        for name in [
            "cuda",
            "cuda:3",
            "metal",
            "opencl:9",
            "coreml",
            "mac-hybrid",
            "hybrid-f32",
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
