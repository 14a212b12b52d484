//! Qwen.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use super::base::Base;
use super::llama::plain;
use crate::LlmError;
use crate::spec::{DenseSpec, ExpertsSpec, HeadSpec, ModelSpec, Scales};

pub(super) const ALL: &[Arch] = &[
    QWEN, QWEN2, QWEN2VL, QWEN3, QWEN3VL, QWEN3TTS, QWEN2MOE, QWEN3MOE, QWEN3VLMOE,
];

/// Qwen: feed-forward parts of half the width that the file says.
const QWEN: Arch = Arch {
    name: "qwen",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let dense = DenseSpec {
                width: b.keys.size_of("feed_forward_length", l) / 2,
                ..b.gated(l)
            };
            Ok(b.layer(l, b.attention(l)?, dense.into()))
        })
    },
};

/// Qwen 2 and 2.5.
const QWEN2: Arch = Arch {
    name: "qwen2",
    describe: |file| plain(file, Halves),
};

/// The text part of Qwen2-VL and Qwen2.5-VL.
const QWEN2VL: Arch = Arch {
    name: "qwen2vl",
    describe: |file| {
        let mut model = plain(file, Halves)?;
        model.head.bias = false;
        Ok(model)
    },
};

fn qwen3(b: &Base, scales: Scales) -> Result<ModelSpec, LlmError> {
    b.model(|l| {
        let dense = DenseSpec {
            scales,
            ..b.gated(l)
        };
        Ok(b.layer(l, b.normed_attention(l)?, dense.into()))
    })
}

/// The same, whose rerankers give probabilities.
fn ranking(mut model: ModelSpec) -> ModelSpec {
    model.pool.softmax = true;
    model
}

/// Qwen 3: norms of queries and keys.
const QWEN3: Arch = Arch {
    name: "qwen3",
    describe: |file| Ok(ranking(qwen3(&file.rms(Halves)?, Scales::All)?)),
};

/// The text part of Qwen3-VL.
const QWEN3VL: Arch = Arch {
    name: "qwen3vl",
    describe: |file| Ok(ranking(qwen3(&file.rms(Halves)?, Scales::None)?)),
};

/// Qwen3-TTS's talker: a head of 3,072 codes.
const QWEN3TTS: Arch = Arch {
    name: "qwen3tts",
    describe: |file| {
        let b = file.rms(Halves)?;
        let model = qwen3(&b, Scales::None)?;
        let head = HeadSpec {
            logits: b.vocab.min(3072),
            ..model.head
        };
        Ok(ModelSpec { head, ..model })
    },
};

/// Qwen 1.5 and 2 with experts: a shared expert with its own gate.
const QWEN2MOE: Arch = Arch {
    name: "qwen2moe",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let width = b.keys.count_of("feed_forward_length", l).unwrap_or(0);
            let shared = b.keys.count_of("expert_shared_feed_forward_length", 0);
            let shared = DenseSpec {
                token_gate: true,
                ..b.shared(shared.filter(|n| *n > 0).unwrap_or(width))
            };
            let experts = ExpertsSpec {
                normalised: false,
                ..routed(&b, l)
            };
            Ok(b.layer(l, b.attention(l)?, experts.beside(shared)))
        })
    },
};

/// Experts that have their own width, or a share of the feed-forward part's.
fn routed(b: &Base, l: usize) -> ExpertsSpec {
    let experts = b.experts(l, 1);
    let width = b.keys.count_of("feed_forward_length", l).unwrap_or(0) / experts.used;
    ExpertsSpec {
        width: b.expert_width(l, width),
        ..experts
    }
}

fn qwen3moe(b: &Base, scales: bool) -> Result<ModelSpec, LlmError> {
    b.model(|l| {
        let experts = ExpertsSpec {
            scales,
            ..routed(b, l)
        };
        Ok(b.layer(l, b.normed_attention(l)?, experts.into()))
    })
}

/// Qwen 3 with experts.
const QWEN3MOE: Arch = Arch {
    name: "qwen3moe",
    describe: |file| qwen3moe(&file.rms(Halves)?, true),
};

/// The text part of Qwen3-VL with experts.
const QWEN3VLMOE: Arch = Arch {
    name: "qwen3vlmoe",
    describe: |file| qwen3moe(&file.rms(Halves)?, false),
};
