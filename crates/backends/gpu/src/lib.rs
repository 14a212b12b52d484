//! What the GPU backends share.

mod driver;

pub use driver::{Dialect, Driver, Launch, Limits};
