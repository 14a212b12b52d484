//! The multithreaded CPU backend.

pub mod pool;
