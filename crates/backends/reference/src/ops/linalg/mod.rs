//! Factorisations of matrices and functions computed by them.

pub(crate) mod cholesky;
pub(crate) mod eig;
pub(crate) mod eigh;
pub(crate) mod geqrf;
pub(crate) mod householder_product;
pub(crate) mod ldl;
pub(crate) mod ldl_solve;
pub(crate) mod lu;
pub(crate) mod lu_pivots_to_permutation;
pub(crate) mod matrix_exp;
pub(crate) mod qr;
pub(crate) mod solve_triangular;
pub(crate) mod svd;
