//! Memory of the host and of devices, and the tensors that lie in it.
//!
//! | file | contents |
//! | --- | --- |
//! | `storage.rs`, `copies.rs` | a tensor's bytes, and their copies on the host and on devices |
//! | `sources.rs` | storages that are kept to compute from again |
//! | `buffer.rs`, `host_pool.rs` | the interface of a backend's memory, and its reuse |
//! | `moment.rs` | the order of writes |

pub(crate) mod buffer;
pub(crate) mod copies;
pub(crate) mod host_pool;
pub(crate) mod moment;
pub(crate) mod sources;
pub(crate) mod storage;
