//! OLMo.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};
use rustorch_ir::ops::RopeScaling;

use super::Arch;
use crate::spec::{AttentionSpec, ExpertsSpec, LayerSpec, Need, NormSpec, NormedOver, Window};

pub(super) const ALL: &[Arch] = &[OLMO, OLMO2, OLMOE];

/// OLMo: layer norms without weights, bounded queries, keys and values.
const OLMO: Arch = Arch {
    name: "olmo",
    describe: |file| {
        let b = file.layer_norm(Interleaved)?;
        let clamp = b.keys.number_or("attention.clamp_kqv", 0.0);
        let bare = |norm| NormSpec {
            weight: Need::Absent,
            ..norm
        };
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                clamp: (clamp > 0.0).then_some(clamp),
                ..b.attention(l)?
            };
            let layer = b.layer(l, attention, b.gated(l).into());
            Ok(LayerSpec {
                norm: layer.norm.map(bare),
                ffn_norm: layer.ffn_norm.map(bare),
                ..layer
            })
        })?;
        model.head.norm = model.head.norm.map(bare);
        Ok(model)
    },
};

/// OLMo 2 and 3: norms behind both parts alone; layers with a window have a plain rotation.
const OLMO2: Arch = Arch {
    name: "olmo2",
    describe: |file| {
        let b = file.rms(Halves)?;
        let window = b.window();
        b.model(|l| {
            let mut attention =
                b.with_head_norms(b.attention(l)?, NormedOver::Width, Need::Required);
            if window.is_some() && b.is_windowed(l, 4, false) {
                attention.window = window.map(Window::Sliding);
                if let Some(rope) = &mut attention.rope {
                    rope.op.scaling = RopeScaling::NONE;
                }
            }
            Ok(LayerSpec {
                norm: None,
                ffn_norm: None,
                ..b.sandwich(l, attention, b.gated(l).into())
            })
        })
    },
};

/// OLMoE.
const OLMOE: Arch = Arch {
    name: "olmoe",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = b.with_head_norms(b.attention(l)?, NormedOver::Width, Need::Required);
            let width = b.keys.size_of("feed_forward_length", l);
            let experts = ExpertsSpec {
                normalised: false,
                ..b.experts(l, width)
            };
            Ok(b.layer(l, attention, experts.into()))
        })
    },
};
