//! The model that is trained: a decoder of equal layers, whose parameters have the names of GGUF's tensors.

use rustorch::nn::{CrossEntropyLoss, Embedding, Forward, Module, ModuleList, RMSNorm, parameter};
use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_ir::ops::Rope;
use rustorch_llm::{Config, Model};
use rustorch_tensor::amp::autocast;
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor};

use crate::{Precision, TrainError};

/// Standard deviation of first weights, as of GPT-2's.
const DEVIATION: f64 = 0.02;

/// What the names of adapters' matrices have.
const LORA: &str = ".lora.";

/// What is trained beside a weight that stays ([LoRA](https://arxiv.org/abs/2106.09685)): `scale · (x · aᵀ) · bᵀ`.
#[derive(Module)]
struct LowRank {
    /// `[rank, inputs]`.
    a: Tensor,
    /// `[outputs, rank]`.
    b: Tensor,
    #[module(skip)]
    scale: f64,
}

/// `x · weightᵀ + bias`, and what an adapter adds.
#[derive(Module)]
struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
    lora: Option<LowRank>,
}

impl Forward for Projection {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let y = x.linear(&self.weight, self.bias.as_ref())?;
        let Some(LowRank { a, b, scale }) = &self.lora else {
            return Ok(y);
        };
        y.add(&x.linear(a, None)?.mul(*scale)?.linear(b, None)?)
    }
}

impl Projection {
    /// Puts an adapter beside the weight, which adds nothing at first: `a` is drawn evenly from `±1 / √inputs`, `b` is zeros.
    fn adapt(&mut self, rank: usize, scale: f64, seed: u64) -> RusTorchResult<()> {
        let (outputs, inputs) = (self.weight.size(0)?, self.weight.size(1)?);
        let bound = 1.0 / (inputs as f64).sqrt();
        let drawn = Tensor::rand_seeded([rank, inputs], DType::F32, seed)?;
        self.lora = Some(LowRank {
            a: parameter(drawn.mul(2.0 * bound)?.sub(bound)?)?,
            b: parameter(Tensor::zeros([outputs, rank], DType::F32)?)?,
            scale,
        });
        Ok(())
    }

    /// The weight with what the adapter adds.
    fn merged(&self) -> RusTorchResult<Tensor> {
        let weight = self.weight.detach();
        match &self.lora {
            Some(LowRank { a, b, scale }) => {
                weight.add(&b.detach().matmul(&a.detach())?.mul(*scale)?)
            }
            None => Ok(weight),
        }
    }
}

/// A layer: attention, then feed-forward, each behind a norm and beside a short cut.
#[derive(Module)]
struct Layer {
    attn_norm: RMSNorm,
    attn_q: Projection,
    attn_k: Projection,
    attn_v: Projection,
    attn_q_norm: Option<RMSNorm>,
    attn_k_norm: Option<RMSNorm>,
    attn_output: Projection,
    ffn_norm: RMSNorm,
    ffn_gate: Projection,
    ffn_up: Projection,
    ffn_down: Projection,
}

/// What all layers of one pass share.
struct Pass<'a> {
    config: &'a Config,
    rope: &'a Rope,
    factors: Option<&'a Tensor>,
    /// `i32` `[t]`.
    positions: Tensor,
}

impl Layer {
    /// Layer `index` of these weights.
    fn build(index: usize, c: &Config, weights: &mut Weights) -> Result<Self, TrainError> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let mut projection = |part: &str, outputs: usize, inputs: usize| {
            Ok::<_, TrainError>(Projection {
                weight: weights.get(&format!("{}.weight", name(part)), &[outputs, inputs])?,
                bias: weights.opt(&format!("{}.bias", name(part)), &[outputs])?,
                lora: None,
            })
        };
        let attn_q = projection("attn_q", c.heads * c.key_width, c.width)?;
        let attn_k = projection("attn_k", c.kv_heads * c.key_width, c.width)?;
        let attn_v = projection("attn_v", c.kv_heads * c.value_width, c.width)?;
        let attn_output = projection("attn_output", c.width, c.heads * c.value_width)?;
        let ffn_gate = projection("ffn_gate", c.ff_width, c.width)?;
        let ffn_up = projection("ffn_up", c.ff_width, c.width)?;
        let ffn_down = projection("ffn_down", c.width, c.ff_width)?;
        let mut norm = |part: &str, width| weights.norm(&name(part), width, c);
        Ok(Self {
            attn_norm: norm("attn_norm", c.width)?.ok_or_else(|| missing(&name("attn_norm")))?,
            attn_q,
            attn_k,
            attn_v,
            attn_q_norm: norm("attn_q_norm", c.key_width)?,
            attn_k_norm: norm("attn_k_norm", c.key_width)?,
            attn_output,
            ffn_norm: norm("ffn_norm", c.width)?.ok_or_else(|| missing(&name("ffn_norm")))?,
            ffn_gate,
            ffn_up,
            ffn_down,
        })
    }

    /// What adapters may be put beside, by name.
    fn projections(&self) -> [(&'static str, &Projection); 7] {
        [
            ("attn_q", &self.attn_q),
            ("attn_k", &self.attn_k),
            ("attn_v", &self.attn_v),
            ("attn_output", &self.attn_output),
            ("ffn_gate", &self.ffn_gate),
            ("ffn_up", &self.ffn_up),
            ("ffn_down", &self.ffn_down),
        ]
    }

    fn projections_mut(&mut self) -> [&mut Projection; 7] {
        [
            &mut self.attn_q,
            &mut self.attn_k,
            &mut self.attn_v,
            &mut self.attn_output,
            &mut self.ffn_gate,
            &mut self.ffn_up,
            &mut self.ffn_down,
        ]
    }

    /// `[b, t, width]` to `[b, t, width]`.
    fn forward(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let x = x.add(&self.attention(&self.attn_norm.forward(x)?, pass)?)?;
        let normed = self.ffn_norm.forward(&x)?;
        let gate = self.ffn_gate.forward(&normed)?.silu()?;
        let fed = gate.mul(&self.ffn_up.forward(&normed)?)?;
        x.add(&self.ffn_down.forward(&fed)?)
    }

    fn attention(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let c = pass.config;
        let (b, t) = (x.shape()[0], x.shape()[1]);
        let heads = |x: Tensor, norm: Option<&RMSNorm>, heads: usize, width: usize| {
            let x = x.reshape([b, t, heads, width])?;
            let x = norm.map_or(Ok(x.clone()), |norm| norm.forward(&x))?;
            x.transpose(1, 2)
        };
        let turned = |x: Tensor| x.rope(&pass.positions, pass.factors, pass.rope);
        let q = heads(
            self.attn_q.forward(x)?,
            self.attn_q_norm.as_ref(),
            c.heads,
            c.key_width,
        )?;
        let k = heads(
            self.attn_k.forward(x)?,
            self.attn_k_norm.as_ref(),
            c.kv_heads,
            c.key_width,
        )?;
        let v = heads(self.attn_v.forward(x)?, None, c.kv_heads, c.value_width)?;
        let options = AttentionOptions {
            is_causal: true,
            ..AttentionOptions::default()
        };
        let y = turned(q)?.scaled_dot_product_attention(&turned(k)?, &v, options)?;
        let y = y
            .transpose(1, 2)?
            .reshape([b, t, c.heads * c.value_width])?;
        self.attn_output.forward(&y)
    }
}

/// A decoder-only transformer.
#[derive(Module)]
pub struct Decoder {
    token_embd: Embedding,
    blk: ModuleList<Layer>,
    output_norm: RMSNorm,
    /// Without one the embedding's table is the head.
    output: Option<Projection>,
    #[module(skip)]
    config: Config,
    #[module(skip)]
    rope: Rope,
    /// What divides the rotary frequencies.
    #[module(skip)]
    factors: Option<Tensor>,
}

impl Decoder {
    /// With first weights that follow from `seed`: normal numbers, smaller ones where layers add to their input, ones
    /// in norms; and the embedding's table as the head.
    ///
    /// # Errors
    /// More than memory could hold.
    pub fn new(config: Config, seed: u64) -> Result<Self, TrainError> {
        let residual = DEVIATION / (2.0 * config.layers as f64).sqrt();
        let mut stream = 0;
        let mut first = |name: &str, shape: &[usize]| {
            let optional = ["attn_q_norm", "attn_k_norm", "bias", "rope_freqs"];
            if name == "output.weight" || optional.iter().any(|part| name.contains(part)) {
                return Ok(None);
            }
            if shape.len() == 1 {
                return Ok(Some(Tensor::ones(shape, DType::F32)?));
            }
            let adds = ["attn_output", "ffn_down"]
                .iter()
                .any(|part| name.contains(part));
            let deviation = if adds { residual } else { DEVIATION };
            stream += 1;
            let seed = seed.wrapping_shl(20).wrapping_add(stream);
            let weights = Tensor::randn_seeded(shape, DType::F32, seed)?;
            Ok(Some(weights.mul(deviation)?))
        };
        Self::build(config, Weights(&mut first))
    }

    /// With the weights of a model, in `f32`.
    ///
    /// # Errors
    /// A weight is missing, of another shape, or of a type that is not supported.
    pub fn load(model: &Model) -> Result<Self, TrainError> {
        let file = rustorch_llm::Weights::new(model.gguf().clone());
        Self::build(
            model.config().clone(),
            Weights(&mut |name, shape| Ok(file.opt_f32(name, shape)?)),
        )
    }

    /// Puts adapters beside the weights of all layers, and has nothing else trained. What they add is multiplied by
    /// `alpha / rank`.
    ///
    /// # Errors
    /// More than memory could hold.
    pub fn adapt(&mut self, rank: usize, alpha: f64, seed: u64) -> Result<(), TrainError> {
        self.requires_grad_(false)?;
        let scale = alpha / rank as f64;
        let mut stream = seed.wrapping_shl(20);
        for layer in &mut self.blk {
            for projection in layer.projections_mut() {
                stream = stream.wrapping_add(1);
                projection.adapt(rank, scale, stream)?;
            }
        }
        Ok(())
    }

    /// The weights with what adapters add, by GGUF's names.
    pub(crate) fn merged(&self) -> RusTorchResult<Tensors> {
        let mut tensors: Tensors = self
            .state_dict()
            .into_iter()
            .filter(|(name, _)| !name.contains(LORA))
            .collect();
        for (i, layer) in self.blk.iter().enumerate() {
            for (part, projection) in layer.projections() {
                tensors.insert(format!("blk.{i}.{part}.weight"), projection.merged()?);
            }
        }
        Ok(tensors)
    }

    /// The adapters' matrices, by the names that GGUF's adapters have.
    pub(crate) fn adapters(&self) -> Tensors {
        let named = self
            .state_dict()
            .into_iter()
            .filter(|(name, _)| name.contains(LORA));
        named
            .map(|(name, tensor)| (name.replace(LORA, ".weight.lora_"), tensor))
            .collect()
    }

    /// The parameters that are trained.
    pub(crate) fn trained(&self) -> Vec<(String, Tensor)> {
        let mut named = self.named_parameters();
        named.retain(|(_, tensor)| tensor.requires_grad());
        named
    }

    /// The matrices that tokens' features are multiplied by.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = Tensor> {
        // A table is looked up, unless it is the head, too.
        let is_looked_up = |name: &str| name == "token_embd.weight" && self.output.is_some();
        let named = self.named_parameters().into_iter();
        let matrices =
            named.filter(move |(name, tensor)| tensor.rank() == 2 && !is_looked_up(name));
        matrices.map(|(_, tensor)| tensor)
    }

    fn build(config: Config, mut weights: Weights) -> Result<Self, TrainError> {
        let c = &config;
        let blk: Result<_, _> = (0..c.layers)
            .map(|i| Layer::build(i, c, &mut weights))
            .collect();
        let (blk, output_norm) = (blk?, weights.norm("output_norm", c.width, c)?);
        let mut token_embd = Embedding::new(1, 1)?;
        token_embd.weight = weights.get("token_embd.weight", &[c.vocab, c.width])?;
        Ok(Self {
            token_embd,
            blk,
            output_norm: output_norm.ok_or_else(|| missing("output_norm.weight"))?,
            output: weights
                .opt("output.weight", &[c.vocab, c.width])?
                .map(|weight| Projection {
                    weight,
                    bias: None,
                    lora: None,
                }),
            rope: Rope {
                dims: c.rope_dims,
                layout: c.rope_layout,
                base: c.rope_base.into(),
                scaling: c.rope_scaling,
            },
            factors: weights
                .opt("rope_freqs.weight", &[c.rope_dims / 2])?
                .map(|factors| factors.detach()),
            config,
        })
    }

    /// Hyper-parameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What divides the rotary frequencies, `f32` `[rope_dims / 2]`, where the model has it.
    pub fn factors(&self) -> Option<&Tensor> {
        self.factors.as_ref()
    }

    /// Logits `[b, t, vocab]` of tokens `[b, t]`, integers.
    ///
    /// # Errors
    /// Tokens of another shape.
    pub fn forward(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        let length = tokens.size(1)?;
        let pass = Pass {
            config: &self.config,
            rope: &self.rope,
            factors: self.factors.as_ref(),
            positions: Tensor::arange(0, length as i64, 1, DType::I32)?,
        };
        let mut x = self.token_embd.forward(tokens)?;
        for layer in &self.blk {
            x = layer.forward(&x, &pass)?;
        }
        let x = self.output_norm.forward(&x)?;
        match &self.output {
            Some(head) => head.forward(&x),
            None => x.linear(&self.token_embd.weight, None),
        }
    }

    /// The mean loss, in nats, of the tokens that follow: `targets`, `i64` `[b, t]`, of which those below 0 do not count.
    ///
    /// # Errors
    /// Tensors of other shapes.
    pub fn loss(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        precision: Precision,
    ) -> RusTorchResult<Tensor> {
        autocast(precision.half(), || {
            let logits = self.forward(tokens)?;
            CrossEntropyLoss::default().forward(&logits.flatten(0, 1)?, &targets.flatten(0, -1)?)
        })
    }
}

/// Gives the weight of a name and shape, if there is one.
type Give<'a> = dyn FnMut(&str, &[usize]) -> Result<Option<Tensor>, TrainError> + 'a;

/// Weights by their names and shapes, some of which may be missing.
struct Weights<'a>(&'a mut Give<'a>);

impl Weights<'_> {
    fn opt(&mut self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, TrainError> {
        Ok((self.0)(name, shape)?.map(parameter).transpose()?)
    }

    fn get(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, TrainError> {
        self.opt(name, shape)?.ok_or_else(|| missing(name))
    }

    fn norm(
        &mut self,
        name: &str,
        width: usize,
        c: &Config,
    ) -> Result<Option<RMSNorm>, TrainError> {
        let Some(weight) = self.opt(&format!("{name}.weight"), &[width])? else {
            return Ok(None);
        };
        let mut norm = RMSNorm::new(width)?.eps(c.rms_eps);
        norm.weight = Some(weight);
        Ok(Some(norm))
    }
}

fn missing(name: &str) -> TrainError {
    TrainError::Setting(format!("the model has no tensor {name}"))
}
