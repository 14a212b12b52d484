//! An operation of one's own with its gradient: weights of -1 and 1 alone, which learn nevertheless
//! (["straight-through"](https://arxiv.org/abs/1308.3432)).

use rustorch::custom::{
    CompareOp, Composite, Cotangents, Differentiated, Graph, OpError, Results, UnaryOp, ValueId,
};
use rustorch::prelude::*;

/// The sign of `x`, with the gradient of `x` itself between -1 and 1.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Binarize;

impl Composite for Binarize {
    fn name(&self) -> &'static str {
        "binarize"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        Ok([g.unary(UnaryOp::Sign, inputs[0])?].into_iter().collect())
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, i| {
            let size = g.unary(UnaryOp::Abs, node.inputs[i])?;
            let dtype = g.ty(ct).dtype;
            let [zero, one] = [g.constant(0, dtype)?, g.constant(1, dtype)?];
            let is_within = g.compare(CompareOp::Le, size, one)?;
            g.select(is_within, ct, zero)
        })
    }
}

pub(crate) fn main() -> RusTorchResult<()> {
    let mut x = tensor![-3.0, -0.5, 0.25, 2.0];
    x.requires_grad_(true)?;
    let [y] = Tensor::custom(Binarize, &[&x])?;
    y.sum_all()?.backward()?;
    assert_eq!(y.to_vec::<f32>()?, [-1.0, -1.0, 1.0, 1.0]);
    let gradient = x.grad().expect("y follows from x");
    assert_eq!(gradient.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0]);

    // Which signs gave these numbers?
    let signs = tensor![[1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0]];
    manual_seed(0);
    let inputs = Tensor::randn([64, 8], DType::F32)?;
    let outputs = inputs.linear(&signs, None)?;
    let mut weight = Tensor::full([1, 8], 0.1, DType::F32)?;
    weight.requires_grad_(true)?;
    for step in 0..=40 {
        let [binary] = Tensor::custom(Binarize, &[&weight])?;
        let error = inputs.linear(&binary, None)?.sub(&outputs)?;
        let loss = error.square()?.mean_all()?;
        loss.backward()?;
        if step % 10 == 0 {
            println!("step {step}: loss {}", loss.item()?);
        }
        let gradient = weight.grad().expect("the loss follows from the weights");
        no_grad(|| weight -= &gradient * 0.02);
        weight.zero_grad();
    }
    let [learnt] = Tensor::custom(Binarize, &[&weight])?;
    assert_eq!(learnt.to_vec::<f32>()?, signs.to_vec::<f32>()?);
    Ok(())
}
