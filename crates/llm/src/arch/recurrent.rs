//! Recurrent models, and those of recurrent and attention layers.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};

use super::Arch;
use super::base::{Base, File};
use crate::LlmError;
use crate::keys::UNKNOWN;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, ExpertsSpec, FfnSpec, Gate, Gating, HeadSpec, LayerSpec,
    Mixer, ModelSpec, Need, NormSpec, RecurrentKind, RecurrentSpec, Residual, RopeFactors,
    RopeSpec, Scales, Window,
};

/// The largest known is 4.
const MAX_KERNEL: usize = 64;

pub(super) const ALL: &[Arch] = &[
    FALCON_H1,
    JAMBA,
    KIMI_LINEAR,
    LFM2,
    LFM2MOE,
    MAMBA,
    MAMBA2,
    MINIMAX_01,
    NEMOTRON_H,
    NEMOTRON_H_MOE,
    QWEN3NEXT,
    QWEN35,
    QWEN35MOE,
];

/// Has layer `l` no heads of keys? Many hybrid models mark their recurrent layers so.
pub(super) fn is_recurrent(b: &Base, l: usize) -> bool {
    b.keys.count_of("attention.head_count_kv", l) == Some(0)
}

/// Tokens that the convolution of each channel reads. The program has operations for each of them.
fn kernel(b: &Base, name: &str) -> usize {
    let size = b.keys.size(name);
    if b.keys.contradict(&[size], (2..=MAX_KERNEL).contains(&size)) {
        let problem = format!("expected 2 to {MAX_KERNEL}, got {size}");
        b.keys.wrong(name, problem);
    }
    size
}

/// Sizes of heads of `width` features, in groups with the same keys.
pub(super) fn heads(
    b: &Base,
    kind: RecurrentKind,
    heads: usize,
    groups: usize,
    width: usize,
) -> RecurrentSpec {
    RecurrentSpec {
        kind,
        kernel: kernel(b, "ssm.conv_kernel"),
        heads,
        groups,
        key_width: b.keys.size("ssm.state_size"),
        value_width: width,
        scales: true,
    }
}

/// The heads and groups of `ssm.time_step_rank` and `ssm.group_count`, with the features of a head's values.
fn grouped(b: &Base, kind: RecurrentKind) -> RecurrentSpec {
    let k = b.keys;
    let inner = k.size("ssm.inner_size");
    let count = k.size("ssm.time_step_rank");
    let groups = k.size("ssm.group_count");
    let divides = inner.is_multiple_of(count);
    if k.contradict(&[inner, count], divides) {
        let problem = format!("{count} heads do not divide {inner} features");
        k.wrong("ssm.time_step_rank", problem);
    }
    if k.contradict(&[count, groups], count.is_multiple_of(groups)) {
        let problem = format!("{groups} groups do not divide {count} heads");
        k.wrong("ssm.group_count", problem);
    }
    let width = match inner.max(count) < UNKNOWN {
        true => inner / count,
        false => UNKNOWN,
    };
    heads(b, kind, count, groups, width)
}

/// Mamba 2, whose norm may be missing.
pub(super) fn mamba2(b: &Base, weight: Need) -> RecurrentSpec {
    let norm = NormSpec {
        weight,
        bias: false,
        ..b.norm("ssm_norm")
    };
    grouped(b, RecurrentKind::Mamba2 { norm: Some(norm) })
}

/// Mamba, with norms of its parts or without.
fn mamba(b: &Base, norm: Option<NormSpec>) -> RecurrentSpec {
    let inner = b.keys.size("ssm.inner_size");
    let rank = b.keys.size("ssm.time_step_rank");
    let kind = RecurrentKind::Mamba {
        rank,
        norm,
        by_head: false,
    };
    heads(b, kind, inner, 1, 1)
}

/// A norm without a name and a bias.
pub(super) fn inner_norm(b: &Base, weight: Need) -> NormSpec {
    NormSpec {
        weight,
        bias: false,
        ..b.norm("")
    }
}

/// A layer of one part: a mixer alone.
fn alone(b: &Base, l: usize, mixer: Mixer) -> LayerSpec {
    LayerSpec {
        ffn_norm: None,
        ..b.mixed(l, mixer, FfnSpec::NONE)
    }
}

/// Mamba, and FalconMamba with norms.
const MAMBA: Arch = Arch {
    name: "mamba",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let has_norms = b.keys.flag("ssm.dt_b_c_rms");
        b.model(|l| {
            let norm = has_norms.then(|| inner_norm(&b, Need::Absent));
            let mixer = Mixer::Recurrent(Box::new(mamba(&b, norm)));
            Ok(alone(&b, l, mixer))
        })
    },
};

/// Mamba 2.
const MAMBA2: Arch = Arch {
    name: "mamba2",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let mixer = Mixer::Recurrent(Box::new(mamba2(&b, Need::Required)));
            Ok(alone(&b, l, mixer))
        })
    },
};

/// Jamba: Mamba and attention without rotation, dense parts and experts.
const JAMBA: Arch = Arch {
    name: "jamba",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        b.model(|l| {
            let mixer = match is_recurrent(&b, l) {
                true => {
                    let norm = inner_norm(&b, Need::Required);
                    Mixer::Recurrent(Box::new(mamba(&b, Some(norm))))
                }
                false => Mixer::Attention(Box::new(b.unrotated(l))),
            };
            let dense = b.gated(l);
            let ffn = match b.has(l, "ffn_gate_inp") {
                true => ExpertsSpec {
                    normalised: false,
                    ..b.experts(l, dense.width)
                }
                .into(),
                false => dense.into(),
            };
            Ok(b.mixed(l, mixer, ffn))
        })
    },
};

/// Falcon-H1: attention beside Mamba 2 in each layer.
const FALCON_H1: Arch = Arch {
    name: "falcon-h1",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = b.attention(l)?;
            let attention = AttentionSpec {
                scale: b.scale(attention.value_width),
                rope: attention.rope.map(unscaled),
                out_bias: false,
                ..attention
            };
            let recurrent = mamba2(&b, Need::Optional);
            let mixer = Mixer::Sum(Box::new(attention), Box::new(recurrent));
            Ok(b.mixed(l, mixer, b.gated(l).into()))
        })
    },
};

/// The same rotation without divisors of frequencies.
pub(super) fn unscaled(rope: RopeSpec) -> RopeSpec {
    RopeSpec {
        factors: RopeFactors::None,
        ..rope
    }
}

/// Nemotron-H.
const NEMOTRON_H: Arch = Arch {
    name: "nemotron_h",
    describe: |file| {
        nemotron(file, |b, l, _| {
            let dense = b.ungated(l, Activation::ReluSquared);
            let scales = Scales::All;
            DenseSpec { scales, ..dense }.into()
        })
    },
};

/// Nemotron 3 with experts, which may be of fewer features.
const NEMOTRON_H_MOE: Arch = Arch {
    name: "nemotron_h_moe",
    describe: |file| {
        nemotron(file, |b, l, width| {
            let shared = b.keys.count_of("expert_shared_feed_forward_length", 0);
            let shared = DenseSpec {
                gate: Gate::None,
                activation: Activation::ReluSquared,
                scales: Scales::All,
                biases: false,
                ..b.shared(shared.unwrap_or(0))
            };
            let experts = b.experts(l, 1);
            let latent = b.keys.count_of("moe_latent_size", 0);
            let experts = ExpertsSpec {
                width: b.expert_width(l, width / experts.used),
                activation: Activation::ReluSquared,
                gating: Gating::Sigmoid,
                choice_bias: Need::Required,
                normalised: b.keys.flag("expert_weights_norm"),
                latent: latent.filter(|n| *n > 0),
                scales: true,
                ..experts
            };
            experts.beside(shared)
        })
    },
};

/// Layers of one part each: Mamba 2, attention without rotation, or a feed-forward part of this width.
fn nemotron(
    file: File,
    ffn: impl Fn(&Base, usize, usize) -> FfnSpec,
) -> Result<ModelSpec, LlmError> {
    let b = file.rms_by_any_key(Interleaved)?;
    b.model(|l| {
        let width = b.keys.count_of("feed_forward_length", l).unwrap_or(0);
        Ok(match (width, is_recurrent(&b, l)) {
            (0, true) => {
                let mixer = Mixer::Recurrent(Box::new(mamba2(&b, Need::Required)));
                alone(&b, l, mixer)
            }
            (0, false) => {
                let attention = b.unrotated(l);
                let scale = b.scale(attention.value_width);
                let attention = AttentionSpec { scale, ..attention };
                alone(&b, l, Mixer::Attention(Box::new(attention)))
            }
            _ => LayerSpec {
                norm: None,
                ffn_norm: Some(b.norm("attn_norm")),
                ..b.mixed(l, Mixer::None, ffn(&b, l, width))
            },
        })
    })
}

/// LFM2's layers: short convolutions, and attention with norms of queries and keys, in a window if there is one.
fn lfm2(
    b: &Base,
    window: Option<usize>,
    ffn: impl Fn(usize) -> FfnSpec,
) -> Result<ModelSpec, LlmError> {
    if !b.is_causal() {
        let problem = "convolutions of tokens on both sides are not supported";
        b.keys.wrong("attention.causal", problem);
    }
    let model = b.model(|l| {
        let mixer = match is_recurrent(b, l) {
            true => Mixer::Recurrent(Box::new(RecurrentSpec {
                kind: RecurrentKind::ShortConvolution,
                kernel: kernel(b, "shortconv.l_cache"),
                heads: 1,
                groups: 1,
                key_width: 0,
                value_width: b.width,
                scales: false,
            })),
            false => {
                let attention = b.normed_attention(l)?;
                Mixer::Attention(Box::new(AttentionSpec {
                    rope: attention.rope.map(unscaled),
                    window: window.map(Window::Sliding),
                    ..attention
                }))
            }
        };
        Ok(b.mixed(l, mixer, ffn(l)))
    })?;
    Ok(ModelSpec {
        head: HeadSpec {
            norm: Some(b.norm("token_embd_norm")),
            ..model.head
        },
        ..model
    })
}

/// LFM2.
const LFM2: Arch = Arch {
    name: "lfm2",
    describe: |file| {
        let b = file.rms(Halves)?;
        lfm2(&b, b.window(), |l| plain(b.gated(l)))
    },
};

/// A dense part without biases.
pub(super) fn plain(dense: DenseSpec) -> FfnSpec {
    DenseSpec {
        biases: false,
        ..dense
    }
    .into()
}

/// LFM2 with experts.
const LFM2MOE: Arch = Arch {
    name: "lfm2moe",
    describe: |file| {
        let b = file.rms(Halves)?;
        lfm2(&b, None, |l| match b.is_leading(l) {
            true => plain(b.gated(l)),
            false => ExpertsSpec {
                gating: b.gating(Gating::Softmax),
                choice_bias: Need::Required,
                ..b.experts(l, b.keys.size_of("expert_feed_forward_length", l))
            }
            .into(),
        })
    },
};

/// Layers of Qwen 3.5 and its like: gated delta nets, and each `attention` of them attention with a gate.
fn qwen(b: &Base, is_grouped: bool, ffn: impl Fn(usize) -> FfnSpec) -> Result<ModelSpec, LlmError> {
    let flags = b.keys.flags("attention.recurrent_layers");
    let period = b.keys.opt_size("full_attention_interval").unwrap_or(4);
    let is_recurrent = |l: usize| match &flags {
        Some(flags) => flags.get(l).copied().unwrap_or(false),
        None => !(l + 1).is_multiple_of(period),
    };
    b.model(|l| {
        let mixer = match is_recurrent(l) {
            true => {
                let norm = NormSpec {
                    bias: false,
                    ..b.norm("ssm_norm")
                };
                let spec = grouped(b, RecurrentKind::DeltaNet { norm, is_grouped });
                Mixer::Recurrent(Box::new(RecurrentSpec {
                    scales: !is_grouped,
                    ..spec
                }))
            }
            false => {
                let attention = b.normed_attention(l)?;
                Mixer::Attention(Box::new(AttentionSpec {
                    scale: b.scale(attention.value_width),
                    rope: attention.rope.map(unscaled),
                    gated_queries: true,
                    out_bias: false,
                    ..attention
                }))
            }
        };
        Ok(LayerSpec {
            ffn_norm: Some(b.norm("post_attention_norm")),
            ..b.mixed(l, mixer, ffn(l))
        })
    })
}

/// Experts beside a shared one with its own gate.
fn experts(b: &Base, l: usize) -> FfnSpec {
    let width = b.keys.count_of("feed_forward_length", l).unwrap_or(0);
    let shared = b.keys.count_of("expert_shared_feed_forward_length", 0);
    let shared = DenseSpec {
        token_gate: true,
        scales: Scales::All,
        ..b.shared(shared.filter(|n| *n > 0).unwrap_or(width))
    };
    let experts = b.experts(l, 1);
    let experts = ExpertsSpec {
        width: b.expert_width(l, width / experts.used),
        scales: true,
        ..experts
    };
    experts.beside(shared)
}

/// Qwen3-Next.
const QWEN3NEXT: Arch = Arch {
    name: "qwen3next",
    describe: |file| {
        let b = file.rms(Halves)?;
        qwen(&b, true, |l| experts(&b, l))
    },
};

/// The text part of Qwen 3.5 and 3.6.
const QWEN35: Arch = Arch {
    name: "qwen35",
    describe: |file| {
        let b = file.rms(Halves)?;
        qwen(&b, false, |l| {
            DenseSpec {
                scales: Scales::All,
                biases: false,
                ..b.gated(l)
            }
            .into()
        })
    },
};

/// The same with experts.
const QWEN35MOE: Arch = Arch {
    name: "qwen35moe",
    describe: |file| {
        let b = file.rms(Halves)?;
        qwen(&b, false, |l| experts(&b, l))
    },
};

/// Kimi Linear: delta nets with decays of features, and latent attention without rotation.
const KIMI_LINEAR: Arch = Arch {
    name: "kimi-linear",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let count = b.keys.count_of("attention.head_count", 0);
        b.model(|l| {
            let mixer = match is_recurrent(&b, l) {
                true => {
                    let width = b.keys.size("kda.head_dim");
                    let heads = count.filter(|n| *n > 0).unwrap_or(UNKNOWN);
                    let norm = inner_named(&b, "ssm_norm");
                    Mixer::Recurrent(Box::new(RecurrentSpec {
                        kind: RecurrentKind::Kda { norm },
                        kernel: kernel(&b, "ssm.conv_kernel"),
                        heads,
                        groups: heads,
                        key_width: width,
                        value_width: width,
                        scales: false,
                    }))
                }
                false => {
                    // Files do not say that values are the latent vector.
                    let own = b.keys.opt_size("attention.value_length");
                    let given = AttentionSpec {
                        value_width: own.unwrap_or(b.keys.size("attention.kv_lora_rank")),
                        ..b.unrotated(l)
                    };
                    Mixer::Attention(Box::new(AttentionSpec {
                        rope: None,
                        ..b.latent_of(given, false)?
                    }))
                }
            };
            let width = b.keys.size_of("expert_feed_forward_length", l);
            let shared = b.shared_width(width).max(width);
            let ffn = match b.is_leading(l) {
                true => plain(b.gated(l)),
                false => ExpertsSpec {
                    gating: b.gating(Gating::Softmax),
                    choice_bias: Need::Required,
                    ..b.experts(l, width)
                }
                .beside(b.shared(shared)),
            };
            Ok(b.mixed(l, mixer, ffn))
        })
    },
};

/// A norm of this name without a bias.
fn inner_named(b: &Base, name: &'static str) -> NormSpec {
    NormSpec {
        bias: false,
        ..b.norm(name)
    }
}

/// MiniMax-01: linear attention with constant decays, and each eighth layer attention.
const MINIMAX_01: Arch = Arch {
    name: "minimax-01",
    describe: |file| {
        let b = file.rms(Halves)?;
        let flags = b.keys.flags("attention.recurrent_layers");
        let period = b.keys.opt_size("full_attention_interval").unwrap_or(8);
        let is_recurrent = |l: usize| match &flags {
            Some(flags) => flags.get(l).copied().unwrap_or(false),
            None => !(l + 1).is_multiple_of(period),
        };
        let factor = b.keys.number_or("residual_scale", 1.0);
        b.model(|l| {
            let attention = b.attention(l)?;
            let mixer = match is_recurrent(l) {
                true => {
                    let depth = l as f64 / b.layers.saturating_sub(1).max(1) as f64;
                    Mixer::Recurrent(Box::new(RecurrentSpec {
                        kind: RecurrentKind::Lightning {
                            norm: inner_named(&b, "attn_norm_2"),
                            slope: 1.0 - depth + 1e-5,
                        },
                        kernel: 1,
                        heads: attention.heads,
                        groups: attention.heads,
                        key_width: attention.key_width,
                        value_width: attention.key_width,
                        scales: false,
                    }))
                }
                false => Mixer::Attention(Box::new(AttentionSpec {
                    rope: attention.rope.map(unscaled),
                    out_bias: false,
                    ..attention
                })),
            };
            let width = b.keys.size_of("feed_forward_length", l);
            Ok(LayerSpec {
                residual: Residual::Normed(factor),
                ..b.mixed(l, mixer, b.experts(l, width).into())
            })
        })
    },
};
