//! Householder's reflections, one by one, as LAPACK's `geqr2` and `org2r` define them ([LAPACK Users'
//! Guide](https://netlib.org/lapack/lug/node69.html)): `H = 1 − τ·v·vᴴ`, where the first element of `v`
//! is 1. `Hᴴ` turns a column into a real number `β` and zeros.

use super::{Number, range};

pub(crate) fn factor<T: Number>(a: &mut [T], m: usize, n: usize) -> Vec<T> {
    let reflect = |i: usize| {
        let (tau, beta) = reflection(a, i, n);
        // Hᴴ on the columns behind, with the 1 of v in place.
        a[i * n + i] = T::one();
        apply(a, i, i + 1, n, T::conj_impl(&tau));
        a[i * n + i] = beta;
        tau
    };
    (0..m.min(n)).map(reflect).collect()
}

/// Makes the vector of column `i`, from row `i` on, but for its 1. Gives `τ` and `β`.
fn reflection<T: Number>(a: &mut [T], i: usize, n: usize) -> (T, T) {
    let column = || (i * n + i..a.len()).step_by(n);
    let largest = column().map(|at| T::abs1_impl(&a[at]));
    // Squares stay in range.
    let unit = range::unit(largest.fold(0.0, f64::max));
    let near_one = |x: &T| T::mul_real_impl(x, &unit);
    let alpha = near_one(&a[i * n + i]);
    let below: f64 = column()
        .skip(1)
        .map(|at| T::abs2_impl(&near_one(&a[at])))
        .sum();
    if below == 0.0 && T::imag_part_impl(&alpha) == 0.0 {
        return (T::zero(), a[i * n + i]);
    }
    let length = (T::abs2_impl(&alpha) + below).sqrt();
    let beta = T::from_real_impl(&-length.copysign(T::real_part_impl(&alpha)));
    let scale = T::one() / (alpha - beta);
    let tail = (i * n + i..a.len()).step_by(n).skip(1);
    tail.for_each(|at| a[at] = near_one(&a[at]) * scale);
    let tau = (beta - alpha) / beta;
    (tau, T::mul_real_impl(&beta, &(1.0 / unit)))
}

/// Multiplies the columns from `first` on by `1 − τ·v·vᴴ`, whose vector `v` is column `i` from row
/// `i` on.
fn apply<T: Number>(a: &mut [T], i: usize, first: usize, n: usize, tau: T) {
    if tau == T::zero() || first >= n {
        return;
    }
    let mut sums = vec![T::zero(); n - first];
    for row in a[i * n..].chunks_exact(n) {
        let v = T::conj_impl(&row[i]);
        sums.iter_mut()
            .zip(&row[first..])
            .for_each(|(sum, x)| *sum += v * *x);
    }
    for row in a[i * n..].chunks_exact_mut(n) {
        let v = tau * row[i];
        row[first..]
            .iter_mut()
            .zip(&sums)
            .for_each(|(x, sum)| *x -= v * *sum);
    }
}

pub(crate) fn product<T: Number>(a: &mut [T], m: usize, n: usize, tau: &[T]) {
    // Columns that no reflection belongs to begin as those of the identity.
    for column in tau.len()..n {
        for row in 0..m {
            a[row * n + column] = if row == column { T::one() } else { T::zero() };
        }
    }
    for (i, &tau) in tau.iter().enumerate().rev() {
        a[i * n + i] = T::one();
        apply(a, i, i + 1, n, tau);
        for row in 0..i {
            a[row * n + i] = T::zero();
        }
        for row in i + 1..m {
            a[row * n + i] *= -tau;
        }
        a[i * n + i] = T::one() - tau;
    }
}

pub(crate) fn qr<T: Number>(a: &[T], m: usize, n: usize, complete: bool) -> (Vec<T>, Vec<T>) {
    let mut factors = a.to_vec();
    let tau = factor(&mut factors, m, n);
    let k = if complete { m } else { m.min(n) };
    let upper = |at: usize| match at / n > at % n {
        true => T::zero(),
        false => factors[at],
    };
    let r = (0..k * n).map(upper).collect();
    let vector = |at: usize| {
        let (row, column) = (at / k, at % k);
        if column < tau.len() {
            factors[row * n + column]
        } else {
            T::zero()
        }
    };
    let mut q: Vec<T> = (0..m * k).map(vector).collect();
    product(&mut q, m, k, &tau);
    (q, r)
}
