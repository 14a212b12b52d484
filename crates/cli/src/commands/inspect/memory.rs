//! The memory that a model needs, and the devices of this machine on which it fits.

use std::fmt;

use anyhow::Result;
use rustorch_ir::{BlockFormat, DType};
use rustorch_llm::{BackendDevice, MemoryNeeds, Model, SessionOptions, free_memory};
use rustorch_runtime::{DeviceType, Runtime};
use rustorch_tensor::DeviceOptions;
use serde::Serialize;

use crate::output::bytes;
use crate::settings::what_fits;

/// Types of the KV cache, the default first.
const CACHES: [(&str, DType); 4] = [
    ("f16", DType::F16),
    ("bf16", DType::BF16),
    ("f32", DType::F32),
    ("q8_0", DType::Block(BlockFormat::Q8_0)),
];

/// Memory in bytes, with a KV cache in f16.
#[derive(Serialize)]
pub(super) struct Memory {
    context: usize,
    trained_context: usize,
    weights: u64,
    /// Sizes of the KV cache by type.
    cache: Vec<(&'static str, u64)>,
    working: u64,
    total: u64,
    devices: Vec<Fit>,
}

/// A device, and the part of the model that fits on it.
#[derive(Serialize)]
struct Fit {
    device: String,
    free: Option<u64>,
    /// Layers that fit, if the free memory is known.
    layers: Option<usize>,
    all_layers: usize,
    /// Does the whole model fit?
    fits: Option<bool>,
    advice: Option<String>,
}

impl Memory {
    /// The needs of a model, beside the devices of this machine.
    ///
    /// # Errors
    /// Fails if the context size is impossible.
    pub(super) fn of(model: Model, context: usize) -> Result<Self> {
        let options = |cache_dtype| SessionOptions {
            context,
            cache_dtype,
            ..SessionOptions::default()
        };
        let needs = MemoryNeeds::new(&model, &options(DType::F16))?;
        let caches = CACHES.into_iter().filter_map(|(name, dtype)| {
            // Heads may be no whole blocks.
            let needs = MemoryNeeds::new(&model, &options(dtype)).ok()?;
            Some((name, needs.cache))
        });
        let found = rustorch_tensor::discover(DeviceOptions::default());
        let runtime = Runtime::new(found.backends);
        let devices = runtime.devices();
        let devices = devices.filter(|info| info.device != DeviceType::Reference);
        Ok(Self {
            context: needs.context,
            trained_context: model.spec().context,
            weights: needs.weights,
            cache: caches.collect(),
            working: needs.working,
            total: needs.total(),
            devices: devices
                .map(|info| Fit::new(&needs, &free_memory(&runtime, info)))
                .collect(),
        })
    }
}

impl Fit {
    fn new(needs: &MemoryNeeds, device: &BackendDevice) -> Self {
        let free = device.free;
        let fits = free.map(|free| needs.fit(free));
        Self {
            device: device.device.to_string(),
            free,
            layers: free.map(|free| needs.layers_within(free)),
            all_layers: needs.layers.len(),
            fits,
            advice: free
                .filter(|&free| !needs.fit(free))
                .map(|free| what_fits(needs, free)),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory with a context of {} tokens", self.context)?;
        if self.context > self.trained_context {
            writeln!(f, "  the model was trained with {}", self.trained_context)?;
        }
        let mut row = |name: &str, size: u64| writeln!(f, "  {name:<16} {:>10}", bytes(size));
        row("weights", self.weights)?;
        for (name, size) in &self.cache {
            row(&format!("KV cache {name}"), *size)?;
        }
        row("working memory", self.working)?;
        row("total with f16", self.total)?;
        writeln!(f, "\ndevices")?;
        for fit in &self.devices {
            writeln!(f, "  {:<16} {fit}", fit.device)?;
        }
        Ok(())
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(free), Some(layers)) = (self.free, self.layers) else {
            return write!(f, "free memory unknown");
        };
        match &self.advice {
            None => write!(f, "fits in {} of free memory", bytes(free)),
            Some(advice) => write!(
                f,
                "does not fit: {} is free, room for {layers} of {} layers; {advice}",
                bytes(free),
                self.all_layers,
            ),
        }
    }
}
