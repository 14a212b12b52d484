//! Gradients with less memory: `torch.utils.checkpoint`.

use std::sync::Arc;

use rustorch_macros::track_calls;
use rustorch_runtime::Moment;

use crate::api::random::{default_generator, fork_rng};
use crate::autograd::Track;
use crate::error::RusTorchResult;
use crate::precision::{lower, with_lower};
use crate::{Tensor, call, is_grad_enabled};

/// The result of `f` for `inputs`, without intermediate values for gradients. A backward pass calls `f` again,
/// and goes back through the operations that it records then. Random numbers are the same both times.
///
/// `f` may also read other tensors, such as parameters. They get their gradients, too.
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
/// The errors of `f`, also in the backward pass.
#[track_calls]
pub fn checkpoint(
    f: impl Fn(&[&Tensor]) -> RusTorchResult<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> RusTorchResult<Tensor> {
    let f = Arc::new(f);
    let again = same_again(f.clone(), inputs);
    let mut result = call::user(|| f(inputs))?;
    if is_differentiated(&result) {
        result.set_track(Some(Track::again(inputs, &result, again)));
    }
    Ok(result)
}

/// Applies `functions` to `input`, one after the other. A backward pass keeps about `budget` bytes
/// of intermediate values. The last functions keep theirs, as many as fit, and those before are
/// [checkpoints](checkpoint). The first ones are recomputed one by one, after the last ones are
/// done. The results of the functions are always kept; a budget of 0 makes every function a
/// checkpoint.
///
/// The bytes count all values that gradients are recorded for. A backward pass that is computed
/// together with the loss often keeps fewer.
///
/// ```
/// use rustorch_tensor::{RusTorchResult, Tensor, checkpoint_budget, tensor};
///
/// # fn main() -> RusTorchResult<()> {
/// let mut x = tensor![1.0, 2.0];
/// x.requires_grad_(true)?;
/// let layers = [|x: &Tensor| x.exp()?.tanh(), |x: &Tensor| x.square()?.sin()];
/// let y = checkpoint_budget(layers, &x, 64 << 20)?;
/// y.sum_all()?.backward()?;
/// assert!(x.grad().is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The errors of the functions, also in the backward pass.
#[track_calls]
pub fn checkpoint_budget<F>(
    functions: impl IntoIterator<Item = F>,
    input: &Tensor,
    budget: usize,
) -> RusTorchResult<Tensor>
where
    F: Fn(&Tensor) -> RusTorchResult<Tensor> + Send + Sync + 'static,
{
    let mut x = input.clone();
    let mut recorded = Vec::new();
    for f in functions {
        let f = Arc::new(move |inputs: &[&Tensor]| f(inputs[0]));
        let again = same_again(f.clone(), &[&x]);
        let begun = Moment::next();
        let mut y = call::user(|| f(&[&x]))?;
        if is_differentiated(&y) {
            let bytes = y.track().map_or(0, |track| track.bytes_since(begun));
            let kept = y.clone();
            let track = Track::again(&[&x], &y, move || Ok(kept.clone()));
            y.set_track(Some(track.clone()));
            recorded.push((track, bytes, again));
        }
        x = y;
    }
    let mut left = Some(budget);
    for (track, bytes, again) in recorded.into_iter().rev() {
        left = left.and_then(|left| left.checked_sub(bytes));
        if left.is_none() {
            track.call_again(again);
        }
    }
    Ok(x)
}

/// Is a backward pass going to ask how it was computed?
fn is_differentiated(result: &Tensor) -> bool {
    result.requires_grad() && is_grad_enabled()
}

/// Calls `f` as if it were called now: with the same random numbers, in the same precision.
fn same_again<F>(
    f: Arc<F>,
    inputs: &[&Tensor],
) -> impl Fn() -> RusTorchResult<Tensor> + Send + Sync + use<F>
where
    F: Fn(&[&Tensor]) -> RusTorchResult<Tensor> + Send + Sync + 'static,
{
    let (state, lower) = (default_generator().state(), lower());
    let operands: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    move || {
        fork_rng(|| {
            default_generator().set_state(state);
            with_lower(lower, || {
                call::user(|| f(&operands.iter().collect::<Vec<_>>()))
            })
        })
    }
}
