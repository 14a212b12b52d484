//! Mistral 3.

use rustorch_ir::ops::RopeLayout::Interleaved;
use rustorch_ir::ops::RopeScaling;

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
            let rope = attention.rope.as_mut();
            let original = rope.as_ref().map_or(1, |rope| rope.original_context);
            if let Some(RopeScaling::Yarn {
                factor,
                extrapolation,
                attention,
                ..
            }) = rope.map(|rope| &mut rope.op.scaling)
                && extrapolation.0 != 0.0
            {
                // The magnitude that grows with the factor is divided by one that grows by this multiplier.
                let growth = 1.0 + 0.1 * log_multiplier * (1.0 / factor.0).ln().max(0.0);
                *attention = (attention.0 / growth).into();
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
