//! Decoders with layer norms, from GPT-2 on.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};

use super::Arch;
use super::base::{Base, File};
use crate::LlmError;
use crate::spec::{Activation, AttentionSpec, LayerSpec, ModelSpec, Need, NormedOver, Residual};

pub(super) const ALL: &[Arch] = &[
    GPT2, STARCODER, STARCODER2, CODESHELL, GPTNEOX, FALCON, BLOOM, MPT, STABLELM, ORION, NEMOTRON,
    POCKETTTS, JAIS, JAIS2,
];

/// Learned positions, GELU without a gate.
fn gpt2(file: File) -> Result<ModelSpec, LlmError> {
    let b = file.layer_norm(Halves)?;
    let mut model =
        b.model(|l| Ok(b.layer(l, b.unrotated(l), b.ungated(l, Activation::GeluTanh).into())))?;
    model.embedding.positions = Need::Required;
    Ok(model)
}

/// Rotation, and an activation without a gate.
fn rotated(b: &Base, activation: Activation) -> Result<ModelSpec, LlmError> {
    b.model(|l| Ok(b.layer(l, b.attention(l)?, b.ungated(l, activation).into())))
}

/// GPT-2.
const GPT2: Arch = Arch {
    name: "gpt2",
    describe: gpt2,
};

/// StarCoder.
const STARCODER: Arch = Arch {
    name: "starcoder",
    describe: gpt2,
};

/// StarCoder 2.
const STARCODER2: Arch = Arch {
    name: "starcoder2",
    describe: |file| rotated(&file.layer_norm(Halves)?, Activation::GeluTanh),
};

/// CodeShell.
const CODESHELL: Arch = Arch {
    name: "codeshell",
    describe: |file| rotated(&file.layer_norm(Halves)?, Activation::GeluTanh),
};

/// GPT-NeoX, Pythia: both parts may read the layer's input.
const GPTNEOX: Arch = Arch {
    name: "gptneox",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let residual = match b.keys.flag("use_parallel_residual") {
            true => Residual::Parallel,
            false => Residual::Sequential,
        };
        let mut model = rotated(&b, Activation::GeluTanh)?;
        for layer in &mut model.layers {
            layer.residual = residual;
        }
        Ok(model)
    },
};

/// Falcon: both parts read the layer's input, by one norm or two.
const FALCON: Arch = Arch {
    name: "falcon",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        b.model(|l| {
            let ffn = b.ungated(l, Activation::GeluTanh).into();
            let (norm, ffn_norm) = match b.has(l, "attn_norm_2") {
                true => ("attn_norm_2", Some(b.norm("attn_norm"))),
                false => ("attn_norm", None),
            };
            Ok(LayerSpec {
                norm: Some(b.norm(norm)),
                ffn_norm,
                residual: Residual::Parallel,
                ..b.layer(l, b.attention(l)?, ffn)
            })
        })
    },
};

/// BLOOM: ALiBi, and a norm of the embedding.
const BLOOM: Arch = Arch {
    name: "bloom",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                alibi: Some(8.0),
                ..b.unrotated(l)
            };
            Ok(b.layer(l, attention, b.ungated(l, Activation::GeluTanh).into()))
        })?;
        model.embedding.norm = Some(b.norm("token_embd_norm"));
        Ok(model)
    },
};

/// MPT: ALiBi or learned positions, bounded queries, keys and values.
const MPT: Arch = Arch {
    name: "mpt",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let clamp = b.keys.number_or("attention.clamp_kqv", 0.0);
        let alibi = b.keys.number_or("attention.max_alibi_bias", 0.0);
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                clamp: (clamp > 0.0).then_some(clamp),
                alibi: (alibi > 0.0).then_some(alibi),
                ..b.unrotated(l)
            };
            let attention = match b.has(l, "attn_q_norm") {
                true => b.with_head_norms(attention, NormedOver::Width, Need::Required),
                false => attention,
            };
            Ok(b.layer(l, attention, b.ungated(l, Activation::GeluTanh).into()))
        })?;
        model.embedding.positions = Need::Optional;
        model.unread = &["attn_k_norm."];
        Ok(model)
    },
};

/// StableLM: norms of queries and keys by head, one norm for both parts in some models.
const STABLELM: Arch = Arch {
    name: "stablelm",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        b.model(|l| {
            let attention = match b.has(l, "attn_q_norm") {
                true => {
                    b.with_head_norms(b.attention(l)?, NormedOver::HeadOwnWeights, Need::Required)
                }
                false => b.attention(l)?,
            };
            let layer = b.layer(l, attention, b.gated(l).into());
            Ok(match b.has(l, "ffn_norm") {
                true => layer,
                false => LayerSpec {
                    residual: Residual::Parallel,
                    ffn_norm: None,
                    ..layer
                },
            })
        })
    },
};

/// Orion.
const ORION: Arch = Arch {
    name: "orion",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        b.model(|l| Ok(b.layer(l, b.attention(l)?, b.gated(l).into())))
    },
};

/// Nemotron: squared ReLU.
const NEMOTRON: Arch = Arch {
    name: "nemotron",
    describe: |file| rotated(&file.layer_norm(Halves)?, Activation::ReluSquared),
};

/// Pocket TTS.
const POCKETTTS: Arch = Arch {
    name: "pockettts",
    describe: |file| rotated(&file.layer_norm(Interleaved)?, Activation::GeluTanh),
};

/// Jais: ALiBi, and scores divided by the width of a head.
const JAIS: Arch = Arch {
    name: "jais",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let alibi = b.keys.number_or("attention.max_alibi_bias", 0.0);
        b.model(|l| {
            let attention = b.unrotated(l);
            let attention = AttentionSpec {
                alibi: (alibi > 0.0).then_some(alibi),
                scale: 1.0 / attention.value_width as f64,
                ..attention
            };
            Ok(b.layer(l, attention, b.gated(l).into()))
        })
    },
};

/// Jais 2: squared ReLU.
const JAIS2: Arch = Arch {
    name: "jais2",
    describe: |file| rotated(&file.layer_norm(Halves)?, Activation::ReluSquared),
};
