//! Two matrices multiplied on the best device there is.

use rustorch::GpuLinearAlgebra;
use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    let x = Tensor::randn([256, 256], DType::F32)?;
    let y = x.gpu_matmul(&x)?.mean(None, false)?;
    println!("the mean is {:+.4}", y.item()?);
    for (device, segments) in runtime().used_devices() {
        println!("{device} ran {segments}");
    }
    Ok(())
}
