//! Mixtures of experts; those of DeepSeek with latent attention.

use rustorch_ir::ops::RopeLayout::{self, Halves, Interleaved};
use rustorch_ir::ops::{Rope, RopeScaling};

use super::Arch;
use super::base::{Base, File};
use crate::LlmError;
use crate::spec::{
    Activation, AttentionSpec, ChosenBy, DenseSpec, ExpertsSpec, FfnSpec, Gating, IndexerSpec,
    LayerSpec, ModelSpec, Need, NormKind, NormSpec, NormedOver, Scales, Temperature,
};

pub(super) const ALL: &[Arch] = &[
    DBRX,
    GROK,
    ARCTIC,
    DEEPSEEK,
    DEEPSEEK2,
    DEEPSEEK32,
    GLM_DSA,
    MISTRAL4,
    BAILINGMOE,
    BAILINGMOE2,
    DOTS1,
    DEEPSEEK2_OCR,
    MINIMAX_M2,
    GROVEMOE,
];

/// DBRX: layer norms, bounded queries, keys and values.
const DBRX: Arch = Arch {
    name: "dbrx",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let clamp = b.keys.number_or("attention.clamp_kqv", 0.0);
        b.model(|l| {
            let attention = AttentionSpec {
                clamp: (clamp > 0.0).then_some(clamp),
                ..b.attention(l)?
            };
            let width = b.keys.size_of("feed_forward_length", l);
            Ok(LayerSpec {
                ffn_norm: Some(b.norm("attn_output_norm")),
                ..b.layer(l, attention, b.experts(l, width).into())
            })
        })
    },
};

/// Grok: soft caps, factors, and a dense part beside the experts in some models.
const GROK: Arch = Arch {
    name: "grok",
    describe: |file| {
        let b = file.rms(Halves)?;
        let number = |key, default| b.keys.number_or(key, default);
        let cap = number("attn_logit_softcapping", 30.0);
        let scale = number("attention.output_scale", 0.088_388_347_648_318_45);
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                scale,
                soft_cap: Some(cap),
                ..b.attention(l)?
            };
            let dense = DenseSpec {
                activation: Activation::GeluTanh,
                ..b.gated(l)
            };
            let experts = ExpertsSpec {
                activation: Activation::GeluTanh,
                ..b.experts(l, b.expert_width(l, dense.width))
            };
            let ffn = match b.has(l, "ffn_up") {
                true => FfnSpec {
                    scale: std::f64::consts::FRAC_1_SQRT_2,
                    ..experts.beside(dense)
                },
                false => experts.into(),
            };
            let behind = match b.has(l, "layer_output_norm") {
                true => "layer_output_norm",
                false => "post_ffw_norm",
            };
            Ok(LayerSpec {
                out_norm: Some(b.norm("attn_output_norm")),
                ffn_out_norm: Some(b.norm(behind)),
                ..b.layer(l, attention, ffn)
            })
        })?;
        model.embedding.scale = number("embedding_scale", 78.383_671_769_061_69);
        model.head.scale = number("logit_scale", 0.577_350_269_189_625_7);
        let cap = number("final_logit_softcapping", 0.0);
        model.head.soft_cap = (cap != 0.0).then_some(cap);
        Ok(model)
    },
};

/// Arctic: a dense part, and experts that read the layer's input.
const ARCTIC: Arch = Arch {
    name: "arctic",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let width = b.keys.size_of("feed_forward_length", l);
            let dense = DenseSpec {
                width: b.width,
                ..b.gated(l)
            };
            Ok(LayerSpec {
                input_experts: Some((b.norm("ffn_norm_exps"), b.experts(l, width))),
                ..b.layer(l, b.attention(l)?, dense.into())
            })
        })
    },
};

/// The first layers dense, the others with experts beside shared ones.
fn leading(b: &Base, l: usize, experts: impl Fn(ExpertsSpec) -> ExpertsSpec) -> FfnSpec {
    if b.is_leading(l) {
        return b.gated(l).into();
    }
    let width = b.expert_width(l, 0);
    let shared = b.shared(b.shared_width(width));
    experts(b.experts(l, width)).beside(shared)
}

/// DeepSeek MoE.
const DEEPSEEK: Arch = Arch {
    name: "deepseek",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let ffn = leading(&b, l, |experts| ExpertsSpec {
                normalised: false,
                ..experts
            });
            Ok(b.layer(l, b.attention(l)?, ffn))
        })
    },
};

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

/// DeepSeek V3.2: each token sees the keys that an indexer chooses.
const DEEPSEEK32: Arch = Arch {
    name: "deepseek32",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        sparse(&b, Gating::Softmax, Halves, |_| true)
    },
};

/// GLM 5: the same, where layers of long contexts share the choices of earlier ones.
const GLM_DSA: Arch = Arch {
    name: "glm-dsa",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let flags = b.keys.flags("attention.indexer.types");
        let is_long = b.keys.size("context_length") >= 1 << 20;
        sparse(&b, Gating::Sigmoid, Interleaved, |l| match &flags {
            Some(flags) => flags.get(l).copied().unwrap_or(true),
            None => !is_long || l < 2 || (l - 2).is_multiple_of(4),
        })
    },
};

/// Latent attention to chosen keys, and experts. `has_own` says whether a layer chooses them.
fn sparse(
    b: &Base,
    gating: Gating,
    layout: RopeLayout,
    has_own: impl Fn(usize) -> bool,
) -> Result<ModelSpec, LlmError> {
    let k = b.keys;
    let normalised = k.flag("expert_weights_norm");
    let gating = b.gating(gating);
    b.model(|l| {
        let mut attention = b.latent(l, true)?;
        attention.scale *= scores_growth(b, &mut attention, |_| 1.0);
        let width = k.size("attention.indexer.key_length");
        attention.indexer = Some(match (&attention.rope, has_own(l)) {
            (Some(rope), true) => IndexerSpec::Own {
                heads: k.size("attention.indexer.head_count"),
                width,
                chosen: k.size("attention.indexer.top_k"),
                norm: NormSpec {
                    kind: NormKind::Layer,
                    eps: 1e-6,
                    ..b.norm("indexer.k_norm")
                },
                rope: Rope {
                    layout,
                    ..rope.op.clone()
                },
            },
            _ => IndexerSpec::Before,
        });
        if has_own(l) {
            attention.key_width += width;
        }
        let mut ffn = leading(b, l, |experts| ExpertsSpec {
            normalised,
            gating,
            choice_bias: Need::Optional,
            scales: true,
            ..experts
        });
        if let Some(dense) = &mut ffn.dense {
            dense.scales = Scales::All;
            dense.biases = false;
        }
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

/// Ling (Bailing) with experts in every layer.
const BAILINGMOE: Arch = Arch {
    name: "bailingmoe",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let normalised = b.keys.flag("expert_weights_norm");
        b.model(|l| {
            let width = b.expert_width(l, 0);
            let experts = ExpertsSpec {
                normalised,
                ..b.experts(l, width)
            };
            let shared = b.shared(b.shared_width(width));
            Ok(b.layer(l, b.attention(l)?, experts.beside(shared)))
        })
    },
};

/// Ling 2.
const BAILINGMOE2: Arch = Arch {
    name: "bailingmoe2",
    describe: |file| {
        let b = file.rms(Halves)?;
        let own = b
            .keys
            .count_of("expert_shared_feed_forward_length", 0)
            .filter(|n| *n > 0);
        b.model(|l| {
            let mut ffn = by_keys(&b, l);
            if let (Some(_), Some(shared), Some(own)) = (&ffn.experts, &mut ffn.dense, own) {
                shared.width = b.shared_width(own);
            }
            Ok(b.layer(l, b.normed_attention(l)?, ffn))
        })
    },
};

/// The first layers dense, the others with experts as the file's keys describe them.
fn by_keys(b: &Base, l: usize) -> FfnSpec {
    leading(b, l, |experts| ExpertsSpec {
        normalised: b.keys.flag("expert_weights_norm"),
        gating: b.gating(Gating::Softmax),
        choice_bias: Need::Optional,
        ..experts
    })
}

/// dots.llm1.
const DOTS1: Arch = Arch {
    name: "dots1",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| Ok(b.layer(l, b.normed_attention(l)?, by_keys(&b, l))))
    },
};

/// The decoder of DeepSeek-OCR. Its rotation is never scaled.
const DEEPSEEK2_OCR: Arch = Arch {
    name: "deepseek2-ocr",
    describe: |file| {
        let b = file.rms(Halves)?;
        let mut rope = b.rope()?;
        rope.op.scaling = RopeScaling::NONE;
        b.model(|l| {
            let attention = AttentionSpec {
                rope: Some(rope.clone()),
                ..b.unrotated(l)
            };
            Ok(b.layer(l, attention, by_keys(&b, l)))
        })
    },
};

/// MiniMax M2: norms of all queries and keys.
const MINIMAX_M2: Arch = Arch {
    name: "minimax-m2",
    describe: |file| {
        let b = file.rms(Halves)?;
        let gating = b.gating(Gating::Sigmoid);
        b.model(|l| {
            let attention = b.with_head_norms(b.attention(l)?, NormedOver::Width, Need::Required);
            let width = b.keys.size_of("feed_forward_length", l);
            let experts = ExpertsSpec {
                gating,
                choice_bias: Need::Required,
                ..b.experts(l, width)
            };
            Ok(b.layer(l, attention, experts.into()))
        })
    },
};

/// GroveMoE: groups of experts share smaller ones, which read their result.
const GROVEMOE: Arch = Arch {
    name: "grovemoe",
    describe: |file| {
        let b = file.rms(Halves)?;
        let per_group = b.keys.size("experts_per_group");
        let scale = b.keys.number_or("expert_group_scale", 1.0);
        b.model(|l| {
            let experts = b.experts(l, 1);
            let width = b.keys.count_of("feed_forward_length", l).unwrap_or(0);
            let share = width / experts.used;
            let attention = b.normed_attention(l)?;
            let chunk = b.keys.count_of("expert_chunk_feed_forward_length", 0);
            let chunks = ExpertsSpec {
                width: chunk.filter(|n| *n > 0).unwrap_or(attention.key_width),
                used: experts.used.min(experts.count / per_group),
                chosen_by: ChosenBy::Sigmoid,
                suffix: "_chexps",
                per_group,
                ..experts.clone()
            };
            let experts = ExpertsSpec {
                width: b.expert_width(l, share),
                chosen_by: ChosenBy::Sigmoid,
                chunks: Some((Box::new(chunks), scale)),
                ..experts
            };
            Ok(b.layer(l, attention, experts.into()))
        })
    },
};
