//! π by throwing darts, the same ones on every device.

use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    manual_seed(42);
    let darts = Tensor::rand([1_000_000, 2], DType::F32)?;
    let hits = darts.square()?.sum(1, false)?.lt(1.0)?;
    let pi = hits.to_dtype(DType::F32)?.mean(None, false)?.item()? * 4.0;
    println!("π is about {pi:.4}");
    assert!((pi - std::f64::consts::PI).abs() < 0.01);
    Ok(())
}
