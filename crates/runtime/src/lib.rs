//! Backends, planning, execution and failing over.
//!
//! ```text
//! Graph ─► planner: offer each node to devices ─► segments ─► Backend::compile ─► Program
//!                    ▲                                                           │ run
//!                    └────────── failure class: memo, free, quarantine ◄─────────┘
//! ```
//!
//! A [`Runtime`] owns the devices in the platform's order. It turns a [`Graph`](rustorch_ir::Graph)
//! into an [`Executable`], which is planned once, run often, and planned again when a device fails.
//!
//! Modules lie in layers; each uses the modules below it:
//!
//! | file | contents |
//! | --- | --- |
//! | `calibration.rs`, `measure.rs` | measured speeds in a file, and measuring them |
//! | `runtime.rs`, `outline.rs`, `plan_cache.rs`, `transfers.rs` | the interface: known graphs, transfers |
//! | `executor.rs` | running and failing over, loading |
//! | `trace.rs`, `profile.rs`, `effects.rs` | plans explained, launches timed, updates watched |
//! | `planner.rs`, `segment.rs` | the device of a node, passes, cutting |
//! | `typical.rs` | the operation that a family is judged by |
//! | `partition.rs` | expected times of a graph on each device, and in parts on several |
//! | `estimate.rs` | measured speeds of devices, and the places of operands |
//! | `devices.rs` | the devices, and what has been learnt about them |
//! | `background.rs` | programs that are compiled while others run |
//! | `policy.rs`, `placement.rs` | order of devices, placements and reasons |
//! | `costs`, `capability.rs` | measured times of a device, and its capabilities |
//! | `sources.rs` | storages that are kept to compute from again |
//! | `storage.rs`, `journal.rs`, `observer.rs` | a tensor's copies, the event log, observers |
//! | `lower.rs`, `fuse.rs`, `arena.rs`, `launch.rs` | from a segment to launches and their memory |
//! | `backend.rs`, `memory.rs`, `host_pool.rs` | the interface of a backend, memory, and its reuse |
//! | `system_memory.rs` | how much of it the host has |
//! | `device.rs`, `error.rs` | facts of a device, failure classes |
//! | `deadline.rs` | how long a device is waited for |

mod arena;
mod backend;
mod background;
mod calibration;
mod capability;
mod costs;
mod deadline;
mod device;
mod devices;
mod effects;
mod error;
mod estimate;
mod executor;
mod fuse;
mod host_pool;
mod journal;
mod launch;
mod lower;
mod measure;
mod memory;
mod moment;
mod observer;
mod outline;
mod partition;
mod placement;
mod plan_cache;
mod planner;
mod policy;
mod profile;
mod runtime;
mod segment;
mod sources;
mod storage;
mod system_memory;
mod trace;
mod transfers;
mod typical;

pub use backend::{
    Backend, Compilation, KernelEntry, KernelTable, Layouts, NoProbe, Probe, Program, Scratch,
    Watcher,
};
pub use calibration::{Calibration, CalibrationError, cache_folder};
pub use capability::{DeviceCapability, Support, TensorInfo};
pub use costs::{Bound, Costs, Curve, NoCurve, OpCost};
pub use deadline::{Deadline, DeadlineError};
pub use device::{Absent, DeviceInfo, Hardware, LARGEST_BUFFER};
pub use error::{Call, DeviceError, FailureClass, Fallback, RunError};
pub use executor::{Executable, Loaded, Preference, PreferredUnits, WorkingMemory};
pub use host_pool::{HostPool, HostPoolCounters};
pub use journal::{AccessCounters, FaultStatistics, Moved, PlanCounters};
pub use launch::{Lowered, Nodes, Operand, Part, Place, Reduction, Slot, Step};
pub use lower::{Kernels, lower, lowering_passes};
pub use memory::{
    Contents, DeviceBuffer, DeviceMemory, Fetch, HOST_ALIGNMENT, HostBuffer, HostMemory,
};
pub use moment::Moment;
pub use observer::{Event, HostWork, LaunchInfo, LaunchTime, LaunchTimes, Observer, Replay, Span};
pub use outline::Outline;
pub use placement::Reason;
pub use planner::Estimate;
pub use policy::{DeviceSelector, GpuExecutionStrategy, Route, Routing, Rules, supports_coreml};
pub use runtime::{Results, Runtime};
pub use rustorch_ir::{DeviceType, GpuDevice, OpType};
pub use sources::Source;
pub use storage::{Fetched, Storage, WeakStorage};
pub use system_memory::SystemMemory;
pub use trace::{Copied, Explanation, NodeNote};
pub use transfers::{MemoryManager, PoolUsage, RouteTraffic, TransferMethod};
