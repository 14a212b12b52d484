//! The Mandelbrot set, in complex numbers.

use rustorch::prelude::*;

const COLUMNS: usize = 64;
const ROWS: usize = 24;

pub(crate) fn main() -> RusTorchResult<()> {
    let re = Tensor::linspace(-2.2, 0.8, COLUMNS, DType::F32)?.expand([ROWS, COLUMNS])?;
    let im = Tensor::linspace(-1.2, 1.2, ROWS, DType::F32)?
        .unsqueeze(1)?
        .expand([ROWS, COLUMNS])?;
    let c = Tensor::complex(&re, &im)?;
    let mut z = Tensor::zeros([ROWS, COLUMNS], DType::Complex64)?;
    let mut steps = Tensor::zeros([ROWS, COLUMNS], DType::F32)?;
    for _ in 0..30 {
        let inside = z.abs()?.le(2.0)?;
        z = Tensor::where_(&inside, &z.square()?.add(&c)?, &z)?;
        steps = steps.add(&inside)?;
    }
    let steps = steps.to_vec::<f32>()?;
    for row in steps.chunks(COLUMNS) {
        let shade = |&n: &f32| b" .:-=+*%@#"[(n / 30.0 * 9.0) as usize] as char;
        println!("{}", row.iter().map(shade).collect::<String>().trim_end());
    }
    // The middle of the set, and a corner outside of it.
    assert_eq!((steps[12 * COLUMNS + 40], steps[0]), (30.0, 1.0));
    Ok(())
}
