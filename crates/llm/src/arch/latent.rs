//! Latent attention.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};

use super::Arch;
use super::base::{Base, File};
use super::experts::leading;
use crate::LlmError;
use crate::spec::{Activation, AttentionSpec, ExpertsSpec, Gating, ModelSpec, Need, Temperature};

pub(super) const ALL: &[Arch] = &[DEEPSEEK2, MISTRAL4, MINICPM3, PLM];

/// DeepSeek V2 and V3, Kimi K2, GLM 4.7 Flash.
const DEEPSEEK2: Arch = Arch {
    name: "deepseek2",
    describe: |file| deepseek2(file, |_| 1.0),
};

/// Mistral Large 3.
const MISTRAL4: Arch = Arch {
    name: "mistral4",
    describe: |file| deepseek2(file, |growth| growth),
};

/// Latent attention and experts. `divisor` says by which growth YaRN's magnitude is divided, for that of the scores.
fn deepseek2(file: File, divisor: fn(f64) -> f64) -> Result<ModelSpec, LlmError> {
    let b = file.rms(Interleaved)?;
    let k = b.keys;
    let normalised = k.flag("expert_weights_norm");
    let is_glm = matches!(b.layers, 47 | 48) && b.vocab == 154_880;
    let gating = b.gating(if is_glm {
        Gating::Sigmoid
    } else {
        Gating::Softmax
    });
    let has_query_rank = k.count_of("attention.q_lora_rank", 0).unwrap_or(0) > 0;
    b.model(|l| {
        let mut attention = b.latent(l, has_query_rank)?;
        attention.scale *= scores_growth(&b, &mut attention, divisor);
        attention.temperature = temperature(&b);
        let ffn = leading(&b, l, |experts| ExpertsSpec {
            normalised,
            gating,
            choice_bias: Need::Optional,
            ..experts
        });
        Ok(b.layer(l, attention, ffn))
    })
}

/// The growth of scores with YaRN's factor. Queries and keys grow by the root of a part of it.
fn scores_growth(b: &Base, attention: &mut AttentionSpec, divisor: fn(f64) -> f64) -> f64 {
    let Some(rope) = &mut attention.rope else {
        return 1.0;
    };
    // Files have a tenth of the number.
    let growth = b.keys.number_or("rope.scaling.yarn_log_multiplier", 0.0) / 0.1;
    if growth != 0.0 {
        rope.divide_magnitude(divisor(growth));
    }
    let stretched = |growth: f64| 1.0 + 0.1 * growth * rope.stretch().ln();
    let magnitude = match rope.is_yarn() {
        true => rope.op.magnitude(),
        false => rope.op.magnitude() * stretched(1.0),
    };
    (magnitude * stretched(growth)).powi(2)
}

/// Growth of the scores with the position.
fn temperature(b: &Base) -> Option<Temperature> {
    let scale = b.keys.number_or("attention.temperature_scale", 0.0);
    (scale != 0.0).then(|| Temperature {
        scale,
        offset: 0.0,
        floor: b.keys.size("attention.temperature_length"),
    })
}

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

/// PLM.
const PLM: Arch = Arch {
    name: "plm",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let ffn = b.ungated(l, Activation::ReluSquared);
            Ok(b.layer(l, b.latent(l, false)?, ffn.into()))
        })
    },
};
