//! Pooling and convolutions.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::nn::pooling::{Windows, divisors};
use crate::api::nn::windows::{Axis, Side};
use crate::api::nn::{AvgPoolOptions, ConvOptions, ConvTransposeOptions};
use crate::args::dims::IntoShape;
use crate::error::{RusTorchResult, require};

/// The gradient of [`Tensor::max_pool2d_with_indices`]'s operand, of shape `[…, h, w]`. Each
/// element of the result's gradient is added at its index in `indices`. Takes floats.
///
/// # Errors
/// Fails for an unsupported dtype, or indices of another shape than the gradient. Evaluation fails
/// for an index out of range.
#[track_calls]
pub fn max_pool2d_with_indices_backward(
    grad: &Tensor,
    shape: impl IntoShape,
    indices: &Tensor,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "max_pool2d_with_indices_backward";
    let shape = &shape.into_shape()[..];
    grad.require_float(NAME)?;
    let (own, lead) = (grad.shape(), shape.len().saturating_sub(2));
    let fits = shape.len() > 2 && own.len() == shape.len() && own[..lead] == shape[..lead];
    let expected = format_args!("a gradient {:?} followed by two dimensions", &shape[..lead]);
    require(NAME, fits, expected, grad.ty())?;
    let expected = format_args!("indices {own:?}");
    require(NAME, indices.shape() == own, expected, indices.ty())?;
    let size = shape[lead] * shape[lead + 1];
    let zeros = Tensor::zeros([&shape[..lead], &[size]].concat(), DType::F32)?;
    let g = grad.widened(NAME)?.flatten(-2, -1)?;
    let sums = zeros
        .cast(NAME, g.dtype())?
        .scatter_add(-1, &indices.flatten(-2, -1)?, &g)?;
    sums.reshape(shape)?.cast(NAME, grad.dtype())
}

/// The gradient of [`Tensor::avg_pool2d`]'s operand `x` `[n, c, h, w]` or `[c, h, w]`, from the
/// result's gradient. Takes floats.
///
/// # Errors
/// The same errors as [`Tensor::avg_pool2d`]. Also fails for a gradient of another shape than the
/// result's.
#[track_calls]
pub fn avg_pool2d_backward(
    grad: &Tensor,
    x: &Tensor,
    kernel: [usize; 2],
    options: &AvgPoolOptions<2>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "avg_pool2d_backward";
    let (x, has_batch) = x.with_batch(NAME, 2)?;
    let sides = Windows::averaged(kernel, options).sides(NAME, &x)?;
    let by = divisors(&sides, options)?;
    let axes = sides.each_ref().map(Side::axis);
    spread_means(NAME, grad, &x, &axes, &by)?.without_batch(has_batch)
}

/// The gradient of [`Tensor::adaptive_avg_pool2d`]'s operand `x` `[n, c, h, w]` or `[c, h, w]`,
/// from the result's gradient. Takes floats.
///
/// # Errors
/// Fails for an unsupported shape or dtype, or a dimension without elements.
#[track_calls]
pub fn adaptive_avg_pool2d_backward(grad: &Tensor, x: &Tensor) -> RusTorchResult<Tensor> {
    const NAME: &str = "adaptive_avg_pool2d_backward";
    let expected = format_args!("a gradient of the rank of {}", x.ty());
    require(NAME, grad.rank() == x.rank(), expected, grad.ty())?;
    let counts = |i: usize| Some(grad.shape()[grad.rank() - 2 + i]);
    let (axes, x, has_batch) = match grad.rank() {
        2.. => x.adaptive_axes(NAME, [counts(0), counts(1)])?,
        _ => x.adaptive_axes(NAME, [None; 2])?,
    };
    let members = Axis::members_of(&axes)?;
    spread_means(NAME, grad, &x, &axes, &members)?.without_batch(has_batch)
}

/// The gradients of windows' means for `x`, `[n, c, …]`, by the number of elements in each window.
fn spread_means(
    name: &'static str,
    grad: &Tensor,
    x: &Tensor,
    axes: &[Axis],
    members: &Tensor,
) -> RusTorchResult<Tensor> {
    grad.require_float(name)?;
    let counts: Vec<usize> = axes.iter().map(|axis| axis.count).collect();
    let wanted = [&x.shape()[..2], &counts].concat();
    let elements: usize = wanted.iter().product();
    let fits = grad.shape().ends_with(&wanted[1..]) && grad.numel() == elements;
    let expected = format_args!("a gradient {wanted:?}");
    require(name, fits, expected, grad.ty())?;
    let g = grad.widened(name)?.reshape(wanted)?;
    let members = members.cast(name, g.dtype())?;
    let spread = g
        .div(&members)?
        .spread_of_windows(name, axes, &x.shape()[2..])?;
    spread.cast(name, grad.dtype())
}

/// The gradients of the operands of a convolution of `N` dimensions, or a `transposed` one. They
/// are `x` `[n, c, …]`, the weight and a bias; the gradient of the result is `[n, o, …]`. Unless it
/// is `transposed`, [`ConvTransposeOptions`] has no output padding. Takes floats.
///
/// # Errors
/// Fails if the convolution rejects the operands, or if its result has not the gradient's shape.
#[track_calls]
pub fn convolution_backward<const N: usize>(
    grad: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    options: &ConvTransposeOptions<N>,
    transposed: bool,
) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    const NAME: &str = "convolution_backward";
    for operand in [grad, x, weight] {
        operand.require_float(NAME)?;
        let expected = format_args!("operands of rank {} with their batch", N + 2);
        require(NAME, operand.rank() == N + 2, expected, operand.ty())?;
    }
    let forward = match transposed {
        true => x.spread(NAME, weight, None, options)?,
        false => x.convolved(NAME, weight, None, &windows_of(options))?,
    };
    let expected = format_args!("a gradient {:?}", forward.shape());
    require(NAME, grad.shape() == forward.shape(), expected, grad.ty())?;
    let dtype = x.dtype();
    let [g, x, w] = [grad.widened(NAME)?, x.widened(NAME)?, weight.widened(NAME)?];
    let own = match transposed {
        true => g.convolved(NAME, &w, None, &windows_of(options))?,
        false => {
            let output_padding = |i: usize| {
                let reach = options.dilation[i] * (w.shape()[2 + i] - 1) + 1;
                let seen = (g.shape()[2 + i] - 1) * options.stride[i] + reach;
                x.shape()[2 + i] + 2 * options.padding[i] - seen
            };
            let output_padding = std::array::from_fn(output_padding);
            let options = ConvTransposeOptions {
                output_padding,
                ..*options
            };
            g.spread(NAME, &w, None, &options)?
        }
    };
    let weights = match transposed {
        true => weights_of(NAME, &x, &g, w.shape(), options)?,
        false => weights_of(NAME, &g, &x, w.shape(), options)?,
    };
    let others: Vec<isize> = (0..g.rank() as isize).filter(|&d| d != 1).collect();
    let bias = g.sum(&others[..], false)?;
    Ok((
        own.cast(NAME, dtype)?,
        weights.cast(NAME, dtype)?,
        bias.cast(NAME, dtype)?,
    ))
}

fn windows_of<const N: usize>(options: &ConvTransposeOptions<N>) -> ConvOptions<N> {
    ConvOptions {
        stride: options.stride,
        padding: options.padding.into(),
        dilation: options.dilation,
        groups: options.groups,
    }
}

/// The gradient of a weight `[o, c / groups, …]`, for windows `few` `[n, o, …]` of `many` `[n, c, …]`:
/// a convolution of the one with the other, in which batch and channels, and stride and dilation, have
/// changed places.
fn weights_of<const N: usize>(
    name: &'static str,
    few: &Tensor,
    many: &Tensor,
    shape: &[usize],
    options: &ConvTransposeOptions<N>,
) -> RusTorchResult<Tensor> {
    let (groups, n) = (options.groups, many.shape()[0]);
    let (each, sizes) = (many.shape()[1] / groups, &many.shape()[2..]);
    let split = many.reshape([&[n, groups, each], sizes].concat())?;
    let turned = split
        .transpose(0, 2)?
        .reshape([&[each, groups * n], sizes].concat())?;
    let turned_options = ConvOptions {
        stride: options.dilation,
        padding: options.padding.into(),
        dilation: options.stride,
        groups,
    };
    let found = turned.convolved(name, &few.transpose(0, 1)?, None, &turned_options)?;
    let found = found.transpose(0, 1)?;
    let cut = |x: Tensor, (i, &size): (usize, &usize)| x.narrow(2 + i as isize, 0, size);
    shape[2..].iter().enumerate().try_fold(found, cut)
}
