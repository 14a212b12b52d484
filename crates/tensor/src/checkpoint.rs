//! Gradients for less memory: `torch.utils.checkpoint`.

use rustorch_macros::track_calls;

use crate::autograd::Track;
use crate::error::RusTorchResult;
use crate::precision::{lower, with_lower};
use crate::random::{default_generator, fork_rng};
use crate::{Tensor, call, is_grad_enabled};

/// What `f` gives for `inputs`, of which no value between is kept for gradients: a backward pass calls `f`
/// again, and goes back through what it records then. Random numbers are the same both times.
///
/// `f` may read tensors other than `inputs`, parameters above all, which get their gradients as well.
///
/// ```
/// use rustorch_tensor::{checkpoint, tensor};
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let mut x = tensor![1.0, 2.0];
/// x.requires_grad_(true)?;
/// let y = checkpoint(|inputs| inputs[0].exp()?.square(), &[&x])?;
/// y.sum_all()?.backward()?;
/// assert!(x.grad().is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `f`, also in the backward pass.
#[track_calls]
pub fn checkpoint(
    f: impl Fn(&[&Tensor]) -> RusTorchResult<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> RusTorchResult<Tensor> {
    let (state, lower) = (default_generator().state(), lower());
    let mut result = call::user(|| f(inputs))?;
    if !result.requires_grad() || !is_grad_enabled() {
        return Ok(result);
    }
    let operands: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    let again = move || {
        fork_rng(|| {
            default_generator().set_state(state);
            with_lower(lower, || {
                call::user(|| f(&operands.iter().collect::<Vec<_>>()))
            })
        })
    };
    let track = Track::again(inputs, &result, again);
    result.set_track(Some(track));
    Ok(result)
}
