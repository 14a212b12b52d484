//! Causal attention by its definition, and by the operation that devices have a kernel for.

use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    manual_seed(0);
    let draw = || Tensor::randn([1, 4, 16, 32], DType::F32);
    let (q, k, v) = (draw()?, draw()?, draw()?);
    let scores = q.matmul(&k.transpose(-2, -1)?)?.div(32f64.sqrt())?;
    let later = Tensor::ones([16, 16], DType::Bool)?.triu(1)?;
    let weights = scores.masked_fill(&later, f64::NEG_INFINITY)?.softmax(-1)?;
    let defined = weights.matmul(&v)?;
    let options = AttentionOptions::default().is_causal(true);
    let fused = q.scaled_dot_product_attention(&k, &v, options)?;
    let largest = defined.sub(&fused)?.abs()?.max(None, false)?.item()?;
    println!("they differ by {largest:.1e} at most");
    assert!(largest < 1e-5);
    Ok(())
}
