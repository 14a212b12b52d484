//! The layer and group norms.

use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::IntoShape;
use crate::error::{RusTorchResult, require};

/// The gradients of the operands of [`Tensor::native_layer_norm`]: `x`, the weight and the bias.
///
/// # Errors
/// Fails for shapes or dtypes other than those of the forward pass.
#[track_calls]
pub fn native_layer_norm_backward(
    grad: &Tensor,
    x: &Tensor,
    normalized_shape: impl IntoShape,
    [mean, rstd]: [&Tensor; 2],
    weight: Option<&Tensor>,
) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    const NAME: &str = "native_layer_norm_backward";
    let inner = &normalized_shape.into_shape()[..];
    x.require_inner(NAME, inner, &[weight])?;
    let outer = x.rank() - inner.len();
    let single = [&x.shape()[..outer], &vec![1; inner.len()]].concat();
    require_like(NAME, "gradient", grad, x.shape())?;
    require_like(NAME, "mean", mean, &single)?;
    require_like(NAME, "rstd", rstd, &single)?;
    let [g, x_wide] = [grad.widened(NAME)?, x.widened(NAME)?];
    let [mean, rstd] = [
        mean.cast(NAME, x_wide.dtype())?,
        rstd.cast(NAME, x_wide.dtype())?,
    ];
    let normed = x_wide.sub(&mean)?.mul(&rstd)?;
    let scaled = match weight {
        Some(weight) => g.mul(&weight.cast(NAME, g.dtype())?)?,
        None => g.clone(),
    };
    let members: Vec<isize> = (outer..x.rank()).map(|d| d as isize).collect();
    let own = centred(&scaled, &normed, &members)?.mul(&rstd)?;
    let others: Vec<isize> = (0..outer as isize).collect();
    let summed = |t: &Tensor| match outer {
        0 => t.cast(NAME, x.dtype()),
        _ => t.sum(&others[..], false)?.cast(NAME, x.dtype()),
    };
    Ok((
        own.cast(NAME, x.dtype())?,
        summed(&g.mul(&normed)?)?,
        summed(&g)?,
    ))
}

/// The gradients of the operands of [`Tensor::native_group_norm`]: `x` `[n, c, …]`, the weight `[c]` and the
/// bias `[c]`.
///
/// # Errors
/// Fails for shapes or dtypes other than those of the forward pass.
#[track_calls]
pub fn native_group_norm_backward(
    grad: &Tensor,
    x: &Tensor,
    [mean, rstd]: [&Tensor; 2],
    weight: Option<&Tensor>,
    groups: usize,
) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    const NAME: &str = "native_group_norm_backward";
    let [n, c, rest] = x.grouped_channels(NAME, groups, &[weight])?;
    require_like(NAME, "gradient", grad, x.shape())?;
    require_like(NAME, "mean", mean, &[n, groups])?;
    require_like(NAME, "rstd", rstd, &[n, groups])?;
    let shape = [n, groups, c / groups, rest];
    let [g, x_wide] = [grad.widened(NAME)?, x.widened(NAME)?];
    let [g, x_wide] = [g.reshape(shape)?, x_wide.reshape(shape)?];
    let per_group = |t: &Tensor| t.cast(NAME, g.dtype())?.reshape([n, groups, 1, 1]);
    let [mean, rstd] = [per_group(mean)?, per_group(rstd)?];
    let normed = x_wide.sub(&mean)?.mul(&rstd)?;
    let scaled = match weight {
        Some(weight) => {
            let weight = weight.cast(NAME, g.dtype())?;
            g.mul(&weight.reshape([1, groups, c / groups, 1])?)?
        }
        None => g.clone(),
    };
    let own = centred(&scaled, &normed, &[2, 3])?.mul(&rstd)?;
    let own = own.reshape(x.shape())?.cast(NAME, x.dtype())?;
    let summed = |t: &Tensor| t.sum([0, 3], false)?.reshape([c])?.cast(NAME, x.dtype());
    Ok((own, summed(&g.mul(&normed)?)?, summed(&g)?))
}

/// `g - mean(g) - x̂ · mean(g · x̂)`: the part of a gradient that does not change mean and variance.
fn centred(g: &Tensor, normed: &Tensor, dims: &[isize]) -> RusTorchResult<Tensor> {
    let along = g.mul(normed)?.mean(dims, true)?;
    g.sub(&g.mean(dims, true)?)?.sub(&normed.mul(&along)?)
}

fn require_like(
    name: &'static str,
    what: &str,
    given: &Tensor,
    shape: &[usize],
) -> RusTorchResult<()> {
    let fits = given.shape() == shape && given.dtype().is_float();
    let expected = format_args!("a {what} of floats {shape:?}");
    require(name, fits, expected, given.ty())
}
