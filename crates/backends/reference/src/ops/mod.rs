//! One file for each operation, of the operation's name: `evaluate` is its definition.

pub(crate) mod arange;
mod convolution;
mod elementwise;
pub(crate) mod fft;
pub(crate) mod full;
pub(crate) mod host;
mod linalg;
pub(crate) mod matmul;
mod movement;
pub(crate) mod random;
mod reduction;

pub(crate) use convolution::*;
pub(crate) use elementwise::*;
pub(crate) use linalg::*;
pub(crate) use movement::*;
pub(crate) use reduction::*;
