//! Gradients of tensors' computations: `torch.autograd`.
//!
//! A value drops its history when it is computed. A *tracked* handle keeps it beside the value,
//! until a backward pass has used it or the handle is dropped. Operations do not depend on this, so
//! graphs are the same with and without gradients. A backward pass records the gradients as
//! operations on tensors like any others, as [`Op::vjp`](rustorch_ir::Op::vjp) defines them. They
//! are computed on demand, together with unread parts of the loss, and a [`Trace`](crate::Trace)
//! includes them.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `track.rs` | what a tracked handle keeps |
//! | `base.rs` | what handles on a tensor and on views of it share, where those are written over |
//! | `backward.rs` | the way back through a history |
//! | `gradients.rs` | `backward`, `grad`, hooks |
//! | `functional.rs` | derivatives of functions: `vjp`, `jvp`, Jacobians |

mod backward;
mod base;
mod functional;
mod gradients;
mod track;

use rustorch_ir::DType;
use std::cell::Cell;

use crate::Tensor;
use crate::thread_state::restoring;
pub(crate) use base::{Base, Writes};
pub use functional::{gradcheck, hessian, jacobian, jvp, vjp};
pub use gradients::{GradOptions, HookHandle, grad, grad_with};
pub use track::Recorded;
pub(crate) use track::{Track, Tracks};

thread_local! {
    static IS_ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Does this thread record operations for gradients?
pub fn is_grad_enabled() -> bool {
    IS_ENABLED.get()
}

/// Calls `f` without recording for gradients on this thread: results require none.
#[doc(alias = "inference_mode")]
#[doc(alias = "set_grad_enabled")]
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_grad_enabled(false, f)
}

/// Calls `f` with recording for gradients on this thread, also inside [`no_grad`].
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    with_grad_enabled(true, f)
}

fn with_grad_enabled<R>(is_enabled: bool, f: impl FnOnce() -> R) -> R {
    let before = IS_ENABLED.replace(is_enabled);
    restoring(before, |before| IS_ENABLED.set(before), f)
}

/// The tracks of operands, if a gradient is wanted of one of them, and so of a result of `dtype`.
pub(crate) fn tracks(inputs: &[&Tensor], dtype: DType) -> Option<Tracks> {
    let is_tracked = inputs.iter().any(|input| input.is_tracked());
    if !is_tracked || !dtype.has_gradient() || !is_grad_enabled() {
        return None;
    }
    Some(inputs.iter().map(|input| input.track()).collect())
}
