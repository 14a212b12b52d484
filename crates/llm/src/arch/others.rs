//! Architectures that are like no other.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};
use rustorch_ir::ops::{Rope, RopeScaling};

use super::Arch;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, HeadNormSpec, LayerSpec, Need, NormKind, NormSpec,
    NormedOver, RopeFactors, RopeSpec, Scales,
};

pub(super) const ALL: &[Arch] = &[APERTUS, OPENELM, TALKIE, CHAMELEON, COGVLM];

/// Apertus: xIELU without a gate.
const APERTUS: Arch = Arch {
    name: "apertus",
    describe: |file| {
        let b = file.rms(Halves)?;
        let softplus = |x: f64| if x > 20.0 { x } else { x.exp().ln_1p() };
        let keys = b.keys.with_prefix("xielu");
        b.model(|l| {
            let number = |name: &str| {
                let number = keys.number_of(name, l);
                if number.is_none() {
                    keys.wrong(name, "missing");
                }
                number.unwrap_or(1.0)
            };
            let beta = number("beta");
            let activation = Activation::Xielu {
                negative: beta + softplus(number("alpha_n")),
                positive: softplus(number("alpha_p")),
                beta,
                eps: number("eps"),
            };
            let mut attention = b.normed_attention(l)?;
            for norm in [&mut attention.query_norm, &mut attention.key_norm] {
                norm.iter_mut().for_each(|norm| norm.norm.bias = false);
            }
            Ok(b.layer(l, attention, b.ungated(l, activation).into()))
        })
    },
};

/// OpenELM: heads and widths that grow with the layer.
const OPENELM: Arch = Arch {
    name: "openelm",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = AttentionSpec {
                scales: false,
                ..b.normed_attention(l)?
            };
            Ok(b.layer(l, attention, b.gated(l).into()))
        })
    },
};

/// Talkie: norms without weights, and the embedding is added in every layer.
const TALKIE: Arch = Arch {
    name: "talkie",
    describe: |file| {
        let b = file.rms(Halves)?;
        let bare = |name| NormSpec {
            weight: Need::Absent,
            ..b.norm(name)
        };
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                query_norm: Some(HeadNormSpec {
                    norm: b.norm("attn_q_norm"),
                    over: NormedOver::HeadOneWeight,
                }),
                key_norm: Some(HeadNormSpec {
                    norm: bare("attn_k_norm"),
                    over: NormedOver::Head,
                }),
                norm_after_rope: true,
                ..b.attention(l)?
            };
            let dense = DenseSpec {
                scales: Scales::Down,
                ..b.gated(l)
            };
            Ok(LayerSpec {
                norm: Some(bare("attn_norm")),
                ffn_norm: Some(bare("ffn_norm")),
                embedding_skip: true,
                ..b.layer(l, attention, dense.into())
            })
        })?;
        model.embedding.norm = Some(bare("token_embd_norm"));
        model.head.norm = Some(bare("output_norm"));
        model.head.scales = false;
        model.head.scale = b.keys.number_or("logit_scale", 1.0);
        Ok(model)
    },
};

/// Chameleon: norms of queries and keys by head; no tokens of pictures are ever chosen.
const CHAMELEON: Arch = Arch {
    name: "chameleon",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let is_behind = b.keys.flag("swin_norm");
        let head_norm = |name| HeadNormSpec {
            norm: NormSpec {
                kind: NormKind::Layer,
                eps: 1e-5,
                ..b.norm(name)
            },
            over: NormedOver::HeadOwnWeights,
        };
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                query_norm: Some(head_norm("attn_q_norm")),
                key_norm: Some(head_norm("attn_k_norm")),
                ..b.attention(l)?
            };
            let layer = b.layer(l, attention, b.gated(l).into());
            Ok(match is_behind {
                true => LayerSpec {
                    norm: None,
                    out_norm: layer.norm,
                    ffn_norm: None,
                    ffn_out_norm: layer.ffn_norm,
                    ..layer
                },
                false => layer,
            })
        })?;
        model.head.hidden = 4.min(b.vocab)..8196.min(b.vocab);
        Ok(model)
    },
};

/// The text part of CogVLM, whose rotation no key changes.
const COGVLM: Arch = Arch {
    name: "cogvlm",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = b.unrotated(l);
            let rope = RopeSpec {
                op: Rope {
                    dims: attention.key_width,
                    layout: Halves,
                    base: 10_000.0.into(),
                    scaling: RopeScaling::NONE,
                },
                factors: RopeFactors::None,
                factor_count: 0,
                original_context: b.context,
            };
            let attention = AttentionSpec {
                rope: Some(rope),
                scales: false,
                ..attention
            };
            Ok(b.layer(l, attention, b.gated(l).into()))
        })
    },
};
