//! A GPT-2 that learns as PyTorch's does: of `scripts/gpt2-goldens.py`, a tiny one, or that in the folder
//! `RUSTORCH_GPT2`.

extern crate rustorch_nn as rustorch;

use std::env;
use std::path::PathBuf;

use rustorch::nn::{CrossEntropyLoss, Embedding, Forward, LayerNorm, Linear, Module, ModuleList};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Module)]
struct Attention {
    c_attn: Linear,
    c_proj: Linear,
    #[module(skip)]
    heads: usize,
}

impl Forward for Attention {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let [b, t, c] = x.shape()[..] else {
            panic!("[batch, length, width]");
        };
        let parts = self.c_attn.forward(x)?.chunk(3, 2)?;
        let heads = |part: &Tensor| {
            let heads = part.reshape([b, t, self.heads, c / self.heads])?;
            heads.transpose(1, 2)
        };
        let options = AttentionOptions {
            is_causal: true,
            ..Default::default()
        };
        let (q, k, v) = (heads(&parts[0])?, heads(&parts[1])?, heads(&parts[2])?);
        let y = q.scaled_dot_product_attention(&k, &v, options)?;
        self.c_proj.forward(&y.transpose(1, 2)?.reshape([b, t, c])?)
    }
}

#[derive(Module)]
struct Mlp {
    c_fc: Linear,
    c_proj: Linear,
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        self.c_proj.forward(&self.c_fc.forward(x)?.gelu_tanh()?)
    }
}

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let x = x.add(&self.attn.forward(&self.ln_1.forward(x)?)?)?;
        x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
    }
}

#[derive(Module)]
struct Gpt2 {
    wte: Embedding,
    wpe: Embedding,
    h: ModuleList<Block>,
    ln_f: LayerNorm,
}

impl Gpt2 {
    /// Of the sizes of these weights, with heads of 64 numbers, or two.
    fn of(weights: &Tensors) -> Outcome<Self> {
        let [vocabulary, width] = weights.get("wte.weight")?.shape()[..] else {
            panic!("[vocabulary, width]");
        };
        let layers = (0..).take_while(|i| weights.get(&format!("h.{i}.ln_1.weight")).is_ok());
        let block = |_| {
            Ok(Block {
                ln_1: LayerNorm::new(width)?,
                attn: Attention {
                    c_attn: Linear::new(width, 3 * width)?,
                    c_proj: Linear::new(width, width)?,
                    heads: (width / 64).max(2),
                },
                ln_2: LayerNorm::new(width)?,
                mlp: Mlp {
                    c_fc: Linear::new(width, 4 * width)?,
                    c_proj: Linear::new(4 * width, width)?,
                },
            })
        };
        let mut model = Self {
            wte: Embedding::new(vocabulary, width)?,
            wpe: Embedding::new(weights.get("wpe.weight")?.shape()[0], width)?,
            h: layers.map(block).collect::<RusTorchResult<_>>()?,
            ln_f: LayerNorm::new(width)?,
        };
        model.load_state_dict(weights, true)?;
        Ok(model)
    }

    /// The loss of tokens `[batch, length + 1]`, each of which follows from those before.
    fn loss(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        let length = tokens.shape()[1] - 1;
        let places = Tensor::arange(0, length as i64, 1, DType::I64)?;
        let given = self.wte.forward(&tokens.narrow(1, 0, length)?)?;
        let mut x = given.add(&self.wpe.forward(&places)?)?;
        for block in &self.h {
            x = block.forward(&x)?;
        }
        // The head's weights are the embedding's.
        let logits = self.ln_f.forward(&x)?.linear(&self.wte.weight, None)?;
        let next = tokens.narrow(1, 1, length)?.flatten(0, -1)?;
        CrossEntropyLoss::default().forward(&logits.flatten(0, 1)?, &next)
    }
}

#[test]
fn ten_steps_are_pytorchs() -> Outcome<()> {
    let bundled = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/gpt2"));
    let folder = env::var_os("RUSTORCH_GPT2").map_or_else(bundled, PathBuf::from);
    let load = |name: &str| rustorch_files::load(folder.join(name).with_extension("safetensors"));
    let model = Gpt2::of(&load("weights")?)?;
    let gradients = load("gradients")?;
    let steps = load("steps")?;
    let lr = steps.get("lr")?.item()?;
    let options = AdamWOptions::default()
        .lr(lr)
        .betas((0.9, 0.95))
        .weight_decay(0.1);
    let mut adam = AdamW::new(model.named_parameters(), options)?;
    let losses = steps.get("losses")?.to_vec::<f64>()?;
    for (step, &expected) in losses.iter().enumerate() {
        adam.zero_grad();
        let loss = model.loss(steps.get("tokens")?)?;
        loss.backward()?;
        let loss = loss.item()?;
        println!("step {step}: loss {loss:.6}, PyTorch's {expected:.6}");
        assert!((loss - expected).abs() < 1e-3, "step {step}");
        for (name, parameter) in model.named_parameters().iter().filter(|_| step == 0) {
            let gradient = parameter
                .grad()
                .ok_or_else(|| format!("no gradient of {name}"))?;
            let expected = gradients.get(name)?;
            let size = expected.norm(2.0, .., false)?.item()?;
            let far = gradient.sub(expected)?.norm(2.0, .., false)?.item()?;
            assert!(far <= 1e-2 * size, "{name}: {far} of {size}");
        }
        adam.step()?;
    }
    Ok(())
}
