//! A line through noisy points: by gradient descent, and by least squares.

use rustorch::linalg::lstsq;
use rustorch::nn::{Forward, Linear, MSELoss, Module};
use rustorch::optim::{SGD, SGDOptions};
use rustorch::prelude::*;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    manual_seed(1);
    let x = Tensor::linspace(-1, 1, 200, DType::F32)?.unsqueeze(1)?;
    let noise = Tensor::randn([200, 1], DType::F32)?;
    let y = x.mul(2.0)?.add(1.0)?.add(&noise.mul(0.1)?)?;

    let line = Linear::new(1, 1)?;
    let mut optimizer = SGD::new(line.named_parameters(), SGDOptions::default().lr(0.2))?;
    for _ in 0..100 {
        optimizer.zero_grad();
        let loss = MSELoss::default().forward(&line.forward(&x)?, &y)?;
        loss.backward()?;
        optimizer.step()?;
    }
    let bias = line.bias.as_ref().ok_or("a line without a bias")?;
    let (slope, intercept) = (line.weight.item()?, bias.item()?);
    println!("by gradients: y = {slope:.3} x + {intercept:.3}");

    // [200, 2]: the points, and ones for the intercept.
    let design = Tensor::cat(&[&x, &x.ones_like()?], 1)?;
    let exact = lstsq(&design, &y)?.solution.to_vec::<f32>()?;
    println!("by squares:   y = {:.3} x + {:.3}", exact[0], exact[1]);
    assert!((slope - f64::from(exact[0])).abs() < 1e-3);
    assert!((intercept - f64::from(exact[1])).abs() < 1e-3);
    Ok(())
}
