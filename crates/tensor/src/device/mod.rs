//! The devices, the current one, and preferences.

pub(crate) mod activity;
pub(crate) mod devices;
pub(crate) mod manager;
pub(crate) mod preferences;
