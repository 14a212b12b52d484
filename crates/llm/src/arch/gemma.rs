//! Gemma.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use super::base::Base;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, ExpertNorms, ExpertsSpec, FfnSpec, KeysValues,
    LaurelSpec, LayerInputsSpec, LayerSpec, ModelSpec, Need, NormSpec, OwnInputSpec, RopeFactors,
    RopeSpec, Scales, Window,
};

pub(super) const ALL: &[Arch] = &[GEMMA, GEMMA2, GEMMA3, GEMMA3N, GEMMA4];

pub(super) fn ffn(b: &Base, l: usize) -> FfnSpec {
    let dense = DenseSpec {
        activation: Activation::GeluTanh,
        ..b.gated(l)
    };
    dense.into()
}

/// The scale of scores; models of `largest` layers divide the width by the heads.
fn scale(b: &Base, attention: &AttentionSpec, largest: usize) -> f64 {
    let features = match b.layers == largest {
        true => b.width / attention.heads,
        false => attention.key_width,
    };
    1.0 / (features as f64).sqrt()
}

pub(super) fn scaled(b: &Base, mut model: ModelSpec) -> ModelSpec {
    model.embedding.scale = f64::from((b.width as f32).sqrt());
    model
}

/// Gemma: the embedding is multiplied by the root of its width.
const GEMMA: Arch = Arch {
    name: "gemma",
    describe: |file| {
        let b = file.rms(Halves)?;
        let model = b.model(|l| Ok(b.layer(l, b.attention(l)?, ffn(&b, l))))?;
        Ok(scaled(&b, model))
    },
};

/// Gemma 2: norms behind both parts, soft caps, a window in every second layer.
const GEMMA2: Arch = Arch {
    name: "gemma2",
    describe: |file| {
        let b = file.rms(Halves)?;
        let cap = b.keys.number_or("attn_logit_softcapping", 50.0);
        let model = b.model(|l| {
            let attention = b.attention(l)?;
            let is_windowed = b.is_windowed(l, 2, false);
            let rope = match is_windowed {
                true => b.windowed_rope(None, true)?,
                false => b.rope()?,
            };
            let window = b.window().unwrap_or(4096);
            let attention = AttentionSpec {
                scale: scale(&b, &attention, 46),
                soft_cap: Some(cap),
                window: is_windowed.then_some(Window::Sliding(window)),
                rope: Some(rope),
                ..attention
            };
            Ok(b.sandwich(l, attention, ffn(&b, l)))
        })?;
        let mut model = scaled(&b, model);
        model.head.soft_cap = Some(b.keys.number_or("final_logit_softcapping", 30.0));
        Ok(model)
    },
};

/// Gemma 3: norms of queries and keys, and a rotation of their own for layers with a window.
const GEMMA3: Arch = Arch {
    name: "gemma3",
    describe: |file| {
        let b = file.rms(Halves)?;
        let window = b.window();
        let model = b.model(|l| {
            let attention = b.normed_attention(l)?;
            let is_windowed = window.is_some() && b.is_windowed(l, 6, false);
            let rope = match is_windowed {
                true => b.windowed_rope(Some(10_000.0), false)?,
                false => b.rope()?,
            };
            let attention = AttentionSpec {
                scale: scale(&b, &attention, 62),
                window: window.filter(|_| is_windowed).map(Window::Sliding),
                rope: Some(rope),
                ..attention
            };
            Ok(b.sandwich(l, attention, ffn(&b, l)))
        })?;
        let mut model = scaled(&b, model);
        let cap = b.keys.number_or("final_logit_softcapping", 0.0);
        model.head.soft_cap = (cap != 0.0).then_some(cap);
        Ok(model)
    },
};

/// Gemma 3n: four streams, of which layers compute one. Layers from the twentieth on read the keys of earlier ones.
/// The first ten compute the largest twentieth of their features alone.
const GEMMA3N: Arch = Arch {
    name: "gemma3n",
    describe: |file| {
        const OWN: usize = 20;
        const SPARSE: usize = 10;
        const INPUTS: usize = 256;
        // The normal distribution has a twentieth beyond these.
        let sparse = Activation::GeluSparse {
            deviations: 1.644_853_6,
        };
        let b = file.rms(Halves)?;
        let model = b.model(|l| {
            let is_windowed = b.is_windowed(l, 5, false);
            let rope = match is_windowed {
                true => b.windowed_rope(Some(10_000.0), false)?,
                false => b.rope()?,
            };
            let source = match l {
                0..OWN if l + 2 >= OWN && b.layers > OWN => KeysValues::Lent,
                0..OWN => KeysValues::Own,
                _ => KeysValues::Of(OWN - 1 - usize::from(is_windowed)),
            };
            let attention = AttentionSpec {
                scale: 1.0,
                value_norm: Some(NormSpec {
                    weight: Need::Absent,
                    ..b.norm("attn_v_norm")
                }),
                window: is_windowed.then(|| b.own_window()),
                rope: Some(RopeSpec {
                    factors: RopeFactors::None,
                    ..rope
                }),
                source,
                out_bias: false,
                ..b.normed_attention(l)?
            };
            let dense = DenseSpec {
                activation: if l < SPARSE {
                    sparse
                } else {
                    Activation::GeluTanh
                },
                biases: false,
                ..b.gated(l)
            };
            Ok(LayerSpec {
                laurel: Some(LaurelSpec {
                    rank: 64,
                    norm: b.norm("laurel_post_norm"),
                }),
                router_norm: Some(b.norm("altup_router_norm")),
                own_input: Some(OwnInputSpec {
                    width: INPUTS,
                    activation: Activation::GeluTanh,
                    norm: b.norm("post_norm"),
                }),
                ..b.sandwich(l, attention, dense.into())
            })
        })?;
        let mut model = scaled(&b, model);
        model.embedding.streams = Some(4);
        model.embedding.layer_inputs = Some(LayerInputsSpec {
            width: INPUTS,
            norm: b.norm("per_layer_proj_norm"),
        });
        model.head.soft_cap = Some(b.keys.number_or("final_logit_softcapping", 30.0));
        if b.layers > OWN {
            model.unread = &[".attn_k.", ".attn_k_norm.", ".attn_v."];
        }
        Ok(model)
    },
};

/// Gemma 4: heads of two widths, and norms of values. The last layers read the keys of earlier ones. A layer may have
/// an input of its own, and experts beside its dense part.
const GEMMA4: Arch = Arch {
    name: "gemma4",
    describe: |file| {
        let b = file.rms(Halves)?;
        let features = b.keys.count_of("embedding_length_per_layer_input", 0);
        let features = features.filter(|n| *n > 0);
        let shared = b
            .keys
            .count_of("attention.shared_kv_layers", 0)
            .unwrap_or(0);
        let own = b.layers.saturating_sub(shared);
        // Layers share with the last ones of their kind that have keys.
        let lenders =
            own < 2 || (b.is_windowed(own - 2, 6, false) && !b.is_windowed(own - 1, 6, false));
        if b.keys
            .contradict(&[shared], shared == 0 || (own >= 2 && lenders))
        {
            let problem = format!(
                "no layers lend their keys to the last {shared} of {}",
                b.layers
            );
            b.keys.wrong("attention.shared_kv_layers", problem);
        }
        let model = b.model(|l| {
            let is_windowed = b.is_windowed(l, 6, false);
            let source = match (l < own, shared) {
                (true, 1..) if l + 2 >= own => KeysValues::Lent,
                (true, _) => KeysValues::Own,
                (false, _) => KeysValues::Of(own.saturating_sub(1 + usize::from(is_windowed))),
            };
            let attention = match is_windowed {
                true => narrow(&b, l)?,
                false => b.normed_attention(l)?,
            };
            let attention = AttentionSpec {
                scale: 1.0,
                value_norm: Some(NormSpec {
                    weight: Need::Absent,
                    ..b.norm("attn_v_norm")
                }),
                keys_as_values: true,
                source,
                ..attention
            };
            let norm = b.norm("post_norm");
            Ok(LayerSpec {
                own_input: features.map(|width| OwnInputSpec {
                    width,
                    activation: Activation::GeluTanh,
                    norm,
                }),
                factor: Need::Optional,
                ..b.sandwich(l, attention, mixed_ffn(&b, l))
            })
        })?;
        let mut model = scaled(&b, model);
        let norm = b.norm("per_layer_proj_norm");
        model.embedding.layer_inputs = features.map(|width| LayerInputsSpec { width, norm });
        let cap = b.keys.number_or("final_logit_softcapping", 0.0);
        model.head.soft_cap = (cap != 0.0).then_some(cap);
        if shared > 0 {
            model.unread = &[".attn_k.", ".attn_k_norm.", ".attn_v."];
        }
        Ok(model)
    },
};

/// Attention with a window, whose heads have their own width.
fn narrow(b: &Base, l: usize) -> Result<AttentionSpec, crate::LlmError> {
    let attention = b.normed_attention(l)?;
    let width = |part: &str, other| {
        let own = b.keys.opt_size(&format!("attention.{part}_length_swa"));
        own.unwrap_or(other)
    };
    let key_width = width("key", attention.key_width);
    let mut rope = b.windowed_rope(None, true)?;
    let dims = b.keys.opt_size("rope.dimension_count_swa");
    let own = b.rope_of(dims.unwrap_or(key_width), key_width)?;
    (rope.op.dims, rope.factor_count) = (own.op.dims, own.factor_count);
    rope.factors = RopeFactors::None;
    Ok(AttentionSpec {
        key_width,
        value_width: width("value", attention.value_width),
        window: Some(b.own_window()),
        rope: Some(rope),
        ..attention
    })
}

/// A dense part; in layers with a router, experts beside it, each with a norm of its own.
fn mixed_ffn(b: &Base, l: usize) -> FfnSpec {
    let dense = DenseSpec {
        activation: Activation::GeluTanh,
        scales: Scales::All,
        ..b.gated(l)
    };
    if !b.has(l, "ffn_gate_inp") {
        return dense.into();
    }
    let experts = ExpertsSpec {
        activation: Activation::GeluTanh,
        scales: true,
        norms: Some(ExpertNorms {
            router: b.norm("ffn_gate_inp.scale"),
            input: b.norm("pre_ffw_norm_2"),
            output: b.norm("post_ffw_norm_2"),
        }),
        ..b.experts(l, b.expert_width(l, 0))
    };
    experts.beside(DenseSpec {
        out_norm: Some(b.norm("post_ffw_norm_1")),
        ..dense
    })
}
