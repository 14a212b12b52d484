//! Gemma.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use super::base::Base;
use crate::spec::{Activation, AttentionSpec, DenseSpec, FfnSpec, ModelSpec, Window};

pub(super) const ALL: &[Arch] = &[GEMMA, GEMMA2, GEMMA3];

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
