//! Gradient clipping: `torch.nn.utils.clip_grad`.

use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::error::require;

/// The `norm_type`-norm of all tensors together, of rank 0. It is real, in the precision of the
/// first tensor.
///
/// # Errors
/// Fails for dtypes other than floats and complex numbers. If requested, also fails for a norm that
/// is infinite or NaN.
#[track_calls]
pub fn get_total_norm(
    tensors: &[Tensor],
    norm_type: f64,
    error_if_nonfinite: bool,
) -> RusTorchResult<Tensor> {
    let Some(first) = tensors.first() else {
        return Tensor::zeros([], rustorch_ir::DType::F32);
    };
    let norms = tensors.iter().map(|x| {
        x.norm(norm_type, None, false)?
            .to_dtype(first.dtype().real())
    });
    let norms: Vec<Tensor> = norms.collect::<RusTorchResult<_>>()?;
    let total = Tensor::stack(&norms, 0)?.norm(norm_type, None, false)?;
    if error_if_nonfinite {
        let value = total.item()?;
        let expected = "gradients whose norm is finite (or no error_if_nonfinite)";
        require("clip_grad_norm_", value.is_finite(), expected, value)?;
    }
    Ok(total)
}

/// The gradients of parameters that have one.
fn gradients(parameters: &[Tensor]) -> Vec<(&Tensor, Tensor)> {
    let gradient = |parameter| Some((parameter, Tensor::grad(parameter)?));
    parameters.iter().filter_map(gradient).collect()
}

/// Scales the gradients of parameters so that their norm, taken together, is at most `max_norm`. Returns the norm
/// before scaling.
///
/// # Errors
/// The same errors as [`get_total_norm`].
#[track_calls]
pub fn clip_grad_norm_(
    parameters: &[Tensor],
    max_norm: f64,
    norm_type: f64,
    error_if_nonfinite: bool,
) -> RusTorchResult<Tensor> {
    let gradients = gradients(parameters);
    let all: Vec<Tensor> = gradients
        .iter()
        .map(|(_, gradient)| gradient.detach())
        .collect();
    let total = get_total_norm(&all, norm_type, error_if_nonfinite)?;
    for ((parameter, _), clipped) in gradients.iter().zip(scaled(&all, max_norm, &total)?) {
        parameter.set_grad(Some(&clipped))?;
    }
    Ok(total)
}

/// Gradients whose norm is `total`, scaled so that it is at most `max_norm`.
pub(crate) fn scaled(
    gradients: &[Tensor],
    max_norm: f64,
    total: &Tensor,
) -> RusTorchResult<Vec<Tensor>> {
    let factor = total
        .add(1e-6)?
        .reciprocal()?
        .mul(max_norm)?
        .clamp_max(1.0)?;
    let scaled = |gradient: &Tensor| gradient.mul(&factor.to_dtype(gradient.dtype())?);
    gradients.iter().map(scaled).collect()
}

/// Clamps each gradient element to `±clip_value`.
///
/// # Errors
/// Fails for a negative bound.
#[track_calls]
pub fn clip_grad_value_(parameters: &[Tensor], clip_value: f64) -> RusTorchResult<()> {
    const NAME: &str = "clip_grad_value_";
    require(
        NAME,
        clip_value >= 0.0,
        "a bound that is not negative",
        clip_value,
    )?;
    for (parameter, gradient) in gradients(parameters) {
        let clipped = gradient.detach().clamp(-clip_value, clip_value)?;
        parameter.set_grad(Some(&clipped))?;
    }
    Ok(())
}
