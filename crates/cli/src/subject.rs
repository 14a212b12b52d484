//! What is verified and measured by itself: a device, or several that work together.

use std::sync::Arc;

use anyhow::Result;
use rustorch_llm::{Model, SessionOptions};
use rustorch_runtime::{Backend, DeviceType, Routing, Rules, Runtime};
use rustorch_tensor::Discovered;

use crate::args::{BackendArg, Hybrid};
use crate::devices::routing;

/// A device that nothing can stand in for, or several by common rules.
pub(crate) struct Subject {
    /// What `-b` calls it.
    pub(crate) name: String,
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    routing: Routing,
}

impl Subject {
    /// What was asked for; if nothing was, every device but the reference, and all of them as
    /// the f32 hybrid where they are more than one.
    ///
    /// # Errors
    /// It is not on this machine.
    pub(crate) fn find(asked: Option<BackendArg>, found: &Discovered) -> Result<Vec<Self>> {
        let Discovered { backends, absent } = found;
        let alone = |backend: &Arc<dyn Backend>| Self {
            name: backend.info().device.to_string(),
            backends: vec![backend.clone()],
            routing: Routing::AUTO,
        };
        let together = |arg: BackendArg| -> Result<Self> {
            Ok(Self {
                name: arg.to_string(),
                backends: backends.clone(),
                routing: routing(arg, backends, absent)?,
            })
        };
        match asked.unwrap_or(BackendArg::Device(DeviceType::Auto)) {
            arg @ BackendArg::Hybrid(_) => Ok(vec![together(arg)?]),
            arg => {
                let wanted = routing(arg, backends, absent)?.device;
                let is_wanted = |b: &&Arc<dyn Backend>| match wanted {
                    // What the others are held to.
                    DeviceType::Auto => b.info().device != DeviceType::Reference,
                    one => b.info().device == one,
                };
                let mut subjects: Vec<Self> =
                    backends.iter().filter(is_wanted).map(alone).collect();
                if subjects.len() > 1 && cfg!(feature = "hybrid-f32") {
                    subjects.push(together(BackendArg::Hybrid(Hybrid::F32))?);
                }
                Ok(subjects)
            }
        }
    }

    /// The CPU's own backend.
    ///
    /// # Errors
    /// There is none, which no machine is without.
    pub(crate) fn cpu(found: &Discovered) -> Result<Vec<Self>> {
        Self::find(Some(BackendArg::Device(DeviceType::Cpu)), found)
    }

    /// The device, if it is one.
    pub(crate) fn device(&self) -> Option<&Arc<dyn Backend>> {
        match &self.backends[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Is it the CPU's own backend?
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

    /// A new runtime of its devices, whose counters are at 0.
    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::new(self.backends.iter().cloned())
    }

    /// How a model runs on it.
    ///
    /// # Errors
    /// It cannot.
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
