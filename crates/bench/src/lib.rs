//! Benchmarks of operations on every device, and of training. Operations are elementwise operations, products of
//! matrices, convolutions, pooling, and copies between the host and the device. There are also products that the f32
//! hybrid places.
//!
//! [`CASES`] is the one list of them. `rustorch-cli bench --ops` and `cargo bench --workspace --bench devices` measure
//! all; each is a function, too:
//!
//! ```
//! use rustorch_bench::{Bench, benchmark_gpu_matmul};
//! use rustorch_ir::DType;
//!
//! # fn main() -> rustorch_tensor::RusTorchResult<()> {
//! let device = rustorch_tensor::host(1).remove(0); // the processor; `backends(0)` has all devices
//! let measured = benchmark_gpu_matmul(&Bench::on(device), 64, DType::F32)?;
//! println!("{}: {:.1} GFLOP/s", measured.device, measured.flops_per_second() / 1e9);
//! # Ok(())
//! # }
//! ```
//!
//! [`RECIPES`] are trainings, of which `rustorch-cli bench --train` measures steps.

// `#[derive(Module)]` writes code that names this crate as users do.
extern crate rustorch_nn as rustorch;

mod case;
mod cases;
mod measure;
mod training;

pub use case::Case;
pub use cases::*;
pub use measure::{Bench, Measured, Prepared};
pub use training::{Gpt2, Launch, RECIPES, Recipe, Trained};
