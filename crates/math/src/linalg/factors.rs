//! Cholesky and QR.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::solvers::Qr;
use faer::{Par, Spec};

use super::{Number, elements, matrix, matrix_mut, range, real_diagonal, reflections};

pub(crate) fn cholesky<T: Number>(a: &mut [T], n: usize) -> Option<usize> {
    real_diagonal(a, n);
    let scratch = llt::factor::cholesky_in_place_scratch::<T>(n, Par::Seq, Spec::default());
    let result = llt::factor::cholesky_in_place(
        matrix_mut(a, n, n),
        Default::default(),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Spec::default(),
    );
    for (i, row) in a.chunks_exact_mut(n.max(1)).enumerate() {
        row[i + 1..].fill(T::zero());
    }
    match result {
        Ok(_) => None,
        Err(llt::factor::LltError::NonPositivePivot { index }) => Some(index + 1),
    }
}

pub(crate) fn qr<T: Number>(a: &[T], m: usize, n: usize, complete: bool) -> (Vec<T>, Vec<T>) {
    if !a.iter().all(T::is_finite_impl) {
        // One by one they spread what is not finite, as LAPACK's do.
        return reflections::qr(a, m, n, complete);
    }
    let mut a = a.to_vec();
    let back = range::tame(&mut a);
    let factors = Qr::new(matrix(&a, m, n));
    let mut r = elements(factors.thin_R());
    range::scale(&mut r, back);
    let q = match complete {
        true => factors.compute_Q(),
        false => factors.compute_thin_Q(),
    };
    // Rows of zeros complete the triangle.
    r.resize(q.ncols() * n, T::zero());
    (elements(q.as_ref()), r)
}
