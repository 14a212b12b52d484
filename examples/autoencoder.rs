//! A variational autoencoder of points on a circle (Kingma and Welling 2013, arXiv:1312.6114): it
//! learns one number for each point, and draws new ones.

use std::f64::consts::TAU;

use rustorch::nn::{Forward, Linear, Module, Sequential, Tanh, sequential};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::prelude::*;

/// Numbers that a point is told in.
const LATENT: usize = 2;

#[derive(Module)]
struct Autoencoder {
    encoder: Sequential,
    decoder: Sequential,
}

impl Autoencoder {
    fn new() -> RusTorchResult<Self> {
        Ok(Self {
            encoder: sequential![Linear::new(2, 32)?, Tanh, Linear::new(32, 2 * LATENT)?],
            decoder: sequential![Linear::new(LATENT, 32)?, Tanh, Linear::new(32, 2)?],
        })
    }

    /// How badly points `[n, 2]` are told: the squared distance of what comes back, and how far the
    /// numbers are from a normal distribution's.
    fn loss(&self, points: &Tensor) -> RusTorchResult<Tensor> {
        let parts = self.encoder.forward(points)?.chunk(2, 1)?;
        let (mean, log_variance) = (&parts[0], &parts[1]);
        let noise = mean.randn_like()?;
        let drawn = mean.add(&log_variance.mul(0.5)?.exp()?.mul(&noise)?)?;
        let distance = self
            .decoder
            .forward(&drawn)?
            .sub(points)?
            .square()?
            .sum(1, false)?;
        let terms = mean
            .square()?
            .add(&log_variance.exp()?)?
            .sub(log_variance)?
            .sub(1.0)?;
        let divergence = terms.sum(1, false)?.mul(0.5)?;
        distance.mul(20.0)?.add(&divergence)?.mean(.., false)
    }
}

pub(crate) fn main() -> RusTorchResult<()> {
    manual_seed(11);
    let angles = Tensor::uniform(0.0, TAU, [256], DType::F32)?;
    let points = Tensor::stack(&[&angles.cos()?, &angles.sin()?], 1)?;
    let model = Autoencoder::new()?;
    let options = AdamWOptions::default().lr(0.01);
    let mut optimizer = AdamW::new(model.named_parameters(), options)?;
    for step in 0..300 {
        optimizer.zero_grad();
        let loss = model.loss(&points)?;
        loss.backward()?;
        optimizer.step()?;
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", loss.item()?);
        }
    }
    let drawn = no_grad(|| {
        model
            .decoder
            .forward(&Tensor::randn([200, LATENT], DType::F32)?)
    })?;
    let radius = drawn.square()?.sum(1, false)?.sqrt()?;
    let far = radius.sub(1.0)?.abs()?.mean(.., false)?.item()?;
    println!("new points are {far:.3} from the circle");
    assert!(far < 0.25);
    Ok(())
}
