//! Collectives of tensors: `torch.distributed`.
//!
//! | file | contents |
//! | --- | --- |
//! | `group.rs` | ranks that compute together, and the thread's current group |
//! | `collective.rs` | collectives as operations, with their gradients |
//! | `operations.rs` | methods of tensors, and the barrier |
//! | `topology.rs` | the machine's GPUs |
//! | `validator.rs` | results and speed of a group |

mod collective;
mod group;
mod operations;
mod topology;
mod validator;

pub use group::{CommunicationGroup, with_group};
pub use operations::{DistributedOperations, MultiGpuBarrier};
/// Groups, their options and errors.
pub use rustorch_comm as comm;
pub use rustorch_comm::ReduceOp;
pub use topology::GpuTopology;
pub use validator::{MultiGpuBenchmark, MultiGpuValidator};
