//! The gradients of layers with respect to their operands, as in PyTorch's `aten`. Arguments are
//! the gradient of a result, and the values of the forward pass that are needed.
//!
//! | file | of |
//! | --- | --- |
//! | `rows.rs` | softmax, dropout, embeddings |
//! | `norms.rs` | the layer and group norms |
//! | `windows.rs` | pooling and convolutions |
//!
//! Halves are computed in single precision.

mod norms;
mod rows;
mod windows;

pub use norms::{native_group_norm_backward, native_layer_norm_backward};
pub use rows::{
    embedding_dense_backward, log_softmax_backward_data, native_dropout_backward,
    softmax_backward_data,
};
pub use windows::{
    adaptive_avg_pool2d_backward, avg_pool2d_backward, convolution_backward,
    max_pool2d_with_indices_backward,
};
