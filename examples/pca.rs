//! The directions along which points vary most, by a singular value decomposition.

use rustorch::linalg::svd;
use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    manual_seed(3);
    // Long along (3, 4) / 5, thin across it.
    let long = Tensor::randn([500, 1], DType::F64)?.mul(5.0)?;
    let thin = Tensor::randn([500, 1], DType::F64)?.mul(0.5)?;
    let axes = Tensor::from_slice(&[0.6, 0.8, -0.8, 0.6], [2, 2])?.to_dtype(DType::F64)?;
    let points = Tensor::cat(&[&long, &thin], 1)?.matmul(&axes)?;
    let centred = points.sub(&points.mean(0, true)?)?;
    let (_, spread, directions) = svd(&centred, false)?;
    let deviations = spread.div(500f64.sqrt())?.to_vec::<f64>()?;
    println!("{directions}");
    println!("deviations {deviations:.2?}");
    let first = directions.select(0, 0)?.abs()?.to_vec::<f64>()?;
    assert!((first[0] - 0.6).abs() < 0.05 && (first[1] - 0.8).abs() < 0.05);
    Ok(())
}
