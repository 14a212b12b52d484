//! Factorisations of matrices and functions computed by them.

pub(in crate::ops) mod adjugate;
pub(crate) mod cholesky;
pub(in crate::ops) mod determinant;
pub(crate) mod eig;
pub(crate) mod eigh;
pub(crate) mod geqrf;
pub(crate) mod householder_product;
pub(crate) mod ldl;
pub(crate) mod ldl_solve;
pub(in crate::ops) mod log_determinant;
pub(crate) mod lu;
pub(crate) mod lu_pivots_to_permutation;
pub(crate) mod matrices;
pub(crate) mod matrix_exp;
pub(in crate::ops) mod pseudo_inverse;
pub(crate) mod qr;
pub(crate) mod solve_triangular;
pub(crate) mod svd;

use super::*;
