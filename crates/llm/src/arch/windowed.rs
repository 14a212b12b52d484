//! Models with windows in some layers, most of them with experts.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};
use rustorch_ir::ops::RopeScaling;

use super::Arch;
use super::base::Base;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, ExpertsSpec, FfnSpec, Gating, LayerSpec, Need, NormSpec,
    RopeFactors, Window,
};

pub(super) const ALL: &[Arch] = &[
    EXAONE,
    EXAONE4,
    EXAONE_MOE,
    MUSE_GLIMMER,
    SPARK2_5,
    MELLUM,
    MAPLE,
    SMALLTHINKER,
    AFMOE,
    LAGUNA,
    MIMO2,
    STEP35,
];

/// Tensors of a dense part, which layers with experts may have too.
pub(super) const DENSE: &[&str] = &[".ffn_gate.", ".ffn_up.", ".ffn_down."];

/// EXAONE 3.
const EXAONE: Arch = Arch {
    name: "exaone",
    describe: |file| super::llama::plain(file, Halves),
};

/// Experts by the file's own gating and normalisation.
fn routed(b: &Base, l: usize, default: Gating, choice_bias: Need) -> ExpertsSpec {
    ExpertsSpec {
        gating: b.gating(default),
        choice_bias,
        normalised: b.keys.flag("expert_weights_norm"),
        ..b.experts(l, b.expert_width(l, 0))
    }
}

/// Width of the shared expert by its own key.
fn own_shared(b: &Base) -> Option<usize> {
    let own = b.keys.count_of("expert_shared_feed_forward_length", 0);
    own.filter(|n| *n > 0)
}

/// EXAONE 4: norms behind both parts alone; the largest model rotates in windows alone.
const EXAONE4: Arch = Arch {
    name: "exaone4",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = b.normed_attention(l)?;
            let attention = match b.layers == 64 {
                false => attention,
                true if b.is_windowed(l, 4, false) => AttentionSpec {
                    window: Some(Window::Sliding(b.window().unwrap_or(4096))),
                    ..attention
                },
                true => AttentionSpec {
                    rope: None,
                    ..attention
                },
            };
            Ok(LayerSpec {
                norm: None,
                ffn_norm: None,
                ..b.sandwich(l, attention, b.gated(l).into())
            })
        })
    },
};

/// EXAONE with experts.
const EXAONE_MOE: Arch = Arch {
    name: "exaone-moe",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = b.normed_attention(l)?;
            let attention = match b.is_windowed(l, 4, false) {
                true => AttentionSpec {
                    window: Some(b.own_window()),
                    ..attention
                },
                false => AttentionSpec {
                    rope: None,
                    ..attention
                },
            };
            let ffn = match b.is_leading(l) {
                true => b.gated(l).into(),
                false => {
                    let experts = routed(&b, l, Gating::Sigmoid, Need::Optional);
                    let shared = own_shared(&b).unwrap_or(experts.width);
                    experts.beside(b.shared(shared))
                }
            };
            Ok(b.layer(l, attention, ffn))
        })
    },
};

/// Muse Glimmer: gated attention, norms around both parts, rotation in windows alone.
const MUSE_GLIMMER: Arch = Arch {
    name: "muse-glimmer",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let base = b.rope()?.op.base.0;
        let mut model = b.model(|l| {
            let attention = AttentionSpec {
                gate: Some((Activation::Sigmoid, Need::Required)),
                ..b.normed_attention(l)?
            };
            let attention = match b.is_windowed(l, 4, false) {
                true => AttentionSpec {
                    window: Some(b.own_window()),
                    rope: Some(b.windowed_rope(Some(base), false)?),
                    ..attention
                },
                false => AttentionSpec {
                    rope: None,
                    ..attention
                },
            };
            let layer = b.sandwich(l, attention, b.gated(l).into());
            let fine = |norm: Option<NormSpec>| norm.map(|norm| NormSpec { eps: 1e-8, ..norm });
            Ok(LayerSpec {
                out_norm: fine(layer.out_norm),
                ffn_out_norm: fine(layer.ffn_out_norm),
                ..layer
            })
        })?;
        model.embedding.norm = Some(NormSpec {
            weight: Need::Absent,
            ..b.norm("token_embd_norm")
        });
        model.head.scale = b.keys.number_or("logit_scale", 1.0);
        let cap = b.keys.number_or("final_logit_softcapping", 30.0);
        model.head.soft_cap = (cap != 0.0).then_some(cap);
        Ok(model)
    },
};

/// Features that rotate in layers with a window.
fn windowed_dims(b: &Base) -> Option<usize> {
    b.keys.opt_size("rope.dimension_count_swa")
}

/// Spark 2.5: a gate for each head.
const SPARK2_5: Arch = Arch {
    name: "spark2_5",
    describe: |file| {
        let b = file.rms(Halves)?;
        let mut model = b.model(|l| {
            let mut attention = AttentionSpec {
                gate: Some((Activation::Sigmoid, Need::Required)),
                ..b.attention(l)?
            };
            if b.is_windowed(l, 0, false) {
                let mut rope = b.windowed_rope(None, true)?;
                rope.op.dims = windowed_dims(&b).unwrap_or(rope.op.dims);
                attention.rope = Some(rope);
                attention.window = Some(b.own_window());
            }
            if let Some(rope) = &mut attention.rope {
                rope.factors = RopeFactors::None;
            }
            let dense = DenseSpec {
                activation: Activation::GeluTanh,
                ..b.gated(l)
            };
            Ok(b.layer(l, attention, dense.into()))
        })?;
        model.head.scales = false;
        Ok(model)
    },
};

/// Mellum with experts: a plain rotation in windows.
const MELLUM: Arch = Arch {
    name: "mellum",
    describe: |file| {
        let b = file.rms(Halves)?;
        let window = b.window();
        b.model(|l| {
            let mut attention = b.normed_attention(l)?;
            if window.is_some() && b.is_windowed(l, 4, false) {
                attention.window = window.map(Window::Sliding);
                if let Some(rope) = &mut attention.rope {
                    rope.op.scaling = RopeScaling::NONE;
                }
            }
            let experts = ExpertsSpec {
                scales: true,
                ..b.experts(l, b.expert_width(l, 0))
            };
            Ok(b.layer(l, attention, experts.into()))
        })
    },
};

/// Maple: rotation in windows alone, experts with a bounded activation.
const MAPLE: Arch = Arch {
    name: "maple",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = b.normed_attention(l)?;
            let attention = match b.is_windowed(l, 0, false) {
                true => AttentionSpec {
                    window: Some(b.own_window()),
                    rope: Some(b.windowed_rope(None, true)?),
                    ..attention
                },
                false => AttentionSpec {
                    rope: None,
                    ..attention
                },
            };
            let limit = b.keys.number_of("swiglu_clamp_exp", l).unwrap_or(0.0);
            let experts = ExpertsSpec {
                activation: match limit > 1e-6 {
                    true => Activation::SwiGluClamped { limit },
                    false => Activation::Silu,
                },
                scale: 1.0,
                ..b.experts(l, b.expert_width(l, 0))
            };
            Ok(b.layer(l, attention, experts.into()))
        })
    },
};

/// SmallThinker: the router reads the layer's input.
const SMALLTHINKER: Arch = Arch {
    name: "smallthinker",
    describe: |file| {
        let b = file.rms(Halves)?;
        let has_windows = b.window().is_some();
        b.model(|l| {
            let is_windowed = has_windows && b.is_windowed(l, 4, true);
            let attention = match !has_windows || l % 4 != 0 {
                true => b.attention(l)?,
                false => b.unrotated(l),
            };
            let rope = match (attention.rope, is_windowed) {
                (Some(_), true) => Some(b.windowed_rope(None, true)?),
                (rope, _) => rope,
            };
            let attention = AttentionSpec {
                window: is_windowed.then_some(Window::Sliding(4096)),
                rope,
                ..attention
            };
            let experts = ExpertsSpec {
                activation: Activation::Relu,
                gating: b.gating(Gating::Softmax),
                router_reads_input: true,
                ..b.experts(l, b.expert_width(l, 0))
            };
            Ok(b.layer(l, attention, experts.into()))
        })
    },
};

/// AFMoE (Trinity): gated attention, norms around both parts.
const AFMOE: Arch = Arch {
    name: "afmoe",
    describe: |file| {
        let b = file.rms(Halves)?;
        let window = b.window();
        let mut model = b.model(|l| {
            let is_windowed = window.is_some() && b.is_windowed(l, 4, false);
            let rope = match is_windowed {
                true => b.windowed_rope(None, true)?,
                false => b.rope()?,
            };
            let attention = AttentionSpec {
                gate: Some((Activation::Sigmoid, Need::Required)),
                window: window.filter(|_| is_windowed).map(Window::Sliding),
                rope: ((l + 1) % 4 != 0).then_some(rope),
                ..b.normed_attention(l)?
            };
            let ffn = match b.is_leading(l) {
                true => b.gated(l).into(),
                false => {
                    let experts = routed(&b, l, Gating::Sigmoid, Need::Required);
                    let shared = b.shared(b.shared_width(experts.width));
                    experts.beside(shared)
                }
            };
            Ok(b.sandwich(l, attention, ffn))
        })?;
        model.embedding.scale = f64::from((b.width as f32).sqrt());
        Ok(model)
    },
};

/// Laguna: gated attention, heads by layer, two rotations.
const LAGUNA: Arch = Arch {
    name: "laguna",
    describe: |file| {
        let b = file.rms(Halves)?;
        let window = b.window();
        let mut model = b.model(|l| {
            let is_windowed = window.is_some() && b.is_windowed(l, 4, true);
            let mut rope = match is_windowed {
                true => b.windowed_rope(None, true)?,
                false => b.rope()?,
            };
            if is_windowed {
                rope.op.dims = windowed_dims(&b).unwrap_or(rope.op.dims);
                rope.op.scaling = RopeScaling::NONE;
            }
            rope.factors = RopeFactors::None;
            let attention = AttentionSpec {
                gate: Some((Activation::Softplus, Need::Required)),
                window: window.filter(|_| is_windowed).map(Window::Sliding),
                rope: Some(rope),
                ..b.normed_attention(l)?
            };
            let ffn = match b.is_leading(l) {
                true => b.gated(l).into(),
                false => {
                    let experts = routed(&b, l, Gating::Sigmoid, Need::Required);
                    let count = b.keys.count_of("expert_shared_count", 0).unwrap_or(1);
                    let shared = own_shared(&b).unwrap_or(experts.width * count);
                    experts.beside(b.shared(shared))
                }
            };
            Ok(b.layer(l, attention, ffn))
        })?;
        model.head.scales = false;
        Ok(model)
    },
};

/// MiMo 2: sinks, heads by layer, and layers with experts are those that have a router.
const MIMO2: Arch = Arch {
    name: "mimo2",
    describe: |file| {
        let b = file.rms(Halves)?;
        let scale = b.keys.number_or("attention.value_scale", 0.0);
        let mut model = b.model(|l| {
            let is_windowed = b.is_windowed(l, 0, false);
            let rope = match is_windowed {
                true => b.windowed_rope(Some(10_000.0), false)?,
                false => b.rope()?,
            };
            let attention = AttentionSpec {
                window: is_windowed.then(|| b.own_window()),
                rope: Some(rope),
                sinks: Need::Optional,
                out_scale: if scale == 0.0 { 1.0 } else { scale },
                scales: false,
                biases: false,
                ..b.unrotated(l)
            };
            let ffn = match b.has(l, "ffn_gate_inp") {
                true => ExpertsSpec {
                    gating: Gating::Sigmoid,
                    choice_bias: Need::Optional,
                    ..b.experts(l, b.expert_width(l, 0))
                }
                .into(),
                false => b.gated(l).into(),
            };
            Ok(b.layer(l, attention, ffn))
        })?;
        model.unread = DENSE;
        Ok(model)
    },
};

fn limited(limit: Option<f64>) -> Activation {
    match limit.filter(|limit| *limit > 1e-6) {
        Some(limit) => Activation::SwiGluLimited { limit },
        None => Activation::Silu,
    }
}

/// Step 3.5: a gate for each head, bounded activations, half of each head rotates outside of windows.
const STEP35: Arch = Arch {
    name: "step35",
    describe: |file| {
        let b = file.rms(Halves)?;
        let mut model = b.model(|l| {
            let attention = match b.has(l, "attn_q_norm") {
                true => b.normed_attention(l)?,
                false => b.attention(l)?,
            };
            let is_windowed = b.is_windowed(l, 0, false);
            let rope = match is_windowed {
                true => {
                    let mut rope = b.windowed_rope(Some(10_000.0), false)?;
                    rope.op.dims = windowed_dims(&b).unwrap_or(rope.op.dims);
                    rope.factors = RopeFactors::None;
                    rope
                }
                false => {
                    let mut rope = b.rope()?;
                    rope.op.dims /= 2;
                    rope
                }
            };
            let attention = AttentionSpec {
                window: is_windowed.then(|| b.own_window()),
                rope: Some(rope),
                gate: Some((Activation::Sigmoid, Need::Optional)),
                ..attention
            };
            let activation = limited(b.keys.number_of("swiglu_clamp_shexp", l));
            let ffn: FfnSpec = match b.has(l, "ffn_gate_inp") {
                true => {
                    let experts = ExpertsSpec {
                        activation: limited(b.keys.number_of("swiglu_clamp_exp", l)),
                        ..routed(&b, l, Gating::Sigmoid, Need::Optional)
                    };
                    let shared = b.shared(own_shared(&b).unwrap_or(0));
                    experts.beside(DenseSpec {
                        activation,
                        ..shared
                    })
                }
                false => DenseSpec {
                    activation,
                    ..b.gated(l)
                }
                .into(),
            };
            Ok(b.layer(l, attention, ffn))
        })?;
        model.unread = DENSE;
        Ok(model)
    },
};
