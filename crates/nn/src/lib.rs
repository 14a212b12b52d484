//! Modules and optimisers with PyTorch's names, defaults and numbers.
//!
//! | module | contents |
//! | --- | --- |
//! | [`nn`] | layers, losses, initialisers: `torch.nn` |
//! | [`optim`] | optimisers, schedules, averages of weights: `torch.optim` |
//! | [`amp`] | loss scaling: `torch.amp.GradScaler` |
//! | [`train`] | training steps that are recorded once and run often |
//!
//! ```
//! # extern crate rustorch_nn as rustorch;
//! use rustorch::nn::{self, Forward, Linear, Module, ReLU};
//! use rustorch_tensor::{RusTorchResult, Tensor, tensor};
//!
//! #[derive(Module)]
//! struct Net {
//!     hidden: Linear,
//!     output: Linear,
//! }
//!
//! impl Forward for Net {
//!     fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
//!         self.output.forward(&self.hidden.forward(x)?.relu()?)
//!     }
//! }
//!
//! # fn main() -> RusTorchResult<()> {
//! let net = Net { hidden: Linear::new(2, 8)?, output: Linear::new(8, 1)? };
//! assert_eq!(net.forward(&tensor![[1.0, 2.0]])?.shape(), [1, 1]);
//! let names: Vec<String> = net.state_dict().names().map(str::to_owned).collect();
//! assert_eq!(names, ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]);
//! // The same without a type of its own; its names are 0.weight, 0.bias, 2.weight, 2.bias.
//! let net = nn::sequential![Linear::new(2, 8)?, ReLU, Linear::new(8, 1)?];
//! assert_eq!(net.parameters().len(), 4);
//! # Ok(())
//! # }
//! ```

// `#[derive(Module)]` writes code that names this crate as users do.
extern crate self as rustorch;

// The code that `track_calls` writes looks for it here.
use rustorch_tensor::call;

pub mod amp;
mod error;
pub mod nn;
pub mod optim;
pub mod train;
