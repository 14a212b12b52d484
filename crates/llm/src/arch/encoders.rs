//! Encoders: every token sees all of a text, and there are no logits. Their results become embeddings and scores.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};

use super::Arch;
use super::base::Base;
use super::gemma;
use crate::LlmError;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, DistancesSpec, ENCODER, ExpertsSpec, FfnSpec, Gate,
    LayerSpec, Mixer, ModelSpec, Need, NormedOver, Pooling, Window,
};

pub(super) const ALL: &[Arch] = &[
    BERT,
    NOMIC_BERT,
    NOMIC_BERT_MOE,
    JINA_BERT_V2,
    JINA_BERT_V3,
    MODERN_BERT,
    NEO_BERT,
    EUROBERT,
    GEMMA_EMBEDDING,
    LLAMA_EMBED,
    T5_ENCODER,
];

/// The same model as an encoder.
fn encoder(b: &Base, mut model: ModelSpec) -> ModelSpec {
    for layer in &mut model.layers {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.causal = false;
        }
    }
    model.head.output = Need::Absent;
    model.pool = b.pool(false);
    model
}

/// BERT's shape: token types, and norms behind the sums of inputs and parts.
fn bert(
    b: &Base,
    part: impl Fn(usize) -> Result<(AttentionSpec, FfnSpec), LlmError>,
) -> Result<ModelSpec, LlmError> {
    let model = b.model(|l| {
        let (attention, ffn) = part(l)?;
        Ok(LayerSpec {
            norm: None,
            sum_norms: vec![b.norm("attn_output_norm")],
            ffn_norm: None,
            result_norm: Some(b.norm("layer_output_norm")),
            ..b.layer(l, attention, ffn)
        })
    })?;
    let mut model = encoder(b, model);
    model.embedding.norm = Some(b.norm("token_embd_norm"));
    model.embedding.types = b.token_types();
    model.head.norm = None;
    Ok(model)
}

fn gelu(b: &Base, l: usize) -> FfnSpec {
    b.ungated(l, Activation::Gelu).into()
}

/// BERT, RoBERTa, XLM-RoBERTa, and most embedding models: learned positions.
const BERT: Arch = Arch {
    name: "bert",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let mut model = bert(&b, |l| Ok((b.unrotated(l), gelu(&b, l))))?;
        model.embedding.positions = Need::Required;
        Ok(model)
    },
};

/// Nomic Embed: rotation, and a gate.
const NOMIC_BERT: Arch = Arch {
    name: "nomic-bert",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        bert(&b, |l| {
            let dense = DenseSpec {
                biases: false,
                ..b.gated(l)
            };
            Ok((b.attention(l)?, dense.into()))
        })
    },
};

/// Nomic Embed 2: experts in every n-th layer.
const NOMIC_BERT_MOE: Arch = Arch {
    name: "nomic-bert-moe",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let step = b.keys.count_of("moe_every_n_layers", 0).unwrap_or(0);
        bert(&b, |l| {
            let ffn = match step > 0 && l % step == 1 {
                true => {
                    let width = b.keys.size_of("feed_forward_length", l);
                    let experts = ExpertsSpec {
                        activation: Activation::Gelu,
                        normalised: false,
                        ..b.experts(l, width)
                    };
                    experts.into()
                }
                false => gelu(&b, l),
            };
            Ok((b.attention(l)?, ffn))
        })
    },
};

/// Jina Embeddings 2, and Jina's rerankers: ALiBi, and norms and gates that some have.
const JINA_BERT_V2: Arch = Arch {
    name: "jina-bert-v2",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let mut model = bert(&b, |l| {
            let attention = AttentionSpec {
                alibi: Some(8.0),
                ..b.unrotated(l)
            };
            let attention = match b.has(l, "attn_q_norm") {
                true => b.with_head_norms(attention, NormedOver::Width, Need::Required),
                false => attention,
            };
            let width = b.keys.size_of("feed_forward_length", l);
            let gate = match () {
                () if b.has(l, "ffn_gate") => Gate::Separate,
                () if b.rows(l, "ffn_up") == Some(width) => Gate::None,
                () => Gate::Fused,
            };
            Ok((attention, b.dense(width, gate, Activation::Gelu).into()))
        })?;
        for layer in &mut model.layers {
            if b.has(layer.index, "attn_norm_2") {
                layer.sum_norms.push(b.norm("attn_norm_2"));
            }
        }
        Ok(model)
    },
};

/// Jina Embeddings 3: XLM-RoBERTa with rotation.
const JINA_BERT_V3: Arch = Arch {
    name: "jina-bert-v3",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        bert(&b, |l| Ok((b.attention(l)?, gelu(&b, l))))
    },
};

/// ModernBERT: norms before both parts but the first, and a window in two of three layers.
const MODERN_BERT: Arch = Arch {
    name: "modern-bert",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        let window = b.window();
        let activation = match b.keys.opt_text("hidden_activation") {
            Some("silu" | "swish") => Activation::Silu,
            _ => Activation::Gelu,
        };
        let model = b.model(|l| {
            let window = match window {
                Some(width) if b.is_windowed(l, 3, true) => Some(Window::Symmetric(width)),
                _ => None,
            };
            let rope = match window {
                Some(_) => b.windowed_rope(Some(10_000.0), false)?,
                None => b.rope()?,
            };
            let attention = AttentionSpec {
                window,
                rope: Some(rope),
                ..b.attention(l)?
            };
            let width = b.keys.size_of("feed_forward_length", l);
            let layer = b.layer(l, attention, b.dense(width, Gate::Fused, activation).into());
            let has_norm = l > 0 || b.has(l, "attn_norm");
            Ok(LayerSpec {
                norm: layer.norm.filter(|_| has_norm),
                ..layer
            })
        })?;
        let mut model = encoder(&b, model);
        model.embedding.norm = Some(b.norm("token_embd_norm"));
        model.pool.activation = Activation::Gelu;
        if b.pooling("classifier.pooling_type").is_none() {
            model.pool.ranked = Pooling::Mean;
        }
        Ok(model)
    },
};

/// NeoBERT: norms before both parts, and a gate.
const NEO_BERT: Arch = Arch {
    name: "neo-bert",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let model = b.model(|l| {
            let width = b.keys.size_of("feed_forward_length", l);
            let dense = b.dense(width, Gate::Fused, Activation::Silu);
            Ok(b.layer(l, b.attention(l)?, dense.into()))
        })?;
        let mut model = encoder(&b, model);
        model.head.norm = Some(b.norm("enc.output_norm"));
        Ok(model)
    },
};

/// EuroBERT: Llama's shape.
const EUROBERT: Arch = Arch {
    name: "eurobert",
    describe: |file| {
        let b = file.rms(Halves)?;
        let model = b.model(|l| Ok(b.layer(l, b.attention(l)?, b.gated(l).into())))?;
        Ok(encoder(&b, model))
    },
};

/// EmbeddingGemma: Gemma 3 with windows on both sides.
const GEMMA_EMBEDDING: Arch = Arch {
    name: "gemma-embedding",
    describe: |file| {
        let b = file.rms(Halves)?;
        let width = b.keys.size("attention.sliding_window");
        let model = b.model(|l| {
            let is_windowed = b.is_windowed(l, 6, false);
            let rope = match is_windowed {
                true => b.windowed_rope(Some(10_000.0), false)?,
                false => b.rope()?,
            };
            let attention = AttentionSpec {
                window: is_windowed.then_some(Window::Symmetric(width)),
                rope: Some(rope),
                ..b.normed_attention(l)?
            };
            Ok(b.sandwich(l, attention, gemma::ffn(&b, l)))
        })?;
        Ok(encoder(&b, gemma::scaled(&b, model)))
    },
};

/// Llama-Embed-Nemotron.
const LLAMA_EMBED: Arch = Arch {
    name: "llama-embed",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let model = b.model(|l| Ok(b.layer(l, b.attention(l)?, b.ffn(l, true))))?;
        Ok(encoder(&b, model))
    },
};

/// T5's encoder: biases by distance, and no scale of scores.
const T5_ENCODER: Arch = Arch {
    name: "t5encoder",
    describe: |file| {
        let b = file.rms(Halves)?;
        let buckets = b.keys.size("attention.relative_buckets_count");
        let name = |l, part| format!("{ENCODER}blk.{l}.{part}.weight");
        let has = |l, part| b.keys.gguf.tensor(&name(l, part)).is_some();
        let model = b.model(|l| {
            let own = if has(l, "attn_rel_b") { l } else { 0 };
            let attention = AttentionSpec {
                distances: Some(DistancesSpec {
                    table: name(own, "attn_rel_b"),
                    buckets,
                }),
                scale: 1.0,
                ..b.unrotated(l)
            };
            let dense = match has(l, "ffn_gate") {
                true => DenseSpec {
                    activation: Activation::GeluTanh,
                    ..b.gated(l)
                },
                false => b.ungated(l, Activation::Relu),
            };
            Ok(LayerSpec {
                scope: ENCODER,
                ..b.layer(l, attention, dense.into())
            })
        })?;
        let mut model = encoder(&b, model);
        model.head.norm = Some(b.norm("enc.output_norm"));
        Ok(model)
    },
};
