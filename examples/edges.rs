//! The edges of an image, by Sobel's filters as a convolution.

use rustorch::nn::ConvOptions;
use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    // A disc of radius 8 in a square of 24 × 24, as one image of one channel.
    let side = Tensor::arange_with(0, 24, 1, DType::F32)?
        .sub(11.5)?
        .square()?;
    let distance = side.unsqueeze(1)?.add(&side)?.sqrt()?;
    let image = distance
        .lt(8.0)?
        .to_dtype(DType::F32)?
        .reshape([1, 1, 24, 24])?;
    let across = tensor![[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]];
    let filters = Tensor::stack(&[&across, &across.t()?], 0)?.unsqueeze(1)?;
    let slopes = image.conv2d(&filters, None, &ConvOptions::default())?;
    let edges = slopes.square()?.sum(1, false)?.sqrt()?.gt(1.0)?;
    let rows = edges.to_vec::<bool>()?;
    for row in rows.chunks(22) {
        let line: String = row
            .iter()
            .map(|&edge| if edge { "##" } else { "  " })
            .collect();
        println!("{}", line.trim_end());
    }
    assert!(rows[11 * 22 + 3] && !rows[11 * 22 + 11]);
    Ok(())
}
