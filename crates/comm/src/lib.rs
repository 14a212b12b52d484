//! Collectives between ranks.
//!
//! A [`Group`] is a set of ranks that compute together, each of which has a handle on it. A [`Solo`] group has one
//! rank, and costs nothing. The ranks of a [`ThreadGroup`] are threads of one process. It can lose and delay
//! messages, and kill ranks, for tests. A [`TcpGroup`]'s ranks are processes. MPI starts
//! an `MpiGroup`'s ranks.
//!
//! Elements are combined in the order of ranks. So all ranks get the same bits, in every run.
//!
//! No call waits for ever. If ranks are missing, or make different calls, every rank gets the same error. It names
//! the call, the missing ranks and the cause.
//!
//! ```
//! use rustorch_comm::{Group, Options, ReduceOp, ThreadGroup};
//!
//! let groups = ThreadGroup::create(3, Options::default());
//! std::thread::scope(|scope| {
//!     for group in groups {
//!         scope.spawn(move || {
//!             let mut data = [group.rank() as f32, 1.0];
//!             group.all_reduce(data[..].as_mut().into(), ReduceOp::Sum).unwrap();
//!             assert_eq!(data, [3.0, 3.0]);
//!         });
//!     }
//! });
//! ```

mod buffer;
mod call;
mod collective;
mod dtype;
mod environment;
mod error;
mod group;
mod link;
mod mesh;
#[cfg(all(unix, feature = "mpi"))]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
mod options;
mod reduce;
mod store;
mod tcp;
mod thread;
mod wire;

pub use buffer::{Buffer, BufferMut};
pub use call::{Call, Tag};
pub use collective::Collective;
pub use dtype::{DType, Element};
pub use environment::{Identity, Meeting};
pub use error::{Cause, CommError, Failure};
pub use group::{Group, Solo};
#[cfg(all(unix, feature = "mpi"))]
pub use mpi::MpiGroup;
#[cfg(feature = "nccl")]
pub use nccl::{DeviceCall, Nccl, NcclGroup, Stream, Work};
pub use options::Options;
pub use reduce::ReduceOp;
pub use tcp::TcpGroup;
pub use thread::{Fault, ThreadGroup};
