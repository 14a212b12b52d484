//! Derivatives of functions: `torch.autograd.functional`.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use super::{GradOptions, enable_grad, grad_with, no_grad};
use crate::error::{RusTorchResult, require};
use crate::{Tensor, call};

/// The same value as a separate leaf.
fn leaf(x: &Tensor) -> RusTorchResult<Tensor> {
    let mut leaf = x.detach();
    leaf.requires_grad_(true)?;
    Ok(leaf)
}

/// The gradient of `x`; zeros where `y` does not follow from it.
fn gradient(y: &Tensor, x: &Tensor, options: &GradOptions) -> RusTorchResult<Tensor> {
    if !y.requires_grad() {
        return x.detach().zeros_like();
    }
    match grad_with(&[y], &[x], &options.clone().allow_unused(true))?.pop() {
        Some(Some(gradient)) => Ok(gradient),
        _ => x.detach().zeros_like(),
    }
}

/// The result of `f` for `x`, and the product of `v` with its Jacobian there: `torch.autograd.functional.vjp`.
/// `v` has the result's type, the product that of `x`.
///
/// # Errors
/// The errors of `f` and of [`grad`](super::grad). Also fails for a `v` of another type.
#[track_calls]
pub fn vjp(
    f: impl FnOnce(&Tensor) -> RusTorchResult<Tensor>,
    x: &Tensor,
    v: &Tensor,
) -> RusTorchResult<(Tensor, Tensor)> {
    let x = leaf(x)?;
    let y = enable_grad(|| call::user(|| f(&x)))?;
    let product = gradient(&y, &x, &GradOptions::default().gradient(v))?;
    Ok((y.detach(), product))
}

/// The result of `f` for `x`, and the product of its Jacobian there with `v`: `torch.autograd.functional.jvp`.
/// `v` has the type of `x`, the product that of the result.
///
/// It is the gradient of [`vjp`], which is linear.
///
/// # Errors
/// The errors of `f` and of [`grad`](super::grad). Also fails for a `v` of another type.
#[track_calls]
pub fn jvp(
    f: impl FnOnce(&Tensor) -> RusTorchResult<Tensor>,
    x: &Tensor,
    v: &Tensor,
) -> RusTorchResult<(Tensor, Tensor)> {
    let expected = format_args!("a direction {}", x.ty());
    require("jvp", v.ty() == x.ty(), expected, v.ty())?;
    let x = leaf(x)?;
    let y = enable_grad(|| call::user(|| f(&x)))?;
    let at = leaf(&y.detach().zeros_like()?)?;
    let options = GradOptions::default().create_graph(true).gradient(&at);
    let product = gradient(&y, &x, &options)?;
    let tangent = gradient(&product, &at, &GradOptions::default().gradient(v))?;
    Ok((y.detach(), tangent))
}

/// The Jacobian of `f` at `x`, of the result's shape and then that of `x`:
/// `torch.autograd.functional.jacobian`. The Jacobian of complex numbers is conjugated, as
/// gradients are.
///
/// If `f` gives one loss for each sample, it holds the gradient of each sample's loss.
///
/// # Errors
/// The errors of `f` and of [`grad`](super::grad).
#[track_calls]
pub fn jacobian(
    f: impl FnOnce(&Tensor) -> RusTorchResult<Tensor>,
    x: &Tensor,
) -> RusTorchResult<Tensor> {
    rows(|x| call::user(|| f(x)), &leaf(x)?)
}

/// The Hessian of `f`, which gives one real element, at `x`: twice the shape of `x`.
///
/// # Errors
/// The errors of `f` and of [`grad`](super::grad).
#[track_calls]
pub fn hessian(
    f: impl FnOnce(&Tensor) -> RusTorchResult<Tensor>,
    x: &Tensor,
) -> RusTorchResult<Tensor> {
    let once = GradOptions::default().create_graph(true);
    let slope = |x: &Tensor| gradient(&call::user(|| f(x))?, x, &once);
    rows(slope, &leaf(x)?)
}

/// Compares the gradients of `f`, by each of `inputs`, with central differences: `torch.autograd.gradcheck`, with its
/// step of 1e-6 and tolerances of 1e-5 and a thousandth.
///
/// ```
/// use rustorch_tensor::autograd::gradcheck;
/// use rustorch_tensor::tensor;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let (x, y) = (tensor![0.3, 0.4].double()?, tensor![2.0, -1.0].double()?);
/// gradcheck(|x| x[0].sin()?.mul(&x[1]), &[&x, &y])?;
/// // A gradient that is cut off is none.
/// assert!(gradcheck(|x| x[0].mul(&x[0].detach()), &[&x]).is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails for the first derivative that differs. Also fails for inputs or results other than `f64`,
/// since single precision is too coarse. Also the errors of `f`.
#[track_calls]
pub fn gradcheck(
    f: impl Fn(&[Tensor]) -> RusTorchResult<Tensor>,
    inputs: &[&Tensor],
) -> RusTorchResult<()> {
    const NAME: &str = "gradcheck";
    const STEP: f64 = 1e-6;
    for x in inputs {
        require(NAME, x.dtype() == DType::F64, "inputs of f64", x.ty())?;
    }
    let leaves: Vec<Tensor> = inputs
        .iter()
        .map(|x| leaf(x))
        .collect::<RusTorchResult<_>>()?;
    let y = enable_grad(|| call::user(|| f(&leaves)))?;
    require(NAME, y.dtype() == DType::F64, "a result of f64", y.ty())?;
    for (k, x) in leaves.iter().enumerate() {
        let derivatives = jacobian_of(&y, x)?.to_vec::<f64>()?;
        let at = x.to_vec::<f64>()?;
        for j in 0..at.len() {
            let moved = |step: f64| {
                let mut elements = at.clone();
                elements[j] += step;
                let mut inputs: Vec<Tensor> = leaves.iter().map(Tensor::detach).collect();
                inputs[k] = Tensor::from_vec(elements, x.shape())?;
                no_grad(|| call::user(|| f(&inputs)))?.to_vec::<f64>()
            };
            let (above, below) = (moved(STEP)?, moved(-STEP)?);
            for (i, (above, below)) in above.iter().zip(&below).enumerate() {
                let difference = (above - below) / (2.0 * STEP);
                let derivative = derivatives[i * at.len() + j];
                let is_close = (derivative - difference).abs() <= 1e-5 + 1e-3 * difference.abs();
                let expected = format_args!(
                    "a derivative of {difference} of the result's element {i} by element {j} of input {k}"
                );
                require(NAME, is_close, expected, derivative)?;
            }
        }
    }
    Ok(())
}

/// The Jacobian of `f` at `x`.
fn rows(f: impl FnOnce(&Tensor) -> RusTorchResult<Tensor>, x: &Tensor) -> RusTorchResult<Tensor> {
    jacobian_of(&enable_grad(|| f(x))?, x)
}

/// The Jacobian of `y`, which was computed from `x`, row by row.
fn jacobian_of(y: &Tensor, x: &Tensor) -> RusTorchResult<Tensor> {
    let shape = [y.shape(), x.shape()].concat();
    let count = y.numel();
    let row = |i: usize| {
        let places = Tensor::arange_with(0, count as i64, 1, DType::I64)?;
        let row = places
            .eq(i as i64)?
            .to_dtype(y.dtype())?
            .reshape(y.shape())?;
        let options = GradOptions::default().retain_graph(true).gradient(&row);
        gradient(y, x, &options)
    };
    let rows: Vec<Tensor> = (0..count).map(row).collect::<RusTorchResult<_>>()?;
    match rows.is_empty() {
        true => Tensor::zeros(&shape[..], x.dtype()),
        false => Tensor::stack(&rows, 0)?.reshape(&shape[..]),
    }
}
