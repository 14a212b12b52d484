//! Backends, planning, execution and failing over.
//!
//! ```text
//! Graph ─► planner: offer each node to devices ─► segments ─► Backend::compile ─► Program
//!                    ▲                                                           │ run
//!                    └────────── failure class: memo, free, quarantine ◄─────────┘
//! ```
//!
//! A [`Runtime`] owns the devices in the platform's order. It turns a
//! [`Graph`](rustorch_ir::Graph) into an [`Executable`], which is planned once, replayed
//! often, and planned anew when a device fails.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `runtime.rs`, `plan_cache.rs` | devices, known graphs |
//! | `executor.rs`, `executor` | running and failing over, loading |
//! | `policy.rs`, `f32_hybrid.rs` | whom to ask first |
//! | `planner.rs`, `segment.rs`, `placement.rs` | who gets a node, cutting, where and why |
//! | `effects.rs` | updates that must not run twice |
//! | `capability.rs`, `costs` | what devices say and are measured to do |
//! | `calibration.rs` | measured costs in a file, for this machine |
//! | `storage.rs`, `memory.rs`, `host_pool.rs` | a tensor's copies, memory itself, reused |
//! | `transfers.rs` | what moves |
//! | `journal.rs`, `trace.rs`, `profile.rs` | what happened, explained and timed |
//! | `backend.rs`, `device.rs`, `error.rs` | what a backend offers, device facts, failure classes |
//! | `lower.rs`, `fuse.rs`, `arena.rs` | from a segment to launches and their memory |

mod arena;
mod backend;
mod calibration;
mod capability;
mod costs;
mod device;
mod effects;
mod error;
mod executor;
mod f32_hybrid;
mod fuse;
mod host_pool;
mod journal;
mod lower;
mod memory;
mod placement;
mod plan_cache;
mod planner;
mod policy;
mod profile;
mod runtime;
mod segment;
mod storage;
mod trace;
mod transfers;

pub use backend::{Backend, KernelEntry, KernelTable, Layouts, NoProbe, Probe, Program, Scratch};
pub use calibration::{Calibration, CalibrationError, cache_folder};
pub use capability::{DeviceCapability, Support, TensorInfo};
pub use costs::{Bound, Costs, Curve, NoCurve, OpCost};
pub use device::{Absent, DeviceInfo, Hardware, LARGEST_BUFFER};
pub use error::{DeviceError, FailureClass, Fallback, RunError};
pub use executor::{Executable, Loaded, Preference};
pub use host_pool::{HostPool, HostPoolCounters};
pub use journal::{AccessCounters, FaultStatistics, Moved};
pub use lower::{Kernels, Lowered, Operand, Part, Place, Slot, Step, lower};
pub use memory::{DeviceBuffer, DeviceMemory, Fetch, HOST_ALIGNMENT, HostBuffer, HostMemory};
pub use placement::Reason;
pub use plan_cache::PlanCounters;
pub use policy::{DeviceSelector, GpuExecutionStrategy, Route, Routing, Rules};
pub use runtime::Runtime;
pub use rustorch_ir::{DeviceType, GpuDevice, OpType};
pub use storage::{Fetched, Storage, WeakStorage};
pub use trace::Explanation;
pub use transfers::{MemoryManager, PoolUsage, RouteTraffic, TransferMethod};
