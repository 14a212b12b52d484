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

pub use adjugate::Adjugate;
pub use cholesky::Cholesky;
pub use determinant::Determinant;
pub use eig::Eig;
pub use eigh::Eigh;
pub use geqrf::Geqrf;
pub use householder_product::HouseholderProduct;
pub use ldl::Ldl;
pub use ldl_solve::LdlSolve;
pub use log_determinant::LogDeterminant;
pub use lu::Lu;
pub use lu_pivots_to_permutation::LuPivotsToPermutation;
pub use matrix_exp::MatrixExp;
pub use pseudo_inverse::PseudoInverse;
pub use qr::Qr;
pub use solve_triangular::SolveTriangular;
pub use svd::{Svd, SvdVectors};
