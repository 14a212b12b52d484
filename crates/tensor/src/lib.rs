//! Lazy tensors with PyTorch's names.
