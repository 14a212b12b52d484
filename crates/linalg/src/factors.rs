//! Cholesky, LU and QR.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::lu::partial_pivoting::factor as lu;
use faer::linalg::solvers::Qr;
use faer::{Par, Spec};

use crate::{Number, elements, matrix, matrix_mut, real_diagonal};

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

pub(crate) fn lu<T: Number>(a: &mut [T], m: usize, n: usize) -> Vec<usize> {
    let (mut rows, mut places) = (vec![0_usize; m], vec![0_usize; m]);
    let scratch = lu::lu_in_place_scratch::<usize, T>(m, n, Par::Seq, Spec::default());
    lu::lu_in_place(
        matrix_mut(a, m, n),
        &mut rows,
        &mut places,
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Spec::default(),
    );
    exchanges(&rows, m.min(n))
}

/// The exchanges that bring row `rows[i]` to place `i`, one after the other.
fn exchanges(rows: &[usize], count: usize) -> Vec<usize> {
    // Which row is where, and where is which.
    let mut row_at: Vec<usize> = (0..rows.len()).collect();
    let mut place_of = row_at.clone();
    let mut exchange = |i: usize| {
        let from = place_of[rows[i]];
        row_at.swap(i, from);
        place_of.swap(row_at[i], row_at[from]);
        from
    };
    (0..count).map(&mut exchange).collect()
}

pub(crate) fn qr<T: Number>(a: &[T], m: usize, n: usize, complete: bool) -> (Vec<T>, Vec<T>) {
    let factors = Qr::new(matrix(a, m, n));
    let mut r = elements(factors.thin_R());
    let q = match complete {
        true => factors.compute_Q(),
        false => factors.compute_thin_Q(),
    };
    // Rows of zeros complete the triangle.
    r.resize(q.ncols() * n, T::zero());
    (elements(q.as_ref()), r)
}
