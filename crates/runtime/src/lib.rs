//! Backends, planning, execution and failing over.
//!
//! ```text
//! Graph ─► plan: route each node ─► segments ─► Backend::compile ─► Program
//!                    ▲                                                 │ run
//!                    └──── failure class: memo, free, quarantine ◄─────┘
//! ```
//!
//! A [`Runtime`] owns the devices in their order of preference. It turns a
//! [`Graph`](rustorch_ir::Graph) into an [`Executable`], which is planned once, replayed
//! often, and planned anew when a device fails.

mod backend;
mod capability;
mod costs;
mod device;
mod error;
mod executor;
mod fuse;
mod journal;
mod lower;
mod memory;
mod planner;
mod policy;
mod profile;
mod runtime;
mod segment;
mod storage;
mod trace;
mod transfers;

pub use backend::{Backend, KernelEntry, KernelTable, Layouts, NoProbe, Probe, Program};
pub use capability::{DeviceCapability, OpType, Support, TensorInfo};
pub use costs::Costs;
pub use device::{Absent, DeviceInfo, Hardware};
pub use error::{DeviceError, FailureClass, RunError};
pub use executor::Executable;
pub use journal::{AccessCounters, FaultStatistics, Moved};
pub use lower::{Kernels, Lowered, Operand, Part, Place, Slot, Step, lower};
pub use memory::{DeviceBuffer, DeviceMemory, HOST_ALIGNMENT, HostBuffer, HostMemory};
pub use planner::Reason;
pub use policy::{DeviceSelector, GpuExecutionStrategy, Route, Routing};
pub use runtime::Runtime;
pub use rustorch_ir::{DeviceType, GpuDevice};
pub use storage::Storage;
pub use trace::{Explanation, Fallback};
pub use transfers::{MemoryManager, PoolUsage, RouteTraffic, TransferMethod};
