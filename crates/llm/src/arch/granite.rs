//! Granite and MiniCPM: the embedding, the residual connections, the scores and the logits are scaled.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};

use super::Arch;
use super::base::{Base, File};
use super::recurrent::{is_recurrent, mamba2};
use crate::LlmError;
use crate::spec::{AttentionSpec, DenseSpec, FfnSpec, Gate, LayerSpec, Mixer, ModelSpec, Need};

pub(super) const ALL: &[Arch] = &[
    GRANITE,
    GRANITEHYBRID,
    GRANITEMOE,
    GRANITE_SWA,
    MINICPM,
    MINICPM3,
];

/// Factors where a file has none.
struct Defaults {
    embedding: f64,
    residual: f64,
    logit: f64,
}

fn scaled(b: &Base, mut model: ModelSpec, defaults: &Defaults) -> Result<ModelSpec, LlmError> {
    let factor = |key, default: f64| {
        let value = b.keys.number_or(key, default);
        Ok::<_, LlmError>(if value == 0.0 { 1.0 } else { value })
    };
    model.embedding.scale = factor("embedding_scale", defaults.embedding)?;
    model.head.scale = 1.0 / factor("logit_scale", defaults.logit)?;
    let residual = factor("residual_scale", defaults.residual)?;
    for layer in &mut model.layers {
        layer.residual_scale = residual;
    }
    Ok(model)
}

const NONE: Defaults = Defaults {
    embedding: 0.0,
    residual: 0.0,
    logit: 0.0,
};

/// Experts beside a shared one, where the file has them.
fn ffn(b: &Base, l: usize, gate: Gate) -> FfnSpec {
    let ffn = b.ffn(l, false);
    let shared = b.keys.count_of("expert_shared_feed_forward_length", 0);
    match (ffn.experts, shared) {
        (Some(experts), Some(width)) => experts.beside(DenseSpec {
            gate,
            ..b.shared(width)
        }),
        (experts, _) => FfnSpec { experts, ..ffn },
    }
}

/// Is attention rotated, by the file's key?
fn is_rotated(file: &File) -> bool {
    file.keys.opt_flag("rope.scaling.finetuned").unwrap_or(true)
}

fn granite(file: File, is_rotated: bool, is_hybrid: bool) -> Result<ModelSpec, LlmError> {
    let b = file.rms(Interleaved)?;
    let model = b.model(|l| {
        if is_hybrid && is_recurrent(&b, l) {
            let mixer = Mixer::Recurrent(Box::new(mamba2(&b, Need::Required)));
            return Ok(b.mixed(l, mixer, ffn(&b, l, Gate::Separate)));
        }
        let attention = match is_rotated {
            true => b.attention(l)?,
            false => b.unrotated(l),
        };
        let scale = b.scale(attention.value_width);
        let attention = AttentionSpec { scale, ..attention };
        Ok(b.layer(l, attention, ffn(&b, l, Gate::Separate)))
    })?;
    scaled(&b, model, &NONE)
}

/// Granite 3 and 4.
const GRANITE: Arch = Arch {
    name: "granite",
    describe: |file| {
        let is_rotated = is_rotated(&file);
        granite(file, is_rotated, false)
    },
};

/// Granite 4 with layers of Mamba 2.
const GRANITEHYBRID: Arch = Arch {
    name: "granitehybrid",
    describe: |file| {
        let is_rotated = is_rotated(&file);
        granite(file, is_rotated, true)
    },
};

/// Granite with experts.
const GRANITEMOE: Arch = Arch {
    name: "granitemoe",
    describe: |file| granite(file, true, false),
};

/// Granite with windows and sinks.
const GRANITE_SWA: Arch = Arch {
    name: "granite_swa",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let rotated = b.keys.flags("attention.rope_pattern");
        let model = b.model(|l| {
            let is_rotated = rotated
                .as_ref()
                .is_none_or(|r| r.get(l).copied().unwrap_or(true));
            let attention = match is_rotated {
                true => b.attention(l)?,
                false => b.unrotated(l),
            };
            let window = b.is_windowed(l, 0, false).then(|| b.own_window());
            let attention = AttentionSpec {
                scale: b.scale(attention.value_width),
                window,
                sinks: Need::Required,
                ..attention
            };
            Ok(b.layer(l, attention, ffn(&b, l, Gate::Fused)))
        })?;
        scaled(&b, model, &NONE)
    },
};

/// MiniCPM.
const MINICPM: Arch = Arch {
    name: "minicpm",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let model = b.model(|l| -> Result<LayerSpec, _> {
            Ok(b.layer(l, b.attention(l)?, b.ffn(l, false)))
        })?;
        let defaults = Defaults {
            embedding: 12.0,
            residual: 1.4 / (b.layers as f64).sqrt(),
            logit: 256.0 / b.width as f64,
        };
        scaled(&b, model, &defaults)
    },
};

/// MiniCPM 3.
const MINICPM3: Arch = Arch {
    name: "minicpm3",
    describe: |file| {
        let b = file.rms(Halves)?;
        let mut model = b.model(|l| {
            let mut layer = b.layer(l, b.latent(l, true)?, b.gated(l).into());
            layer.residual_scale = 1.4 / (b.layers as f64).sqrt();
            Ok(layer)
        })?;
        model.embedding.scale = 12.0;
        model.head.scale = 256.0 / b.width as f64;
        Ok(model)
    },
};
