//! The tones in a signal, by a Fourier transform.

use std::f64::consts::TAU;

use rustorch::fft::{FftNorm, rfft};
use rustorch::prelude::*;

const RATE: usize = 1000;

pub(crate) fn main() -> RusTorchResult<()> {
    let time = Tensor::arange_with(0, RATE as i64, 1, DType::F32)?.div(RATE as f64)?;
    let tone = |hertz: f64, volume: f64| time.mul(TAU * hertz)?.sin()?.mul(volume);
    let signal = tone(50.0, 1.0)?.add(&tone(120.0, 0.5)?)?;
    let spectrum = rfft(&signal, None, -1, FftNorm::Backward)?.abs()?;
    let (_, loudest) = spectrum.topk(2, 0, true)?;
    let loudest = loudest.to_vec::<i64>()?;
    println!("tones of {loudest:?} Hz");
    assert_eq!(loudest, [50, 120]);
    Ok(())
}
