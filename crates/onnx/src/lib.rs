//! ONNX files: [`Model::load`] reads one, [`Model::run`] runs it on the current device.
//!
//! ```no_run
//! use rustorch_onnx::Model;
//! use rustorch_tensor::Tensor;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::load("model.onnx")?;
//! for input in model.inputs() {
//!     println!("{input}"); // x: f32[batch, 3, 224, 224]
//! }
//! let image = Tensor::zeros([1, 3, 224, 224], rustorch_ir::DType::F32)?;
//! for (name, value) in model.run([("x", image)])? {
//!     println!("{name}: {value}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A file is never trusted. Reading it gives a model or one [`OnnxError`]. The error says what is wrong, where, and
//! what to do. Tensors stay in the mapped file until a node reads them. `docs/onnx.md` lists the supported parts.

// The code that `track_calls` writes looks for it here.
use rustorch_tensor::call;

mod control;
mod data;
mod error;
mod external;
mod graph;
mod info;
mod model;
mod narrow;
mod operators;
mod proto;

pub use error::{OnnxError, OnnxResult};
pub use info::{Dim, Info, Kind};
pub use model::{Model, operators};
pub use rustorch_dispatch::Value;
