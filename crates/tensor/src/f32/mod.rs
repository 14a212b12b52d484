//! The f32 hybrid: one element type on all devices, so that operations can be spread over them
//! without a conversion.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `tensor.rs`, `ops.rs` | [`F32Tensor`], whose elements are `f32` by its type |
//! | `state.rs` | [`DeviceState`]: where its elements are |
//! | `buffer.rs` | [`F32UnifiedBuffer`]: memory that devices share, and who may read it |
//! | `executor.rs` | [`F32HybridExecutor`]: the rules, and reports of what ran where |

mod buffer;
mod executor;
mod ops;
mod state;
mod tensor;

pub use buffer::{F32Transfer, F32UnifiedBuffer};
pub use executor::{F32HybridExecutor, F32Report};
pub use ops::F32Operand;
pub use state::DeviceState;
pub use tensor::F32Tensor;
