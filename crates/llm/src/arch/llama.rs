//! Llama and the models of its shape.

use rustorch_ir::ops::RopeLayout::{self, Halves, Interleaved};

use super::Arch;
use super::base::File;
use crate::LlmError;
use crate::spec::{
    Activation, AttentionSpec, ChosenBy, DenseSpec, ExpertsSpec, FfnSpec, Gating, LayerSpec, Mixer,
    ModelSpec, Need, NormedOver, RopeFactors, Scales, Temperature, Window,
};

pub(super) const ALL: &[Arch] = &[
    LLAMA, DECI, LLAMA4, ARCEE, REFACT, SMOLLM3, MAINCODER, NANBEIGE, INTERNLM2, XVERSE, BAICHUAN,
    PANGU, SEED_OSS, BITNET, MISTRAL3,
];

/// Llama 1 to 3, TinyLlama, Mistral, Mixtral and the many models of their shape.
const LLAMA: Arch = Arch {
    name: "llama",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| Ok(b.layer(l, b.attention(l)?, b.ffn(l, true))))
    },
};

/// DeciLM and Llama-Nemotron: layers without attention, with a product in its place, or without anything.
const DECI: Arch = Arch {
    name: "deci",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let count = |name, l| b.keys.count_of(name, l).unwrap_or(0);
        b.model(|l| {
            let has_ffn = count("feed_forward_length", l) > 0;
            let ffn = match has_ffn {
                true => b.gated(l).into(),
                false => FfnSpec::NONE,
            };
            let heads = count("attention.head_count", l);
            let mixer = match (heads, count("attention.head_count_kv", l)) {
                (0, _) => Mixer::None,
                (_, 0) => Mixer::Linear,
                _ => Mixer::Attention(Box::new(b.attention(l)?)),
            };
            Ok(LayerSpec {
                norm: (heads > 0).then(|| b.norm("attn_norm")),
                mixer,
                ffn_norm: has_ffn.then(|| b.norm("ffn_norm")),
                ..b.layer(l, b.unrotated(0), ffn)
            })
        })
    },
};

/// Llama 4: chunks of 8,192 tokens, layers without rotation, experts whose weights multiply their input.
const LLAMA4: Arch = Arch {
    name: "llama4",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let is_chunked = b.keys.count_of("attention.sliding_window", 0) != Some(0);
        let step = if is_chunked { 4 } else { b.layers };
        let moe_step = b.keys.period("interleave_moe_layer_step");
        b.model(|l| {
            let is_rotated = (l + 1) % step != 0;
            let attention = match is_rotated {
                true if b.expert_count() != 128 => {
                    b.with_head_norms(b.attention(l)?, NormedOver::Head, Need::Absent)
                }
                true => b.attention(l)?,
                false => AttentionSpec {
                    temperature: is_chunked.then_some(Temperature {
                        scale: 0.1,
                        offset: 1.0,
                        floor: 8192,
                    }),
                    ..b.unrotated(l)
                },
            };
            let is_windowed = is_chunked && b.is_windowed(l, 4, false);
            let rope = match (attention.rope, is_windowed) {
                (Some(_), true) => Some(b.windowed_rope(None, true)?),
                (rope, _) => rope,
            };
            let attention = AttentionSpec {
                norm_after_rope: true,
                window: is_windowed.then_some(Window::Chunked(8192)),
                rope,
                ..attention
            };
            let width = b.expert_width(l, 0);
            let ffn = match (l + 1) % moe_step == 0 {
                true => ExpertsSpec {
                    gating: Gating::Sigmoid,
                    chosen_by: ChosenBy::Logits,
                    normalised: false,
                    weights_before: true,
                    ..b.experts(l, width)
                }
                .beside(b.shared(width)),
                false => b.gated(l).into(),
            };
            Ok(b.layer(l, attention, ffn))
        })
    },
};

/// Arcee: squared ReLU without a gate.
const ARCEE: Arch = Arch {
    name: "arcee",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            Ok(b.layer(
                l,
                b.attention(l)?,
                b.ungated(l, Activation::ReluSquared).into(),
            ))
        })
    },
};

/// Refact: ALiBi. llama.cpp reads no experts of it: there an activation alone is left of the feed-forward part.
const REFACT: Arch = Arch {
    name: "refact",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                alibi: Some(8.0),
                out_bias: false,
                ..b.unrotated(l)
            };
            let ffn = match b.expert_count() {
                0 => DenseSpec {
                    biases: false,
                    ..b.gated(l)
                }
                .into(),
                _ => FfnSpec {
                    bare: Some(Activation::Silu),
                    ..FfnSpec::NONE
                },
            };
            Ok(b.layer(l, attention, ffn))
        })?;
        model.unread = &["ffn_gate_inp.", "_exps.", "_shexp."];
        Ok(model)
    },
};

/// SmolLM 3: every fourth layer without rotation.
const SMOLLM3: Arch = Arch {
    name: "smollm3",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let attention = match (l + 1) % 4 {
                0 => b.unrotated(l),
                _ => b.attention(l)?,
            };
            Ok(b.layer(l, attention, b.gated(l).into()))
        })
    },
};

/// Maincoder: norms of queries and keys behind the rotation.
const MAINCODER: Arch = Arch {
    name: "maincoder",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let attention = AttentionSpec {
                norm_after_rope: true,
                ..b.normed_attention(l)?
            };
            Ok(b.layer(l, attention, b.gated(l).into()))
        })
    },
};

/// Nanbeige: the same layers several times, with the last norm between.
const NANBEIGE: Arch = Arch {
    name: "nanbeige",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let loops = b.keys.opt_size("num_loops").unwrap_or(1).min(64);
        let is_normed = !b.keys.flag("skip_loop_final_norm");
        let model = b.model(|l| Ok(b.layer(l, b.attention(l)?, b.ffn(l, true))))?;
        let all = model.layers.len() * loops;
        let layers = model
            .layers
            .iter()
            .cycle()
            .take(all)
            .enumerate()
            .map(|(i, layer)| {
                let is_end = (i + 1) % b.layers == 0 && i + 1 < all;
                LayerSpec {
                    last_norm: (is_end && is_normed).then(|| b.norm("output_norm")),
                    ..layer.clone()
                }
            });
        Ok(ModelSpec {
            layers: layers.collect(),
            ..model
        })
    },
};

/// Llama's shape with one dense feed-forward part in each layer.
pub(super) fn plain(file: File, layout: RopeLayout) -> Result<ModelSpec, LlmError> {
    let b = file.rms(layout)?;
    b.model(|l| Ok(b.layer(l, b.attention(l)?, b.gated(l).into())))
}

/// InternLM 2.
const INTERNLM2: Arch = Arch {
    name: "internlm2",
    describe: |file| plain(file, Interleaved),
};

/// XVERSE.
const XVERSE: Arch = Arch {
    name: "xverse",
    describe: |file| plain(file, Interleaved),
};

/// Baichuan: rotation with 32 layers, ALiBi with 40.
const BAICHUAN: Arch = Arch {
    name: "baichuan",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let attention = match b.layers {
                32 => b.attention(l)?,
                _ => AttentionSpec {
                    alibi: (b.layers == 40).then_some(8.0),
                    ..b.unrotated(l)
                },
            };
            Ok(b.layer(l, attention, b.gated(l).into()))
        })
    },
};

/// openPangu Embedded.
const PANGU: Arch = Arch {
    name: "pangu-embedded",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let mut attention = b.attention(l)?;
            if let Some(rope) = &mut attention.rope {
                rope.factors = RopeFactors::None;
            }
            Ok(b.layer(l, attention, b.gated(l).into()))
        })
    },
};

/// Seed-OSS: the norm before the feed-forward part has the name of one behind attention.
const SEED_OSS: Arch = Arch {
    name: "seed_oss",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            Ok(LayerSpec {
                ffn_norm: Some(b.norm("post_attention_norm")),
                ..b.layer(l, b.attention(l)?, b.gated(l).into())
            })
        })
    },
};

/// BitNet b1.58: norms inside of both parts.
const BITNET: Arch = Arch {
    name: "bitnet",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = AttentionSpec {
                inner_norm: Some(b.norm("attn_sub_norm")),
                ..b.attention(l)?
            };
            let ffn = DenseSpec {
                inner_norm: Some(b.norm("ffn_sub_norm")),
                scales: Scales::All,
                ..b.gated(l)
            };
            Ok(b.layer(l, attention, ffn.into()))
        })
    },
};

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
