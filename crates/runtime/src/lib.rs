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
//! | file or folder | contents |
//! | --- | --- |
//! | `measure/` | devices measured, and their speeds in a file |
//! | `runtime.rs`, `transfers.rs` | the interface; transfers |
//! | `exec/` | compiling, running, failing over, loading; plans explained, launches timed |
//! | `plan/` | known graphs, the device of a node, passes, segments |
//! | `devices/` | devices and knowledge about them: order, placements with reasons, measured times, programs in the making |
//! | `lower/` | from a segment to launches and their memory |
//! | `memory/` | a tensor's copies, and the memory that they lie in |
//! | `backend.rs`, `launch.rs` | the interface of a backend, and its launches |
//! | `journal.rs`, `observer.rs` | the event log, observers |
//! | `device.rs`, `error.rs`, `deadline.rs` | facts of a device, failure classes, how long a device is waited for |
//! | `platform.rs` | the system's clock, threads, environment and files |

mod backend;
mod deadline;
mod device;
mod devices;
mod error;
mod exec;
mod journal;
mod launch;
mod lower;
mod measure;
mod memory;
mod observer;
mod plan;
pub mod platform;
mod runtime;
mod transfers;

pub use backend::{
    Backend, Compilation, KernelEntry, KernelTable, Layouts, NoProbe, Probe, Program, Scratch,
    Watcher,
};
pub use deadline::Deadline;
pub use device::{Absent, DeviceInfo, Hardware, LARGEST_BUFFER};
pub use devices::capability::{DeviceCapability, Support, TensorInfo};
pub use devices::costs::{Bound, Costs, Curve, NoCurve, OpCost};
pub use devices::placement::Reason;
pub use devices::policy::{
    DeviceSelector, GpuExecutionStrategy, Route, Routing, Rules, supports_coreml,
};
pub use error::{Call, DeviceError, FailureClass, Fallback, RunError};
pub use exec::explain::{Copied, Explanation, NodeNote};
pub use exec::{Executable, Loaded, Preference, PreferredUnits, WorkingMemory};
pub use journal::{AccessCounters, FaultStatistics, Moved, PlanCounters};
pub use launch::{Lowered, Nodes, Part, PartOperand, Place, Reduction, Slot, Step};
pub use lower::{Kernels, lower, lowering_passes};
pub use measure::calibration::Calibration;
pub use memory::buffer::{
    Contents, DeviceBuffer, DeviceMemory, Fetch, HOST_ALIGNMENT, HostBuffer, HostMemory,
};
pub use memory::host_pool::{HostPool, HostPoolCounters};
pub use memory::moment::Moment;
pub use memory::sources::Source;
pub use memory::storage::{Fetched, Storage, WeakStorage};
pub use observer::{Event, HostWork, LaunchInfo, LaunchTime, LaunchTimes, Observer, Replay, Span};
pub use plan::outline::Outline;
pub use plan::planner::Estimate;
pub use platform::{SystemMemory, cache_folder};
pub use runtime::{Results, Runtime};
pub use rustorch_ir::{DeviceType, GpuDevice, OpType};
pub use transfers::{MemoryManager, PoolUsage, RouteTraffic, TransferMethod};
