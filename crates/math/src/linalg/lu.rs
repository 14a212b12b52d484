//! `P·A = L·U` by partial pivoting, as LAPACK's `getrf`: a column without a pivot is left as it is, so
//! that singular matrices have factors, too.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::solve_unit_lower_triangular_in_place as solve_lower;
use faer::{Accum, Par};

use super::{Number, matrix_mut, range};

/// So many columns, or fewer, are factorised one by one.
const PANEL: usize = 4;

pub(crate) fn lu<T: Number>(a: &mut [T], m: usize, n: usize) -> Vec<usize> {
    let k = m.min(n);
    let mut exchanges = Vec::with_capacity(k);
    columns(a, [m, n], 0..k, &mut exchanges);
    if k < n {
        let (l, right) = matrix_mut(a, m, n).split_at_col_mut(k);
        solve_lower(l.as_ref(), right, Par::Seq);
    }
    exchanges
}

/// Factorises some columns, from the row of the first one's number on; whole rows are exchanged. The columns have
/// been brought up to date with all columns before.
fn columns<T: Number>(
    a: &mut [T],
    [m, n]: [usize; 2],
    range: Range<usize>,
    exchanges: &mut Vec<usize>,
) {
    if range.len() <= PANEL {
        return range.clone().for_each(|j| {
            exchanges.push(column(a, [m, n], j, range.end));
        });
    }
    let half = (range.len() / 2).next_multiple_of(PANEL);
    let middle = range.start + half;
    columns(a, [m, n], range.start..middle, exchanges);
    let rest =
        matrix_mut(a, m, n).submatrix_mut(range.start, range.start, m - range.start, range.len());
    let (l, mut right, left, below) = rest.split_at_mut(half, half);
    solve_lower(l.as_ref(), right.as_mut(), Par::Seq);
    matmul(
        below,
        Accum::Add,
        left.as_ref(),
        right.as_ref(),
        -T::one(),
        Par::Seq,
    );
    columns(a, [m, n], middle..range.end, exchanges);
}

/// Makes column `j` of `L`, and takes it out of the columns up to `end`. Gives the row that row `j` was
/// exchanged with.
fn column<T: Number>(a: &mut [T], [m, n]: [usize; 2], j: usize, end: usize) -> usize {
    let size = |i: usize| T::abs1_impl(&a[i * n + j]);
    // NaN counts as the largest, so that it spreads.
    let larger = |best: (usize, f64), i| match size(i).total_cmp(&best.1).is_gt() {
        true => (i, size(i)),
        false => best,
    };
    let (row, largest) = (j + 1..m).fold((j, size(j)), larger);
    if row != j {
        let (above, below) = a.split_at_mut(row * n);
        above[j * n..][..n].swap_with_slice(&mut below[..n]);
    }
    if largest == 0.0 {
        return row;
    }
    let (above, below) = a.split_at_mut((j + 1) * n);
    let (pivot, behind) = (above[j * n + j], &above[j * n + j + 1..j * n + end]);
    let unit = range::unit(largest);
    for below in below.chunks_exact_mut(n) {
        let factor = range::quotient(below[j], pivot, unit);
        below[j] = factor;
        let rest = below[j + 1..end].iter_mut().zip(behind);
        rest.for_each(|(x, u)| *x -= factor * *u);
    }
    row
}
