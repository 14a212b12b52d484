//! Fourier transforms.

table! {}
