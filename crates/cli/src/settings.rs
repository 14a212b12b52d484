//! What the options of a run mean to the libraries.

use anyhow::{Result, bail};
use rustorch_ir::{BlockFormat, DType};
use rustorch_llm::{BackendConfig, LayerBackend, Model, SessionOptions};
use rustorch_runtime::{DeviceType, Rules};
use serde_json::{Value, json};

use crate::args::{CacheType, ContextArgs, GpuArgs};
use crate::devices::Devices;
use crate::failure::Usage;
use crate::output::{bytes, note};

/// Contexts beyond this are only made when they are asked for: their cache is large.
const DEFAULT_CONTEXT: usize = 8192;

/// llama.cpp's `--batch-size`, where none is given.
pub(crate) const DEFAULT_BATCH: usize = 2048;

/// How a model runs.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) session: SessionOptions,
    /// Where each layer goes, and why; empty where that was not for the program to choose.
    pub(crate) layers: Vec<LayerBackend>,
}

impl ContextArgs {
    /// The settings of a session of `model` on `devices`. Where its layers are split between
    /// several, a line on standard error says how.
    ///
    /// # Errors
    /// They contradict each other, or GPUs may take too little memory for a layer.
    pub(crate) fn session(&self, model: &Model, devices: &Devices) -> Result<Settings> {
        let trained = model.config().context;
        let context = match self.ctx_size {
            None => trained.min(DEFAULT_CONTEXT),
            Some(0) => trained,
            Some(size) => size,
        };
        if context > trained {
            tracing::warn!(
                "a context of {context} tokens: the model was trained with {trained}, and what it \
                 writes beyond them may make no sense"
            );
        }
        if self.ubatch_size == 0 {
            return Err(
                Usage("--ubatch-size 0: a batch needs at least one token".to_owned()).into(),
            );
        }
        let backend = match devices.routing.rules {
            Rules::F32Hybrid => SessionOptions::f32_hybrid(model)?,
            Rules::Selector | Rules::MacHybrid => SessionOptions::default(),
        };
        let cache_dtype = self.cache_dtype(backend.cache_dtype)?;
        if devices.routing.rules == Rules::F32Hybrid && cache_dtype != backend.cache_dtype {
            let problem = "-b hybrid-f32 converts nothing: leave -ctk and -ctv out";
            return Err(Usage(problem.to_owned()).into());
        }
        let options = SessionOptions {
            context,
            batch: devices.batch.unwrap_or(DEFAULT_BATCH).min(self.ubatch_size),
            cache_dtype,
            routing: devices.routing,
            ..backend
        };
        // Who routes operations chooses by hand.
        if devices.is_routed {
            return Ok(Settings {
                session: options,
                layers: Vec::new(),
            });
        }
        let GpuArgs {
            n_gpu_layers,
            gpu_memory,
        } = devices.gpus;
        let (session, layers) = options.select_layers(model, &devices.runtime, n_gpu_layers)?;
        if let Some(limit) = gpu_memory
            && layers.iter().all(|layer| layer.device == DeviceType::Cpu)
        {
            let config = BackendConfig::new(model, &devices.runtime, &session)?;
            if let Some(needed) = config.with_gpu_layers(n_gpu_layers).lacking() {
                bail!(
                    "--gpu-memory {limit}: not even one layer fits; the last one, with the output \
                     head, its cache and working memory, needs {}; -ngl 0 does without GPUs",
                    bytes(needed)
                );
            }
        }
        let runs = layer_runs(&layers);
        for (layers, backend) in &runs {
            tracing::info!("{layers} on {}: {}", backend.device, backend.reason);
        }
        if runs.len() > 1 {
            let parts = runs.iter();
            let parts = parts.map(|(layers, LayerBackend { device, reason })| {
                format!("{layers} on {device} ({reason})")
            });
            note(parts.collect::<Vec<_>>().join(" · "));
        }
        Ok(Settings { session, layers })
    }

    /// The element type of the cache; what is not given is the backend's.
    ///
    /// # Errors
    /// Keys and values differ.
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
                "-ctk and -ctv differ: keys and values are cached in one type".to_owned(),
            )),
        }
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
    let runs = chosen.chunk_by(|a, b| a == b);
    runs.map(|run| (name(run), &run[0])).collect()
}

/// The layers that go together, for programs.
pub(crate) fn layers_json(runs: &[(String, &LayerBackend)]) -> Vec<Value> {
    let row = |(layers, LayerBackend { device, reason }): &(String, &LayerBackend)| json!({"layers": layers, "device": device.to_string(), "reason": reason});
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
