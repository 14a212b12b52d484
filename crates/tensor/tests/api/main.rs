//! The public interface, by the families of its source files.

mod amp;
mod autograd;
mod backward;
mod creation;
mod custom;
mod data;
mod devices;
mod display;
mod distributed;
mod dtypes;
mod eager;
mod edges;
mod elementwise;
mod evaluation;
mod extremes;
mod factors;
mod fft;
mod functional;
mod gpu;
mod habits;
mod history;
mod index;
mod layouts;
mod linalg;
mod masked;
mod messages;
mod mistakes;
mod nn;
mod odd;
mod programs;
mod random;
mod reading;
mod rearrange;
mod recipes;
mod reduce;
mod results;
mod search;
mod sharing;
mod sizes;
mod special;
mod statistics;
mod trace;
mod updates;
mod view_writes;
mod views;
mod vision;
mod warnings;

use rustorch_tensor::{Element, RusTorchError, RusTorchResult, Tensor};

type Outcome = RusTorchResult<()>;

/// An expression in PyTorch's language; our result, and the expected shape and elements.
type Row<'a, T> = (&'a str, Tensor, &'a [usize], &'a [T]);

/// Each tensor has the shape and the elements that it should.
#[track_caller]
fn assert_rows<T: Element>(rows: &[Row<T>]) {
    for (python, tensor, shape, elements) in rows {
        assert_eq!(tensor.shape(), *shape, "{python}");
        let got = tensor.to_vec::<T>();
        assert_eq!(got.as_deref(), Ok(*elements), "{python}");
    }
}

/// Each `f32` tensor has the shape and, nearly, the elements that it should.
#[track_caller]
fn assert_close_rows(rows: &[Row<f32>]) {
    for (python, tensor, shape, elements) in rows {
        assert_eq!(tensor.shape(), *shape, "{python}");
        let got = tensor.to_vec::<f32>().expect(python);
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6 * b.abs().max(1.0);
        let fits = got.iter().zip(*elements).all(close);
        assert!(fits, "{python}: expected {elements:?}, got {got:?}");
    }
}

/// The elements of an `f32` tensor are close to `expected`.
#[track_caller]
fn assert_close(x: &Tensor, expected: &[f32]) {
    let got = x.to_vec::<f32>().expect("a value");
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6 * b.abs().max(1.0);
    let fits = got.len() == expected.len() && got.iter().zip(expected).all(close);
    assert!(fits, "expected {expected:?}, got {got:?}");
}

/// The text of the error that this must be. One of arguments has to tell a line of these tests, which is left out.
#[track_caller]
fn error<T>(result: RusTorchResult<T>) -> String {
    let error = match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error,
    };
    let text = error.to_string();
    let RusTorchError::Op { call, .. } = error else {
        return text;
    };
    let location = call.expect("a call").location.expect("a line");
    assert!(location.file().contains("tests/api/"), "{text}");
    text.replacen(&format!(" at {location}"), "", 1)
}
