//! Operations, their types, and graphs of them.
//!
//! An [`Op`] is closed plain data: it can be hashed, compared, printed and split. The parts that
//! differ from op to op live in the op's own file under [`ops`]. They are reached through one
//! table, [`OpDef`]. Everything else ([`Graph`], planner, backends) treats nodes uniformly. Users
//! define [`Composite`](ops::Composite)s.

pub mod autodiff;
mod build;
pub mod case;
pub mod check;
mod device;
mod dtype;
mod error;
mod float8;
mod graph;
mod hash;
mod layout;
mod op;
pub mod ops;
pub mod order;
pub mod passes;
mod scalar;
mod shape;
pub mod special;

pub use device::{DeviceType, GpuDevice, UnknownDevice};
pub use dtype::{BlockFormat, DType};
pub use error::OpError;
pub use float8::{F8E4M3, F8E5M2};
pub use graph::{Graph, Node, ValueId};
pub use hash::FoldingHasher;
pub use layout::Layout;
pub use op::{
    FLOAT8_ADVICE, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, Role, Signature,
    TensorType,
};
pub use rustorch_errors::ErrorKind;
pub use scalar::{Param, Scalar, to_odd};
pub use shape::{Shape, broadcast_shapes, normalize_dim};
