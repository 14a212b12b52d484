//! Linear algebra, with the names of `torch.linalg`. Matrices are the last two dimensions.
//! Dimensions before them are a batch, which broadcasts for two operands.
//!
//! Factorisations support `f32`, `f64`, `complex64` and `complex128`. They run on the CPU, in
//! double precision.

mod einsum;
mod factors;
mod least_squares;
mod low_rank;
mod norms;
mod products;
mod solve;
mod vectors;

pub use factors::{
    QrMode, cholesky, cholesky_ex, eig, eigh, eigvals, eigvalsh, householder_product, ldl_factor,
    ldl_factor_ex, lu, lu_factor, lu_factor_ex, matrix_exp, matrix_sqrth, polar, qr, svd, svdvals,
};
pub use least_squares::{
    LeastSquares, Tolerance, lstsq, lstsq_with, matrix_rank, matrix_rank_hermitian, pinv,
    pinv_hermitian,
};
pub use norms::{MatrixNorm, cond, matrix_norm, norm, vector_norm};
pub use products::{multi_dot, vecdot};
pub use solve::{
    det, inv, inv_ex, ldl_solve, lu_solve, matrix_power, slogdet, solve, solve_ex,
    solve_triangular, tensorinv, tensorsolve,
};

use rustorch_ir::broadcast_shapes;

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// Rows and columns of a tensor's matrices.
fn sizes(name: &'static str, a: &Tensor) -> RusTorchResult<[usize; 2]> {
    let expected = "matrices: a tensor of rank 2 or more";
    require(name, a.rank() >= 2, expected, a.ty())?;
    let shape = a.shape();
    Ok([shape[shape.len() - 2], shape[shape.len() - 1]])
}

/// The size of square matrices.
fn square(name: &'static str, a: &Tensor) -> RusTorchResult<usize> {
    let [rows, columns] = sizes(name, a)?;
    require(name, rows == columns, "square matrices", a.ty())?;
    Ok(rows)
}

/// The dimensions before those of a matrix.
fn batch(a: &Tensor) -> &[usize] {
    &a.shape()[..a.rank() - 2]
}

/// Two operands whose batches are broadcast to each other's.
fn broadcast(name: &'static str, a: &Tensor, b: &Tensor) -> RusTorchResult<[Tensor; 2]> {
    let shape = broadcast_shapes(name, batch(a), batch(b))?;
    let expand = |x: &Tensor| {
        let matrix = &x.shape()[x.rank() - 2..];
        x.expand(&[&shape[..], matrix].concat()[..])
    };
    Ok([expand(a)?, expand(b)?])
}

/// The transposed, and of complex numbers conjugated, matrices.
fn adjoint(a: &Tensor) -> RusTorchResult<Tensor> {
    a.transpose(-2, -1)?.conj()
}
