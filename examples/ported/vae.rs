//! A variational autoencoder of black and white images (Kingma and Welling 2013, arXiv:1312.6114).

use rustorch::nn::{Forward, Linear, Module, Reduction};
use rustorch::optim::{Adam, AdamOptions};
use rustorch::prelude::*;

use super::Setting;
use super::numbers::{initialised, numbers};

#[derive(Module)]
struct Vae {
    encode: Linear,
    mean: Linear,
    logvar: Linear,
    decode: Linear,
    pixels: Linear,
}

impl Vae {
    fn forward(&self, x: &Tensor, noise: &Tensor) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
        let h = self.encode.forward(x)?.relu()?;
        let (mean, logvar) = (self.mean.forward(&h)?, self.logvar.forward(&h)?);
        let z = (&mean + (0.5 * &logvar)?.exp()? * noise)?;
        let scores = self.pixels.forward(&self.decode.forward(&z)?.relu()?)?;
        Ok((scores, mean, logvar))
    }
}

pub(crate) fn losses(
    Setting {
        scale,
        steps,
        dtype,
    }: Setting,
) -> RusTorchResult<Vec<f64>> {
    let (pixels, width, latent, batch) = (64, 32 * scale, 8, 16 * scale);
    let model = Vae {
        encode: Linear::new(pixels, width)?,
        mean: Linear::new(width, latent)?,
        logvar: Linear::new(width, latent)?,
        decode: Linear::new(latent, width)?,
        pixels: Linear::new(width, pixels)?,
    };
    let model = initialised(model, dtype)?;
    let mut opt = Adam::new(model.named_parameters(), AdamOptions::default().lr(1e-3))?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let x = numbers(&format!("pixels {step}"), &[batch, pixels], dtype)?.gt(0.0)?;
        let x = x.to_dtype(dtype)?;
        let noise = numbers(&format!("noise {step}"), &[batch, latent], dtype)?;
        let (scores, mean, logvar) = model.forward(&x, &noise)?;
        let likeness = scores.binary_cross_entropy_with_logits(&x, None, None, Reduction::Sum)?;
        let terms = (1.0 + &logvar)?.sub(&mean.pow(2)?)?.sub(&logvar.exp()?)?;
        let divergence = (-0.5 * &terms.sum_all()?)?;
        let loss = (&likeness + &divergence)?.div(batch as f64)?;
        opt.zero_grad();
        loss.backward()?;
        opt.step()?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}
