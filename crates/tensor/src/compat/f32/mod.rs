//! The f32 hybrid: one element type on all devices, so that operations can be spread over them
//! without a conversion.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `tensor.rs`, `ops.rs` | [`F32Tensor`], whose elements are `f32` by its type |
//! | `state.rs` | [`DeviceState`]: where its elements are |
//! | `buffer.rs` | [`F32UnifiedBuffer`]: memory that devices share |
//! | `pool.rs`, `sync.rs` | its parts: where the memory comes from, and who may read it |
//! | `executor.rs` | [`F32HybridExecutor`]: the rules, and reports of what ran where |
//! | `selector.rs` | the rules, asked about an operation |

mod buffer;
mod executor;
mod ops;
mod pool;
mod selector;
mod state;
mod sync;
mod tensor;

pub use buffer::F32UnifiedBuffer;
pub use executor::{F32HybridExecutor, F32Report};
pub use ops::F32Operand;
pub use pool::F32MemoryPool;
pub use selector::{F32DeviceSelector, F32Operation};
pub use state::DeviceState;
pub use sync::{F32SyncManager, F32Transfer};
pub use tensor::F32Tensor;
