//! The libraries' options for a run.

use std::fmt;

use anyhow::{Result, bail};
use rustorch_ir::{BlockFormat, DType};
use rustorch_llm::{
    BackendConfig, EncoderOptions, LayerBackend, MemoryNeeds, Model, PlacementOptions,
    SessionOptions, TensorBackend, TensorRule,
};
use rustorch_runtime::{DeviceType, Rules};
use serde_json::{Value, json};

use crate::args::{CacheType, ContextArgs, EncoderArgs, GpuArgs, TensorDevice};
use crate::devices::Devices;
use crate::failure::Usage;
use crate::output::{bytes, note};

/// Contexts beyond this are only made when they are asked for: their cache is large.
const DEFAULT_CONTEXT: usize = 8192;

/// llama.cpp's `--batch-size`, where none is given.
pub(crate) const DEFAULT_BATCH: usize = 2048;

impl EncoderArgs {
    /// The options of an encoder on `devices`.
    pub(crate) fn options(&self, devices: &Devices) -> EncoderOptions {
        EncoderOptions {
            tokens: self.ctx_size,
            batch: devices.batch.unwrap_or(DEFAULT_BATCH),
            routing: devices.routing,
            ..EncoderOptions::default()
        }
    }
}

/// Settings of a model's run.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) session: SessionOptions,
    /// The device of each layer, and why; empty where that was not for the program to choose.
    pub(crate) layers: Vec<LayerBackend>,
}

impl GpuArgs {
    /// Wishes for the devices of layers and tensors.
    fn wishes(&self) -> PlacementOptions {
        let of_experts = [
            self.cpu_moe
                .then(|| TensorRule::experts("--cpu-moe", usize::MAX)),
            self.n_cpu_moe
                .map(|n| TensorRule::experts(format!("--n-cpu-moe {n}"), n)),
        ];
        let named = self.tensors().map(|TensorDevice(rule)| rule.clone());
        PlacementOptions {
            gpu_layers: self.n_gpu_layers,
            rules: named.chain(of_experts.into_iter().flatten()).collect(),
        }
    }
}

impl ContextArgs {
    /// The settings of a session of `model` on `devices`. If its layers are split between several devices, a
    /// line on standard error says how.
    ///
    /// # Errors
    /// Fails if options contradict each other. Also fails if the GPU memory limit is too small for
    /// a layer.
    pub(crate) fn session(&self, model: &Model, devices: &Devices) -> Result<Settings> {
        let trained = model.spec().context;
        let context = match self.ctx_size {
            None => trained.min(DEFAULT_CONTEXT),
            Some(0) => trained,
            Some(size) => size,
        };
        if context > trained {
            tracing::warn!(
                "-c {context} is more than the {trained} tokens that the model was trained with; \
                 text beyond them may be nonsense"
            );
        }
        if self.ubatch_size == 0 {
            return Err(Usage("--ubatch-size 0: give at least one token".to_owned()).into());
        }
        let backend = match devices.routing.rules {
            Rules::F32Hybrid => SessionOptions::f32_hybrid(model)?,
            Rules::Selector | Rules::MacHybrid => SessionOptions::default(),
        };
        let cache_dtype = self.cache_dtype(backend.cache_dtype)?;
        if devices.routing.rules == Rules::F32Hybrid && cache_dtype != backend.cache_dtype {
            let problem = "-b hybrid-f32 keeps the KV cache in f32; omit -ctk and -ctv";
            return Err(Usage(problem.to_owned()).into());
        }
        let options = SessionOptions {
            context,
            batch: devices.batch.unwrap_or(DEFAULT_BATCH).min(self.ubatch_size),
            cache_dtype,
            routing: devices.routing,
            ..backend
        };
        let needs = MemoryNeeds::new(model, &options)?;
        if let Some(free) = devices.free_memory().filter(|&free| !needs.fit(free)) {
            tracing::warn!("{}", Shortage { needs, free });
        }
        let is_by_operation = devices.is_routed || devices.routing.rules == Rules::F32Hybrid;
        if is_by_operation && devices.gpus.places_tensors() {
            let problem = "-ot, --cpu-moe and --n-cpu-moe choose devices by weights, --route and -b hybrid-f32 by \
                           operations; give one of them";
            return Err(Usage(problem.to_owned()).into());
        }
        // A user who routes operations has chosen devices already.
        if devices.is_routed {
            return Ok(Settings {
                session: options,
                layers: Vec::new(),
            });
        }
        let GpuArgs {
            n_gpu_layers,
            gpu_memory,
            ..
        } = devices.gpus;
        let wishes = devices.gpus.wishes();
        let (session, layers) = options.placed(model, &devices.runtime, &wishes)?;
        if let Some(limit) = gpu_memory
            && layers.iter().all(|layer| layer.device == DeviceType::Cpu)
        {
            let config = BackendConfig::new(model, &devices.runtime, &session)?;
            if let Some(needed) = config.with_gpu_layers(n_gpu_layers).lacking() {
                bail!(
                    "--gpu-memory {limit}: no layer fits; the last layer with the output head, \
                     KV cache and working memory needs {}; -ngl 0 uses no GPU",
                    bytes(needed)
                );
            }
        }
        let runs = layer_runs(&layers);
        let lines: Vec<LayerLine> = runs.iter().flat_map(layer_lines).collect();
        for line in &lines {
            tracing::info!("{line}");
        }
        if lines.len() > 1 {
            let parts = lines.iter().map(|line| line.in_brackets());
            note(parts.collect::<Vec<_>>().join(" · "));
        }
        Ok(Settings { session, layers })
    }

    /// The element type of the cache; without an option it is the backend's.
    ///
    /// # Errors
    /// Fails if keys and values have different types.
    fn cache_dtype(&self, backend: DType) -> Result<DType, Usage> {
        let dtype = |given: Option<CacheType>| match given {
            None => backend,
            Some(CacheType::F16) => DType::F16,
            Some(CacheType::Bf16) => DType::BF16,
            Some(CacheType::Q8_0) => DType::Block(BlockFormat::Q8_0),
            Some(CacheType::F32) => DType::F32,
        };
        let [keys, values] = [self.cache_type_k, self.cache_type_v].map(dtype);
        match keys == values {
            true => Ok(keys),
            false => Err(Usage(
                "-ctk and -ctv differ; give both the same type".to_owned(),
            )),
        }
    }
}

/// A model that does not fit in memory.
struct Shortage {
    needs: MemoryNeeds,
    free: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needs, free } = self;
        write!(
            f,
            "memory is short: the model needs {} (weights {}, KV cache {} at -c {}, working memory {}), and {} \
             is free, so that running it is slow or fails; {}",
            bytes(needs.total()),
            bytes(needs.weights),
            bytes(needs.cache),
            needs.context,
            bytes(needs.working),
            bytes(*free),
            what_fits(needs, *free),
        )
    }
}

/// Advice for a model that does not fit.
pub(crate) fn what_fits(needs: &MemoryNeeds, free: u64) -> String {
    match (needs.context_within(free), needs.weights_within(free)) {
        (0, 0) => "use a smaller -c, or free memory".to_owned(),
        (0, weights) => format!(
            "weights of up to {} fit: use a smaller model, or a smaller type (rustorch-cli quantize)",
            bytes(weights)
        ),
        (context, _) => format!("-c {context} fits"),
    }
}

/// The layers that go together, named `layers 0-5`, with where they go.
pub(crate) fn layer_runs(chosen: &[LayerBackend]) -> Vec<(String, &LayerBackend)> {
    let mut next = 0;
    let mut name = |run: &[LayerBackend]| {
        let first = next;
        next += run.len();
        match run.len() {
            1 => format!("layer {first}"),
            n => format!("layers {first}-{}", first + n - 1),
        }
    };
    let runs = chosen.chunk_by(LayerBackend::is_like);
    runs.map(|run| (name(run), &run[0])).collect()
}

/// The device of layers, or of some of their tensors, and why.
pub(crate) struct LayerLine<'a> {
    what: String,
    device: DeviceType,
    reason: &'a str,
}

impl LayerLine<'_> {
    fn in_brackets(&self) -> String {
        let Self {
            what,
            device,
            reason,
        } = self;
        format!("{what} on {device} ({reason})")
    }
}

impl fmt::Display for LayerLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.what, self.device, self.reason)
    }
}

/// Lines about layers that go together: one for them, and one for tensors of each other device and reason.
pub(crate) fn layer_lines<'a>(
    (layers, backend): &'a (String, &'a LayerBackend),
) -> impl Iterator<Item = LayerLine<'a>> {
    let own = LayerLine {
        what: layers.clone(),
        device: backend.device,
        reason: &backend.reason,
    };
    let elsewhere = backend.elsewhere.iter().map(move |elsewhere| {
        let names: Vec<&str> = elsewhere.names().collect();
        LayerLine {
            what: format!("{} of {layers}", names.join(", ")),
            device: elsewhere.device,
            reason: &elsewhere.reason,
        }
    });
    std::iter::once(own).chain(elsewhere)
}

/// The layers that go together, for programs.
pub(crate) fn layers_json(runs: &[(String, &LayerBackend)]) -> Vec<Value> {
    let elsewhere = |of: &TensorBackend| {
        json!({
            "tensors": of.names().collect::<Vec<_>>(),
            "device": of.device.to_string(),
            "reason": of.reason,
        })
    };
    let row = |(layers, backend): &(String, &LayerBackend)| {
        json!({
            "layers": layers,
            "device": backend.device.to_string(),
            "reason": backend.reason,
            "elsewhere": backend.elsewhere.iter().map(elsewhere).collect::<Vec<_>>(),
        })
    };
    runs.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use rustorch_runtime::DeviceType;

    use super::*;

    #[test]
    fn layers_that_go_together_are_named_together() {
        let layer = |device, reason: &str| LayerBackend {
            device,
            reason: reason.to_owned(),
            elsewhere: Vec::new(),
        };
        let (cpu, gpu) = (DeviceType::Cpu, DeviceType::Cuda(0));
        let chosen = [
            layer(cpu, "full"),
            layer(gpu, "best"),
            layer(gpu, "best"),
            layer(gpu, "best"),
        ];
        let runs = layer_runs(&chosen);
        let named: Vec<_> = runs.iter().map(|(n, l)| (n.as_str(), l.device)).collect();
        assert_eq!(named, [("layer 0", cpu), ("layers 1-3", gpu)]);
        assert!(layer_runs(&[]).is_empty());
    }
}
