//! The public interface, by the families of its source files.

mod creation;
mod data;
mod devices;
mod display;
mod elementwise;
mod evaluation;
mod extremes;
mod factors;
mod fft;
mod history;
mod index;
mod linalg;
mod nn;
mod recipes;
mod reduce;
mod results;
mod special;
mod trace;
mod updates;
mod views;

use rustorch_tensor::{RusTorchResult, Tensor};

type Outcome = RusTorchResult<()>;

/// The elements of an `f32` tensor are close to `expected`.
#[track_caller]
fn assert_close(x: &Tensor, expected: &[f32]) {
    let got = x.to_vec::<f32>().expect("a value");
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6 * b.abs().max(1.0);
    let fits = got.len() == expected.len() && got.iter().zip(expected).all(close);
    assert!(fits, "expected {expected:?}, got {got:?}");
}

/// The text of the error that this must be.
#[track_caller]
fn error<T>(result: RusTorchResult<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(e) => e.to_string(),
    }
}
