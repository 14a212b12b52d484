//! gpt-oss.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use crate::spec::{Activation, AttentionSpec, ExpertsSpec, Gating, LayerSpec, Need, RopeFactors};

pub(super) const ALL: &[Arch] = &[GPT_OSS];

/// gpt-oss: sinks, a window in every second layer, biased experts with a bounded activation.
const GPT_OSS: Arch = Arch {
    name: "gpt-oss",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let is_windowed = b.is_windowed(l, 2, false);
            let mut rope = match is_windowed {
                true => b.windowed_rope(None, true)?,
                false => b.rope()?,
            };
            rope.factors = RopeFactors::None;
            let attention = AttentionSpec {
                window: is_windowed.then(|| b.own_window()),
                rope: Some(rope),
                sinks: Need::Required,
                ..b.unrotated(l)
            };
            let width = b.expert_width(l, 0);
            let experts = ExpertsSpec {
                activation: Activation::SwiGluOai {
                    alpha: 1.702,
                    limit: 7.0,
                },
                gating: Gating::SoftmaxOfChosen,
                normalised: false,
                ..b.experts(l, width)
            };
            Ok(LayerSpec {
                ffn_norm: Some(b.norm("post_attention_norm")),
                ..b.layer(l, attention, experts.into())
            })
        })
    },
};
