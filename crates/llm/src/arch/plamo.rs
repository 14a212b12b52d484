//! PLaMo.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use crate::spec::{AttentionSpec, DenseSpec, Gate, LayerSpec, Residual, RopeFactors, Window};

pub(super) const ALL: &[Arch] = &[PLAMO, PLAMO3];

/// PLaMo: both parts read one norm of the layer's input, and heads rotate whole.
const PLAMO: Arch = Arch {
    name: "plamo",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let attention = b.unrotated(l);
            let rope = b.rope_of(attention.key_width, attention.key_width)?;
            let attention = AttentionSpec {
                rope: Some(rope),
                ..attention
            };
            Ok(LayerSpec {
                residual: Residual::Parallel,
                ffn_norm: None,
                ..b.layer(l, attention, b.gated(l).into())
            })
        })
    },
};

/// PLaMo 3: norms behind both parts, and windows with a rotation of their own.
const PLAMO3: Arch = Arch {
    name: "plamo3",
    describe: |file| {
        let b = file.rms(Halves)?;
        let window = b.window();
        b.model(|l| {
            let is_windowed = window.is_some() && b.is_windowed(l, 8, false);
            let mut rope = match is_windowed {
                true => b.windowed_rope(Some(10_000.0), false)?,
                false => b.rope()?,
            };
            rope.factors = RopeFactors::None;
            let attention = AttentionSpec {
                window: window.filter(|_| is_windowed).map(Window::Sliding),
                rope: Some(rope),
                scales: false,
                ..b.normed_attention(l)?
            };
            let dense = DenseSpec {
                gate: Gate::Fused,
                ..b.gated(l)
            };
            Ok(b.sandwich(l, attention, dense.into()))
        })
    },
};
