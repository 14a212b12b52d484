//! Products of matrices, and layers made of them.

pub(crate) mod expert_linear;
pub(crate) mod fused_expert_linear;
pub(crate) mod fused_linear;
pub(crate) mod linear;
pub(crate) mod lstm;
pub(crate) mod lstm_backward;
pub(crate) mod matmul;

use super::*;
