//! Architectures that are like no other.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};
use rustorch_ir::ops::{Rope, RopeScaling};

use super::Arch;
use super::base::Base;
use crate::LlmError;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, ExpertsSpec, FfnSpec, Gating, HeadNormSpec, LayerSpec,
    ModelSpec, Need, NormKind, NormSpec, NormedOver, RopeFactors, RopeSpec, Scales, StackSpec,
    State,
};

pub(super) const ALL: &[Arch] = &[
    APERTUS, OPENELM, TALKIE, CHAMELEON, COGVLM, GPT_OSS, HRM_TEXT, PLM, DREAM, LLADA, LLADA_MOE,
    RND1,
];

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

/// HRM-Text: a stack of layers for each of two states, used again in each cycle.
const HRM_TEXT: Arch = Arch {
    name: "hrm_text",
    describe: |file| {
        let b = file.rms(Halves)?;
        let size = |name| b.keys.size(&format!("hrm.{name}"));
        let (each, high, low) = (size("layers_per_stack"), size("h_cycles"), size("l_cycles"));
        let all = each.saturating_mul(high).saturating_mul(low + 1);
        if b.keys.contradict(&[all], all == b.layers) {
            let problem = format!("expected {all}, the layers of all cycles, got {}", b.layers);
            b.keys.wrong("block_count", problem);
        }
        let bare = |name| NormSpec {
            weight: Need::Absent,
            ..b.norm(name)
        };
        let mut model = b.model(|l| {
            let (stack, place) = (l / each % (low + 1), l % each);
            let is_last = place + 1 == each;
            let (state, first) = match stack == low {
                true => (State::High, each),
                false => (State::Low, 0),
            };
            let attention = AttentionSpec {
                gate: Some((Activation::Sigmoid, Need::Required)),
                ..b.attention(l)?
            };
            Ok(LayerSpec {
                index: first + place,
                norm: Some(bare("attn_norm")),
                ffn_norm: Some(bare("ffn_norm")),
                last_norm: is_last.then(|| bare("stack_norm")),
                stack: StackSpec {
                    is_first: place == 0,
                    replaces: is_last.then_some(state),
                },
                ..b.layer(l, attention, b.gated(l).into())
            })
        })?;
        let scale = b.keys.number_or("embedding_scale", 0.0);
        model.embedding.scale = if scale == 0.0 { 1.0 } else { scale };
        model.embedding.low_state = Some("hrm.z_l_init");
        model.head.norm = None;
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

/// A model for diffusion: each token sees all others.
fn diffusion(
    b: &Base,
    attention: impl Fn(usize) -> Result<AttentionSpec, LlmError>,
    ffn: impl Fn(usize) -> FfnSpec,
) -> Result<ModelSpec, LlmError> {
    let mut model = b.model(|l| {
        let mut attention = attention(l)?;
        attention.causal = false;
        attention.out_bias = false;
        if let Some(rope) = &mut attention.rope {
            rope.factors = RopeFactors::None;
        }
        Ok(b.layer(l, attention, ffn(l)))
    })?;
    model.head.bias = false;
    Ok(model)
}

/// A dense part without biases.
fn unbiased(b: &Base, l: usize) -> FfnSpec {
    DenseSpec {
        biases: false,
        ..b.gated(l)
    }
    .into()
}

/// Experts as wide as their own key says, or their share of a dense part.
fn shares(b: &Base, l: usize, normalised: bool) -> FfnSpec {
    let experts = b.experts(l, 1);
    let width = b.keys.count_of("feed_forward_length", l).unwrap_or(0);
    ExpertsSpec {
        width: b.expert_width(l, width / experts.used),
        normalised,
        ..experts
    }
    .into()
}

/// Dream: diffusion by Qwen 2's shape.
const DREAM: Arch = Arch {
    name: "dream",
    describe: |file| {
        let b = file.rms(Halves)?;
        diffusion(&b, |l| b.attention(l), |l| unbiased(&b, l))
    },
};

/// LLaDA: diffusion by Llama's shape.
const LLADA: Arch = Arch {
    name: "llada",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        diffusion(&b, |l| b.attention(l), |l| unbiased(&b, l))
    },
};

/// LLaDA with experts.
const LLADA_MOE: Arch = Arch {
    name: "llada-moe",
    describe: |file| {
        let b = file.rms(Halves)?;
        let mut model = diffusion(&b, |l| b.normed_attention(l), |l| shares(&b, l, false))?;
        model.head.output = Need::Required;
        Ok(model)
    },
};

/// RND1: diffusion by the shape of Qwen 3 with experts.
const RND1: Arch = Arch {
    name: "rnd1",
    describe: |file| {
        let b = file.rms(Halves)?;
        diffusion(&b, |l| b.normed_attention(l), |l| shares(&b, l, true))
    },
};
