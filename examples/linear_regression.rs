//! A line through noisy points, by least squares.

use rustorch::linalg::lstsq;
use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    manual_seed(1);
    let x = Tensor::linspace(0, 10, 200, DType::F64)?;
    let noise = Tensor::randn([200], DType::F64)?;
    let y = x.mul(2.0)?.add(1.0)?.add(&noise.mul(0.1)?)?;
    // [200, 2]: the points, and ones for the intercept.
    let design = Tensor::stack(&[&x, &Tensor::ones([200], DType::F64)?], 1)?;
    let line = lstsq(&design, &y.unsqueeze(1)?)?.solution.to_vec::<f64>()?;
    println!("y = {:.3} x + {:.3}", line[0], line[1]);
    assert!((line[0] - 2.0).abs() < 0.05 && (line[1] - 1.0).abs() < 0.1);
    Ok(())
}
