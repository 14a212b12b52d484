//! Parameters as one vector: `torch.nn.utils.convert_parameters`.

use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all, no_grad};

use crate::error::require;

/// The elements of all parameters, concatenated. Gradients go through it.
///
/// ```
/// use rustorch_nn::nn::{Linear, Module, parameters_to_vector, vector_to_parameters};
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let net = Linear::new(2, 3)?;
/// let vector = parameters_to_vector(&net.parameters())?;
/// assert_eq!(vector.shape(), [9]);
/// vector_to_parameters(&vector.mul(2.0)?, &net.parameters())?;
/// assert!(parameters_to_vector(&net.parameters())?.equal(&vector.mul(2.0)?)?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails for an empty list.
#[track_calls]
pub fn parameters_to_vector(parameters: &[Tensor]) -> RusTorchResult<Tensor> {
    const NAME: &str = "parameters_to_vector";
    require(NAME, !parameters.is_empty(), "parameters", "none")?;
    let flat = parameters.iter().map(|x| x.reshape([x.numel()]));
    let flat: Vec<Tensor> = flat.collect::<RusTorchResult<_>>()?;
    Tensor::cat(&flat.iter().collect::<Vec<_>>(), 0)
}

/// Overwrites the parameters with the elements of `vector`, one after another.
///
/// # Errors
/// Fails for a vector whose length is not the parameters' number of elements.
#[track_calls]
pub fn vector_to_parameters(vector: &Tensor, parameters: &[Tensor]) -> RusTorchResult<()> {
    let numel: usize = parameters.iter().map(Tensor::numel).sum();
    let expected = format_args!("a vector [{numel}]");
    let got = format_args!("{:?}", vector.shape());
    require(
        "vector_to_parameters",
        *vector.shape() == [numel],
        expected,
        got,
    )?;
    let vector = vector.detach();
    let mut at = 0;
    for parameter in parameters {
        let part = vector.narrow(0, at, parameter.numel())?;
        at += parameter.numel();
        let mut parameter = parameter.clone();
        no_grad(|| parameter.copy_(&part.reshape(parameter.shape())?).map(drop))?;
    }
    eval_all(&parameters.iter().collect::<Vec<_>>())
}
