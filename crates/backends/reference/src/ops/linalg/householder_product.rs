use rustorch_ir::ops::HouseholderProduct;

use super::geqrf::product;
use crate::Values;
use crate::matrix;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(_op: &HouseholderProduct, call: &Call) -> Result<Values, Misuse> {
    let matrices = call.inputs[0].matrices();
    let count = call.inputs[1].shape().last().map_or(0, |&count| count);
    let taus = call.inputs[1].parts(matrices.len(), count);
    let products = matrices
        .iter()
        .zip(taus)
        .map(|(a, tau)| product(a, &tau, a.n).elements);
    Ok(matrix::values(call.output(), products))
}
