//! Factorisations of matrices and functions computed by them, through `rustorch-math` (feature
//! `linalg`).

mod cholesky;
mod eig;
mod eigh;
mod geqrf;
mod householder_product;
mod ldl;
mod ldl_solve;
mod lu;
mod matrices;
mod matrix_exp;
mod qr;
mod solve_triangular;
mod svd;

use rustorch_runtime::KernelEntry;

use crate::launch::Launch;

/// The kernels of this family.
pub(super) const KERNELS: [KernelEntry<Launch>; 12] = [
    cholesky::KERNEL,
    eig::KERNEL,
    eigh::KERNEL,
    geqrf::KERNEL,
    householder_product::KERNEL,
    ldl::KERNEL,
    ldl_solve::KERNEL,
    lu::KERNEL,
    matrix_exp::KERNEL,
    qr::KERNEL,
    solve_triangular::KERNEL,
    svd::KERNEL,
];
