//! From a graph to segments of one device each.
//!
//! | file | contents |
//! | --- | --- |
//! | `planner.rs`, `segment.rs` | the device of a node, passes, cutting |
//! | `partition.rs` | expected times of a graph on each device, and in parts on several |
//! | `estimate.rs` | measured speeds of devices, and the places of operands |
//! | `typical.rs` | the operation that a family is judged by |
//! | `outline.rs`, `plan_cache.rs` | known graphs |

pub(crate) mod estimate;
pub(crate) mod outline;
pub(crate) mod partition;
pub(crate) mod plan_cache;
pub(crate) mod planner;
pub(crate) mod segment;
pub(crate) mod typical;
