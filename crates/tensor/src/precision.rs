//! The precision of each method while a thread records under [`autocast`](crate::api::amp::autocast).

use std::cell::Cell;

use rustorch_ir::DType;

use crate::call;
use crate::thread_state::restoring;

/// Methods that compute halves in single precision, and return that. In alphabetical order.
const SINGLE: [&str; 60] = [
    "acos",
    "asin",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cdist",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "cumprod",
    "cumsum",
    "dist",
    "erfinv",
    "exp",
    "expm1",
    "group_norm",
    "hinge_embedding_loss",
    "huber_loss",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "linalg.matrix_norm",
    "linalg.norm",
    "linalg.vector_norm",
    "linear_cross_entropy",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logsumexp",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "nll_loss",
    "norm",
    "pdist",
    "poisson_nll_loss",
    "pow",
    "prod",
    "prod_all",
    "reciprocal",
    "renorm",
    "rms_norm",
    "rpow",
    "rsqrt",
    "sinh",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "sum",
    "sum_all",
    "tan",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
];

thread_local! {
    static LOWER: Cell<Option<DType>> = const { Cell::new(None) };
}

/// The dtype that products are computed in, if there is one.
pub(crate) fn lower() -> Option<DType> {
    LOWER.get()
}

/// Calls `f`, in which products are computed in a dtype, or in that of their operands.
pub(crate) fn with_lower<R>(dtype: Option<DType>, f: impl FnOnce() -> R) -> R {
    restoring(LOWER.replace(dtype), |before| LOWER.set(before), f)
}

/// Does a method, or the user's call around it, compute halves in single precision?
pub(crate) fn is_single(method: &str) -> bool {
    let is_listed = |name: &str| SINGLE.binary_search(&name).is_ok();
    lower().is_some()
        && (is_listed(method) || call::entered().is_some_and(|call| is_listed(call.method)))
}

#[cfg(test)]
mod tests {
    use super::SINGLE;

    #[test]
    fn the_list_can_be_searched() {
        assert!(SINGLE.is_sorted());
    }
}
