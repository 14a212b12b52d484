//! GLM and ChatGLM.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};

use super::Arch;
use crate::spec::{DenseSpec, ExpertsSpec, Gate, Gating, LayerSpec, Need, NormedOver};

pub(super) const ALL: &[Arch] = &[CHATGLM, GLM4, GLM4MOE];

/// ChatGLM and GLM 4 of 2024.
const CHATGLM: Arch = Arch {
    name: "chatglm",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let dense = DenseSpec {
                gate: Gate::Fused,
                ..b.gated(l)
            };
            Ok(b.layer(l, b.attention(l)?, dense.into()))
        })
    },
};

/// GLM 4 of 2025: norms behind both parts. Models for images rotate halves.
const GLM4: Arch = Arch {
    name: "glm4",
    describe: |file| {
        let sections = file
            .keys
            .flags("rope.dimension_sections")
            .unwrap_or_default();
        let is_for_images = sections.len() > 1 && sections[0] && sections[1];
        let b = file.rms(if is_for_images { Halves } else { Interleaved })?;
        b.model(|l| {
            let dense = DenseSpec {
                gate: Gate::Fused,
                ..b.gated(l)
            };
            Ok(b.sandwich(l, b.attention(l)?, dense.into()))
        })
    },
};

/// GLM 4.5 and later with experts.
const GLM4MOE: Arch = Arch {
    name: "glm4moe",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = match b.has(l, "attn_q_norm") {
                true => b.with_head_norms(b.attention(l)?, NormedOver::Head, Need::Required),
                false => b.attention(l)?,
            };
            let ffn = match b.is_leading(l) {
                true => b.gated(l).into(),
                false => {
                    let width = b.expert_width(l, 0);
                    let shared = b.shared(b.shared_width(width));
                    let experts = ExpertsSpec {
                        gating: b.gating(Gating::Sigmoid),
                        choice_bias: Need::Required,
                        normalised: b.keys.flag("expert_weights_norm"),
                        ..b.experts(l, width)
                    };
                    experts.beside(shared)
                }
            };
            Ok(LayerSpec {
                ffn_norm: Some(b.norm("post_attention_norm")),
                ..b.layer(l, attention, ffn)
            })
        })
    },
};
