//! PyTorch's functions by name, with arguments whose types are known when a program runs.
//!
//! A program in Rust calls methods of [`Tensor`](rustorch_tensor::Tensor). An interpreter or a
//! reader of graphs has a function's name and a list of [`Value`]s. [`function`] finds the [`Function`] of a name,
//! and [`Function::call`] calls it. [`functions`] lists all of them, with PyTorch's signatures.
//!
//! ```
//! use rustorch_dispatch::{Value, function};
//! use rustorch_tensor::Tensor;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
//! let sum = function("torch.sum")?;
//! let y = sum.call(vec![x.into()], vec![("dim".to_owned(), Value::Int(1))])?;
//! assert_eq!(y.into_tensor().unwrap().to_vec::<f32>()?, [3.0, 7.0]);
//!
//! let error = function("torch.summ").err().unwrap().to_string();
//! assert!(error.starts_with("there is no function \"summ\"; similar names are sum, "));
//! # Ok(())
//! # }
//! ```
//!
//! Others make their own tables with the macro [`table!`], as the crate for ONNX does.

mod call;
#[macro_use]
mod function;
mod ops;
mod value;

pub use call::{Call, CallError, Called, missing, untyped};
pub use function::Function;
pub use ops::{find, function, functions};
pub use value::{Output, Value};

/// Options of neural networks' functions, read off the arguments of a call.
pub mod options {
    pub use crate::ops::options::*;
}
