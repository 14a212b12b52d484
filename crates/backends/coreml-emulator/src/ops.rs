//! Results of operations, by the operations' names.

mod compression;
mod elementwise;
mod image;
mod matrix;
mod normalize;
mod reduce;
mod shape;

use crate::arguments::Arguments;
use crate::tensor::Tensor;

/// The result of an operation.
pub(crate) fn evaluate(kind: &str, x: &Arguments) -> Result<Tensor, String> {
    if let Some(f) = elementwise::unary(kind) {
        return elementwise::map(x, f);
    }
    if let Some(f) = elementwise::binary(kind) {
        return elementwise::zip(x, kind, f);
    }
    if let Some(f) = elementwise::comparison(kind) {
        return elementwise::compare(x, f);
    }
    if let Some(f) = elementwise::logical(kind) {
        return elementwise::combine(x, f);
    }
    if let Some(reduction) = reduce::reduction(kind) {
        return reduce::reduce(x, reduction);
    }
    match kind {
        "identity" => x.get("x").cloned(),
        "logical_not" => elementwise::not(x),
        "log" => elementwise::log(x),
        "gelu" => elementwise::gelu(x),
        "cast" => elementwise::cast(x),
        "select" => elementwise::select(x),
        "matmul" => matrix::matmul(x),
        "linear" => matrix::linear(x),
        "conv" => image::conv(x),
        "conv_transpose" => image::conv_transpose(x),
        "max_pool" => image::max_pool(x),
        "avg_pool" => image::avg_pool(x),
        "softmax" => normalize::softmax(x),
        "layer_norm" => normalize::layer_norm(x),
        "batch_norm" => normalize::batch_norm(x),
        "reshape" => shape::reshape(x),
        "transpose" => shape::transpose(x),
        "slice_by_index" => shape::slice_by_index(x),
        "slice_update" => shape::slice_update(x),
        "tile" => shape::tile(x),
        "pad" => shape::pad(x),
        "concat" => shape::concat(x),
        "gather" => shape::gather(x),
        "gather_along_axis" => shape::gather_along_axis(x),
        "fill" => shape::fill(x),
        "constexpr_affine_dequantize" => compression::affine_dequantize(x),
        "constexpr_blockwise_shift_scale" => compression::blockwise_shift_scale(x),
        "constexpr_lut_to_dense" => compression::lut_to_dense(x),
        _ => Err("no such operation".to_owned()),
    }
}
