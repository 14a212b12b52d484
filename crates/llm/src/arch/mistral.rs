//! Mistral 3.

use rustorch_ir::ops::RopeLayout::Interleaved;

use super::Arch;
use crate::spec::{AttentionSpec, Temperature};

pub(super) const ALL: &[Arch] = &[MISTRAL3];

/// Mistral 3, Ministral 3, Devstral: scores grow with the position.
const MISTRAL3: Arch = Arch {
    name: "mistral3",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let scale = b.keys.number_or("attention.temperature_scale", 0.0);
        let log_multiplier = b.keys.number_or("rope.scaling.yarn_log_multiplier", 0.0);
        b.model(|l| {
            let mut attention = b.attention(l)?;
            let mut original = 1;
            if let Some(rope) = &mut attention.rope {
                original = rope.original_context;
                rope.divide_magnitude(log_multiplier);
            }
            let attention = AttentionSpec {
                temperature: (scale != 0.0).then_some(Temperature {
                    scale,
                    offset: 0.0,
                    floor: original,
                }),
                ..attention
            };
            Ok(b.layer(l, attention, b.ffn(l, true)))
        })
    },
};
