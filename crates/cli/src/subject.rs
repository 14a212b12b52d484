//! A unit of verification and measurement: a device, or several that work together.

use std::sync::Arc;

use anyhow::Result;
use rustorch_llm::{Model, SessionOptions};
use rustorch_runtime::{Backend, DeviceType, Routing, Rules, Runtime};
use rustorch_tensor::Discovered;

use crate::args::{BackendArg, Hybrid};
use crate::devices::routing;

/// A device that nothing can stand in for, or several by common rules. Core ML is not offered
/// everything, so that it has the CPU behind it.
pub(crate) struct Subject {
    /// Its name for `-b`.
    pub(crate) name: String,
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    device: Option<Arc<dyn Backend>>,
    routing: Routing,
}

impl Subject {
    /// The requested one; without a request, every device but the reference. If there are several, all of them
    /// as the f32 hybrid, too.
    ///
    /// # Errors
    /// Fails if the requested backend is not on this machine.
    pub(crate) fn find(asked: Option<BackendArg>, found: &Discovered) -> Result<Vec<Self>> {
        let Discovered { backends, absent } = found;
        let is_cpu = |b: &&Arc<dyn Backend>| b.info().device == DeviceType::Cpu;
        let cpu = backends.iter().find(is_cpu);
        let alone = |backend: &Arc<dyn Backend>| {
            let device = backend.info().device;
            let is_coreml = matches!(device, DeviceType::CoreML(_));
            let behind = cpu.filter(|_| is_coreml).cloned();
            Self {
                name: device.to_string(),
                backends: [backend.clone()].into_iter().chain(behind).collect(),
                device: Some(backend.clone()),
                routing: Routing {
                    device: if is_coreml { device } else { DeviceType::Auto },
                    ..Routing::AUTO
                },
            }
        };
        let together = |arg: BackendArg| -> Result<Self> {
            Ok(Self {
                name: arg.to_string(),
                backends: backends.clone(),
                device: None,
                routing: routing(arg, backends, absent)?,
            })
        };
        match asked.unwrap_or(BackendArg::Device(DeviceType::Auto)) {
            arg @ BackendArg::Hybrid(_) => Ok(vec![together(arg)?]),
            arg => {
                let wanted = routing(arg, backends, absent)?.device;
                let is_wanted = |b: &&Arc<dyn Backend>| match wanted {
                    // The reference is left out: the other devices are compared with it.
                    DeviceType::Auto => b.info().device != DeviceType::Reference,
                    one => b.info().device == one,
                };
                let mut subjects: Vec<Self> =
                    backends.iter().filter(is_wanted).map(alone).collect();
                if subjects.len() > 1 && cfg!(feature = "hybrid-f32") {
                    subjects.push(together(BackendArg::Hybrid(Hybrid::F32))?);
                }
                let is_here = |kind: fn(DeviceType) -> bool| {
                    subjects.len() > 1 && backends.iter().any(|b| kind(b.info().device))
                };
                if is_here(|device| matches!(device, DeviceType::CoreML(_)))
                    && is_here(|device| matches!(device, DeviceType::Metal(_)))
                {
                    subjects.push(together(BackendArg::Hybrid(Hybrid::Mac))?);
                }
                Ok(subjects)
            }
        }
    }

    /// The CPU's own backend.
    ///
    /// # Errors
    /// Fails if there is no CPU backend, which every machine has.
    pub(crate) fn cpu(found: &Discovered) -> Result<Vec<Self>> {
        Self::find(Some(BackendArg::Device(DeviceType::Cpu)), found)
    }

    /// The device, if it is one.
    pub(crate) fn device(&self) -> Option<&Arc<dyn Backend>> {
        self.device.as_ref()
    }

    /// The devices that computed, if they are several, and the fault in that.
    pub(crate) fn computed(&self, runtime: &Runtime) -> (String, Option<String>) {
        let used = runtime.used_devices();
        let names: Vec<String> = (used.iter())
            .map(|(device, runs)| format!("{device} ran {runs} segments"))
            .collect();
        let is_idle = |b: &&Arc<dyn Backend>| !used.iter().any(|u| u.0 == b.info().device);
        let idle = self.device().filter(is_idle);
        (
            names.join(", "),
            idle.map(|_| format!("{} computed nothing", self.name)),
        )
    }

    /// Returns whether it is the CPU's own backend.
    pub(crate) fn is_cpu(&self) -> bool {
        self.device()
            .is_some_and(|b| b.info().device == DeviceType::Cpu)
    }

    /// Does it convert nothing, by its rules?
    pub(crate) fn is_f32_hybrid(&self) -> bool {
        self.routing.rules == Rules::F32Hybrid
    }

    /// Do all its devices compute in the host's memory?
    pub(crate) fn shares_host_memory(&self) -> bool {
        self.backends.iter().all(|b| b.info().shares_host_memory)
    }

    /// A new runtime of its devices, whose counters are at 0, and that waits for their compilers: it
    /// is they that are to be checked and measured.
    pub(crate) fn runtime(&self) -> Runtime {
        let runtime = Runtime::new(self.backends.iter().cloned());
        runtime.set_background_compilation(false);
        runtime
    }

    /// Options of a model's session on it.
    ///
    /// # Errors
    /// Fails if the model cannot run on the subject.
    pub(crate) fn session(&self, model: &Model) -> Result<SessionOptions> {
        let options = match self.is_f32_hybrid() {
            true => SessionOptions::f32_hybrid(model)?,
            false => SessionOptions::default(),
        };
        Ok(SessionOptions {
            routing: self.routing,
            ..options
        })
    }
}
