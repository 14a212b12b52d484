//! PLaMo.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use super::recurrent::{heads, inner_norm, is_recurrent, plain, unscaled};
use crate::keys::UNKNOWN;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, Gate, LayerSpec, Mixer, Need, NormedOver, RecurrentKind,
    Residual, RopeFactors, Window,
};

pub(super) const ALL: &[Arch] = &[PLAMO, PLAMO2, PLAMO3];

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

/// PLaMo 2: Mamba with a decay of each head, and attention with norms of queries and keys.
const PLAMO2: Arch = Arch {
    name: "plamo2",
    describe: |file| {
        let b = file.rms(Halves)?;
        let groups = b.keys.count_of("ssm.group_count", 0).unwrap_or(0);
        if b.keys.contradict(&[groups], groups == 0) {
            (b.keys).wrong("ssm.group_count", format!("expected 0, got {groups}"));
        }
        b.model(|l| {
            let mixer = match is_recurrent(&b, l) {
                true => {
                    let inner = b.keys.size("ssm.inner_size");
                    let count = b.keys.size("ssm.time_step_rank");
                    let divides = inner.is_multiple_of(count);
                    if b.keys.contradict(&[inner, count], divides) {
                        let problem = format!("{count} heads do not divide {inner} features");
                        b.keys.wrong("ssm.time_step_rank", problem);
                    }
                    let width = match inner.max(count) < UNKNOWN {
                        true => inner / count,
                        false => UNKNOWN,
                    };
                    let kind = RecurrentKind::Mamba {
                        rank: match b.width < UNKNOWN {
                            true => (b.width / 16).max(64),
                            false => UNKNOWN,
                        },
                        norm: Some(inner_norm(&b, Need::Required)),
                        by_head: true,
                    };
                    Mixer::Recurrent(Box::new(heads(&b, kind, count, 1, width)))
                }
                false => {
                    let attention = b.attention(l)?;
                    let attention = AttentionSpec {
                        scale: 1.0 / (attention.value_width as f64).sqrt(),
                        rope: attention.rope.map(unscaled),
                        out_bias: false,
                        ..attention
                    };
                    let over = NormedOver::HeadOwnWeights;
                    let attention = b.with_head_norms(attention, over, Need::Required);
                    Mixer::Attention(Box::new(attention))
                }
            };
            let width = b.keys.size_of("feed_forward_length", l);
            let dense = b.dense(width, Gate::Fused, Activation::Silu);
            Ok(LayerSpec {
                out_norm: Some(b.norm("post_attention_norm")),
                ffn_out_norm: Some(b.norm("post_ffw_norm")),
                ..b.mixed(l, mixer, plain(dense))
            })
        })
    },
};
