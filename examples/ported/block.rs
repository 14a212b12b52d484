//! A layer of a transformer with norms in front (Xiong et al. 2020, arXiv:2002.04745).

use rustorch::nn::{Forward, LayerNorm, Linear, Module};
use rustorch::prelude::*;

const HEADS: usize = 4;

#[derive(Module)]
pub(crate) struct Block {
    norm1: LayerNorm,
    norm2: LayerNorm,
    qkv: Linear,
    proj: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    pub(crate) fn new(width: usize) -> RusTorchResult<Self> {
        Ok(Self {
            norm1: LayerNorm::new(width)?,
            norm2: LayerNorm::new(width)?,
            qkv: Linear::new(width, 3 * width)?,
            proj: Linear::new(width, width)?,
            up: Linear::new(width, 4 * width)?,
            down: Linear::new(4 * width, width)?,
        })
    }

    /// Computes the layer for `x` `[batch, time, width]`.
    pub(crate) fn forward(&self, x: &Tensor, options: AttentionOptions) -> RusTorchResult<Tensor> {
        let (b, t, c) = x.dims3()?;
        let qkv = self.qkv.forward(&self.norm1.forward(x)?)?.chunk(3, -1)?;
        let heads = |part: &Tensor| part.view((b, t, HEADS, c / HEADS))?.transpose(1, 2);
        let (q, k, v) = (heads(&qkv[0])?, heads(&qkv[1])?, heads(&qkv[2])?);
        let y = q.scaled_dot_product_attention(&k, &v, options)?;
        let y = y.transpose(1, 2)?.reshape((b, t, c))?;
        let x = x.add(&self.proj.forward(&y)?)?;
        let wide = self.up.forward(&self.norm2.forward(&x)?)?.gelu()?;
        x.add(&self.down.forward(&wide)?)
    }
}
