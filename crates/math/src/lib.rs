//! Fourier transforms and factorisations of matrices on the CPU, each a feature of its name.

#[cfg(feature = "fft")]
pub mod fft;
#[cfg(feature = "linalg")]
pub mod linalg;
