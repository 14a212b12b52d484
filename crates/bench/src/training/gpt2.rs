//! GPT-2, whose head shares the embedding's weights.

use rustorch::nn::{
    CrossEntropyLoss, Embedding, Forward, LayerNorm, Linear, Module, ModuleList, init,
};
use rustorch_ir::DType;
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor};

#[derive(Module)]
struct Attention {
    c_attn: Linear,
    c_proj: Linear,
    #[module(skip)]
    heads: usize,
}

impl Forward for Attention {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let [batch, length, width] = [x.size(0)?, x.size(1)?, x.size(2)?];
        let parts = self.c_attn.forward(x)?.chunk(3, 2)?;
        let heads = |part: &Tensor| {
            let heads = part.reshape([batch, length, self.heads, width / self.heads])?;
            heads.transpose(1, 2)
        };
        let options = AttentionOptions {
            is_causal: true,
            ..Default::default()
        };
        let (q, k, v) = (heads(&parts[0])?, heads(&parts[1])?, heads(&parts[2])?);
        let y = q.scaled_dot_product_attention(&k, &v, options)?;
        let y = y.transpose(1, 2)?.reshape([batch, length, width])?;
        self.c_proj.forward(&y)
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

/// GPT-2 with Hugging Face's names, but with weights of linear layers as `[out, in]`, and without
/// dropout.
#[derive(Module)]
pub struct Gpt2 {
    wte: Embedding,
    wpe: Embedding,
    h: ModuleList<Block>,
    ln_f: LayerNorm,
}

impl Gpt2 {
    /// Weights of matrices are normal numbers with a deviation of 0.02.
    ///
    /// # Errors
    ///
    /// Fails for sizes of zero.
    pub fn new(
        layers: usize,
        width: usize,
        heads: usize,
        vocabulary: usize,
        length: usize,
    ) -> RusTorchResult<Self> {
        let block = |_| {
            Ok(Block {
                ln_1: LayerNorm::new(width)?,
                attn: Attention {
                    c_attn: Linear::new(width, 3 * width)?,
                    c_proj: Linear::new(width, width)?,
                    heads,
                },
                ln_2: LayerNorm::new(width)?,
                mlp: Mlp {
                    c_fc: Linear::new(width, 4 * width)?,
                    c_proj: Linear::new(4 * width, width)?,
                },
            })
        };
        let model = Self {
            wte: Embedding::new(vocabulary, width)?,
            wpe: Embedding::new(length, width)?,
            h: (0..layers).map(block).collect::<RusTorchResult<_>>()?,
            ln_f: LayerNorm::new(width)?,
        };
        for mut matrix in model.parameters().into_iter().filter(|p| p.rank() == 2) {
            init::normal_(&mut matrix, 0.0, 0.02)?;
        }
        Ok(model)
    }

    /// The loss of predicting each token of `[batch, length + 1]` from those before: a tensor of
    /// rank 0.
    ///
    /// # Errors
    ///
    /// Fails for tokens of an unsupported rank or dtype, or for more tokens than the model's
    /// context.
    pub fn loss(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        let length = tokens.size(1)?.saturating_sub(1);
        let places = Tensor::arange_with(0, length as i64, 1, DType::I64)?;
        let given = self.wte.forward(&tokens.narrow(1, 0, length)?)?;
        let mut x = given.add(&self.wpe.forward(&places)?)?;
        for block in &self.h {
            x = block.forward(&x)?;
        }
        let logits = self.ln_f.forward(&x)?.linear(&self.wte.weight, None)?;
        let next = tokens.narrow(1, 1, length)?.flatten(0, -1)?;
        CrossEntropyLoss::default().forward(&logits.flatten(0, 1)?, &next)
    }
}
