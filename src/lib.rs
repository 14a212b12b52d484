//! Lazy tensors.
