//! Products of matrices, and layers made of them.

pub(crate) mod expert_linear;
pub(crate) mod fused_expert_linear;
pub(crate) mod fused_linear;
pub(crate) mod linear;
pub(crate) mod linear_recurrence;
pub(crate) mod lstm;
pub(crate) mod lstm_backward;
pub(crate) mod matmul;

pub use expert_linear::ExpertLinear;
pub use fused_expert_linear::{ExpertEpilogue, FusedExpertLinear};
pub use fused_linear::{Epilogue, FusedLinear, Prologue};
pub use linear::Linear;
pub use linear_recurrence::LinearRecurrence;
pub use lstm::Lstm;
pub use lstm_backward::LstmBackward;
pub use matmul::Matmul;
