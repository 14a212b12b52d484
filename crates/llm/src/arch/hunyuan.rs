//! Hunyuan.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use super::base::{Base, File};
use crate::LlmError;
use crate::spec::{AttentionSpec, DenseSpec, ExpertsSpec, Gating, ModelSpec, Need, Scales};

pub(super) const ALL: &[Arch] = &[HUNYUAN_DENSE, HUNYUAN_VL, HUNYUAN_MOE, HY_V3];

/// Norms of queries and keys behind the rotation, whose base grows with the context that is asked for.
fn attention(b: &Base, l: usize) -> Result<AttentionSpec, LlmError> {
    let mut attention = AttentionSpec {
        norm_after_rope: true,
        ..b.normed_attention(l)?
    };
    let alpha = b.keys.number_or("rope.scaling.alpha", 0.0);
    if let Some(rope) = attention.rope.as_mut().filter(|_| alpha > 0.0) {
        let width = attention.key_width as f64;
        rope.op.base = (rope.op.base.0 * alpha.powf(width / (width - 2.0))).into();
    }
    Ok(attention)
}

fn dense(file: File) -> Result<ModelSpec, LlmError> {
    let b = file.rms(Halves)?;
    b.model(|l| Ok(b.layer(l, attention(&b, l)?, b.gated(l).into())))
}

/// Hunyuan without experts.
const HUNYUAN_DENSE: Arch = Arch {
    name: "hunyuan-dense",
    describe: dense,
};

/// The text part of Hunyuan for images.
const HUNYUAN_VL: Arch = Arch {
    name: "hunyuan_vl",
    describe: dense,
};

/// Hunyuan with experts beside a shared one.
const HUNYUAN_MOE: Arch = Arch {
    name: "hunyuan-moe",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = AttentionSpec {
                norm_after_rope: true,
                ..b.normed_attention(l)?
            };
            let width = b.keys.size_of("feed_forward_length", l);
            let shared = b.keys.count_of("expert_shared_feed_forward_length", 0);
            let shared = b.shared(shared.filter(|n| *n > 0).unwrap_or(width));
            Ok(b.layer(l, attention, b.experts(l, width).beside(shared)))
        })
    },
};

/// Hunyuan 3: layers with experts are those that have a router.
const HY_V3: Arch = Arch {
    name: "hy_v3",
    describe: |file| {
        let b = file.rms(Halves)?;
        let mut model = b.model(|l| {
            let scales = Scales::All;
            let ffn = match b.has(l, "ffn_gate_inp") {
                true => {
                    let width = b.expert_width(l, 0);
                    let shared = b.keys.count_of("expert_shared_feed_forward_length", 0);
                    let shared = b.shared(shared.filter(|n| *n > 0).unwrap_or(width));
                    let experts = ExpertsSpec {
                        gating: b.gating(Gating::Sigmoid),
                        choice_bias: Need::Optional,
                        normalised: b.keys.flag("expert_weights_norm"),
                        scales: true,
                        ..b.experts(l, width)
                    };
                    experts.beside(DenseSpec { scales, ..shared })
                }
                false => DenseSpec {
                    scales,
                    ..b.gated(l)
                }
                .into(),
            };
            Ok(b.layer(l, b.normed_attention(l)?, ffn))
        })?;
        model.unread = super::windowed::DENSE;
        Ok(model)
    },
};
