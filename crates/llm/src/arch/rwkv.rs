//! RWKV, and models of attention that were turned into it.

use rustorch_ir::ops::RopeLayout::Interleaved;

use super::Arch;
use super::base::{Base, File};
use crate::LlmError;
use crate::keys::UNKNOWN;
use crate::spec::{
    ChannelMixSpec, DenseSpec, EmbeddingSpec, FfnSpec, LayerSpec, Mixer, ModelSpec, Need, NormSpec,
    RecurrentKind, RecurrentSpec, Rwkv6Spec, Rwkv7Spec,
};

pub(super) const ALL: &[Arch] = &[ARWKV7, RWKV6, RWKV6QWEN2, RWKV7];

/// The mixer of tokens, of `groups` heads of keys; `None` for as many as there are heads.
fn mixer(b: &Base, kind: RecurrentKind, groups: Option<usize>) -> Mixer {
    let k = b.keys;
    let width = k.size("wkv.head_size");
    let divides = b.width.is_multiple_of(width);
    if k.contradict(&[b.width, width], divides) {
        let problem = format!("heads of {width} do not divide {} features", b.width);
        k.wrong("wkv.head_size", problem);
    }
    let heads = match b.width.max(width) < UNKNOWN {
        true => (b.width / width).max(1),
        false => UNKNOWN,
    };
    let groups = groups.filter(|groups| *groups > 0).unwrap_or(heads);
    if k.contradict(&[heads, groups], heads.is_multiple_of(groups)) {
        let problem = format!("{groups} does not divide the {heads} heads");
        k.wrong("attention.head_count_kv", problem);
    }
    Mixer::Recurrent(Box::new(RecurrentSpec {
        kind,
        kernel: 2,
        heads,
        groups,
        key_width: width,
        value_width: width,
        scales: false,
    }))
}

/// Checks the number of parts of a layer that read the token before.
fn check_shifts(b: &Base, expected: usize) {
    let found = b.keys.opt_size("token_shift_count").unwrap_or(2);
    if b.keys.contradict(&[found], found == expected) {
        let problem = format!("expected {expected}, got {found}");
        b.keys.wrong("token_shift_count", problem);
    }
}

/// A layer of two parts that both read the token before.
fn layer(b: &Base, l: usize, mixer: Mixer, has_gate: bool) -> LayerSpec {
    let channels = ChannelMixSpec {
        inputs: b.width,
        width: b.keys.size_of("feed_forward_length", 0),
        has_gate,
    };
    let ffn = FfnSpec {
        channel_mix: Some(channels),
        ..FfnSpec::NONE
    };
    LayerSpec {
        ffn_norm: Some(b.norm("attn_norm_2")),
        ..b.mixed(l, mixer, ffn)
    }
}

/// A model of such layers, with a norm of the embedding.
fn model(b: &Base, layer: impl Fn(usize) -> LayerSpec) -> Result<ModelSpec, LlmError> {
    check_shifts(b, 2);
    let model = b.model(|l| Ok(layer(l)))?;
    Ok(ModelSpec {
        embedding: EmbeddingSpec {
            norm: Some(b.norm("token_embd_norm")),
            ..model.embedding
        },
        ..with_head(model)
    })
}

/// The same with a head of its own.
fn with_head(mut model: ModelSpec) -> ModelSpec {
    model.head.output = Need::Required;
    model
}

/// A model of RWKV's mixers and Qwen's feed-forward parts.
fn qwen(file: File, mixer: impl Fn(&Base, usize) -> Mixer) -> Result<ModelSpec, LlmError> {
    let b = file.rms(Interleaved)?;
    check_shifts(&b, 1);
    let bare = |name| NormSpec {
        bias: false,
        ..b.norm(name)
    };
    let model = b.model(|l| {
        let dense = DenseSpec {
            biases: false,
            ..b.gated(l)
        };
        Ok(LayerSpec {
            norm: Some(bare("attn_norm")),
            ffn_norm: Some(bare("ffn_norm")),
            ..b.mixed(l, mixer(&b, l), dense.into())
        })
    })?;
    Ok(with_head(model))
}

/// RWKV 6's parts.
fn rwkv6(b: &Base, has_bonus: bool) -> RecurrentKind {
    RecurrentKind::Rwkv6(Rwkv6Spec {
        shares: b.keys.size("time_mix_extra_dim"),
        decays: b.keys.size("time_decay_extra_dim"),
        has_bonus,
    })
}

/// RWKV 7's parts in layer `l`. The first layer's tensors for shares of its own values are not read.
fn rwkv7(b: &Base, l: usize, norm: Need) -> RecurrentKind {
    let rank = |name: &str| b.keys.size(&format!("attention.{name}_lora_rank"));
    let gate = b.keys.count_of("attention.gate_lora_rank", 0);
    let values = rank("value_residual_mix");
    RecurrentKind::Rwkv7(Rwkv7Spec {
        decays: rank("decay"),
        rates: rank("iclr"),
        values: (l > 0).then_some(values),
        gate: gate.filter(|rank| *rank > 0),
        norm,
    })
}

/// Parts of names of tensors that RWKV 7 does not read.
const UNREAD: &[&str] = &[
    "blk.0.time_mix_v0.",
    "blk.0.time_mix_v1.",
    "blk.0.time_mix_v2.",
];

/// RWKV 7.
const RWKV7: Arch = Arch {
    name: "rwkv7",
    describe: |file| {
        let b = file.layer_norm(Interleaved)?;
        let model = model(&b, |l| {
            let mixer = mixer(&b, rwkv7(&b, l, Need::Required), None);
            layer(&b, l, mixer, false)
        })?;
        Ok(ModelSpec {
            unread: UNREAD,
            ..model
        })
    },
};

/// ARWKV: Qwen 2.5 with RWKV 7 in the place of attention, with a gate or without.
const ARWKV7: Arch = Arch {
    name: "arwkv7",
    describe: |file| {
        let model = qwen(file, |b, l| mixer(b, rwkv7(b, l, Need::Optional), None))?;
        Ok(ModelSpec {
            unread: UNREAD,
            ..model
        })
    },
};

/// RWKV 6. The result of some layers is halved, as their weights are in files.
const RWKV6: Arch = Arch {
    name: "rwkv6",
    describe: |file| {
        let b = file.layer_norm(Interleaved)?;
        let period = b.keys.count_of("rescale_every_n_layers", 0).unwrap_or(0);
        model(&b, |l| {
            let is_halved = period > 0 && (l + 1).is_multiple_of(period);
            LayerSpec {
                result_scale: if is_halved { 0.5 } else { 1.0 },
                ..layer(&b, l, mixer(&b, rwkv6(&b, true), None), true)
            }
        })
    },
};

/// QRWKV: Qwen 2.5 with gated linear attention, whose decays are those of RWKV 6.
const RWKV6QWEN2: Arch = Arch {
    name: "rwkv6qwen2",
    describe: |file| {
        qwen(file, |b, l| {
            let groups = b.keys.count_of("attention.head_count_kv", l);
            mixer(b, rwkv6(b, false), groups)
        })
    },
};
