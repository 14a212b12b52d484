//! The list of rules. Each is in the file of the composite that it makes, in the folder `ops`.

use super::Rule;
use crate::ops::{
    add_rms_norm, batch_norm_backward, batch_norm_train, cached_attention, concat,
    cross_entropy_backward, foreach_reduce, fused_expert_linear, fused_linear, fused_norm, groups,
    norm_backward, top_k_softmax,
};

/// The rules of all composites that have one, in the order in which they are tried.
pub const RULES: &[Rule] = &[
    // Rotation, cache and attention.
    cached_attention::cached_attention,
    // Products of the same rows, with the norm before them and a sum or gate behind.
    fused_linear::fused_linear,
    // Products of experts with what is done to their results.
    fused_expert_linear::fused_expert_linear,
    // A router's choice of experts.
    top_k_softmax::top_k_softmax,
    // A norm with the residual before it and the conversion behind it.
    fused_norm::fused_norm,
    // The same, of an RMS norm on its own.
    add_rms_norm::add_rms_norm,
    // A sum of padded parts becomes a concatenation.
    concat::sum_of_parts,
    // Gradients, with additions to them.
    norm_backward::norm_backward,
    cross_entropy_backward::cross_entropy_backward,
    // Batch norms in training, with the sums and the positive part around them.
    batch_norm_train::batch_norm_train,
    batch_norm_backward::batch_norm_backward,
    // The same update, or the same sum, of many tensors.
    groups::foreach,
    foreach_reduce::foreach_reduce,
    groups::foreach_cast,
];
