//! Metal as a driver of the GPU layer.
//!
//! All that needs a Mac is behind [`Api`]; the rest runs, and is tested, anywhere.

mod api;

pub use api::{Api, Binding, CommandError, Dispatch, Properties};
