//! Values that are computed later: what was recorded, and computing it.

pub(crate) mod capture;
pub(crate) mod eager;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod leaves;
pub(crate) mod recipe;
pub(crate) mod recording;
pub(crate) mod recovery;
pub(crate) mod spares;
pub(crate) mod trace;
pub(crate) mod tree;
pub(crate) mod value;
