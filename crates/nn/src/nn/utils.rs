//! `torch.nn.utils`.

pub use super::clip_grad::{clip_grad_norm_, clip_grad_value_, get_total_norm};
pub use super::parametrize::{spectral_norm, weight_norm};
pub use super::vectors::{parameters_to_vector, vector_to_parameters};

/// Sequences of several lengths: `torch.nn.utils.rnn`.
pub mod rnn {
    pub use crate::nn::sequences::{
        PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence,
        unpad_sequence,
    };
}
