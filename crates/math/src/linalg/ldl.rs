//! Symmetric and Hermitian matrices by pivots of
//! [Bunch and Kaufman](https://doi.org/10.1090/S0025-5718-1977-0428694-0), as LAPACK's `sytf2` and
//! `hetf2` choose them.

use super::{Ldl, Number};

/// `(1 + √17) / 8`, which bounds the growth of elements.
const ALPHA: f64 = 0.640_388_203_202_208;

/// The modulus that LAPACK compares pivots by.
fn size<T: Number>(x: T) -> f64 {
    T::real_part_impl(&x).abs() + T::imag_part_impl(&x).abs()
}

/// A lower triangle while it is factorised.
struct Triangle<'a, T> {
    a: &'a mut [T],
    n: usize,
    hermitian: bool,
}

impl<T: Number> Triangle<'_, T> {
    fn at(&self, i: usize, j: usize) -> T {
        self.a[i * self.n + j]
    }

    fn set(&mut self, i: usize, j: usize, x: T) {
        self.a[i * self.n + j] = x;
    }

    /// Value of a transposed element.
    fn turned(&self, x: T) -> T {
        match self.hermitian {
            true => T::conj_impl(&x),
            false => x,
        }
    }

    /// An element of the diagonal; for Hermitian matrices without an imaginary part.
    fn diagonal(&self, i: usize) -> T {
        match self.hermitian {
            true => T::from_real_impl(&T::real_part_impl(&self.at(i, i))),
            false => self.at(i, i),
        }
    }

    /// The first of the largest elements of column `k` below row `from`, and its size.
    fn largest(&self, k: usize, rows: std::ops::Range<usize>) -> Option<(usize, f64)> {
        rows.map(|i| (i, size(self.at(i, k))))
            .reduce(|best, other| if other.1 > best.1 { other } else { best })
    }

    /// The row to exchange with, and the size of the block, at `k`. `None` if the column is 0.
    fn pivot(&self, k: usize) -> Option<(usize, usize)> {
        let here = size(self.diagonal(k));
        let (row, below) = self.largest(k, k + 1..self.n).unwrap_or((k, 0.0));
        if here.max(below) == 0.0 || here.is_nan() {
            return None;
        }
        if here >= ALPHA * below {
            return Some((k, 1));
        }
        let left = (k..row).map(|j| size(self.at(row, j))).fold(0.0, f64::max);
        let under = self
            .largest(row, row + 1..self.n)
            .map_or(0.0, |(_, size)| size);
        let across = left.max(under);
        Some(if here >= ALPHA * below * (below / across) {
            (k, 1)
        } else if size(self.diagonal(row)) >= ALPHA * across {
            (row, 1)
        } else {
            (row, 2)
        })
    }

    /// Exchanges rows and columns `i < j` of the rest from column `k` on.
    fn exchange(&mut self, k: usize, i: usize, j: usize) {
        for row in j + 1..self.n {
            self.a.swap(row * self.n + i, row * self.n + j);
        }
        for between in i + 1..j {
            let (x, y) = (self.at(between, i), self.at(j, between));
            self.set(between, i, self.turned(y));
            self.set(j, between, self.turned(x));
        }
        self.set(j, i, self.turned(self.at(j, i)));
        let (x, y) = (self.diagonal(i), self.diagonal(j));
        self.set(i, i, y);
        self.set(j, j, x);
        if i > k {
            self.a.swap(i * self.n + k, j * self.n + k);
        }
    }

    /// Takes a pivot of one element out of the rest.
    fn eliminate(&mut self, k: usize) {
        let pivot = self.diagonal(k);
        self.set(k, k, pivot);
        for j in k + 1..self.n {
            let factor = self.turned(self.at(j, k)) / pivot;
            for i in j..self.n {
                let rest = self.at(i, j) - self.at(i, k) * factor;
                self.set(i, j, rest);
            }
            self.set(j, j, self.diagonal(j));
        }
        for i in k + 1..self.n {
            self.set(i, k, self.at(i, k) / pivot);
        }
    }

    /// Takes a block of 2 × 2 out of the rest.
    fn eliminate_block(&mut self, k: usize) {
        for i in [k, k + 1] {
            self.set(i, i, self.diagonal(i));
        }
        for j in k + 2..self.n {
            let mut x = [self.at(j, k), self.at(j, k + 1)];
            // A row of L times the block is a row of what is left: turned, a system with the block.
            x = x.map(|x| self.turned(x));
            solve_block(self, k, &mut x);
            let x = x.map(|x| self.turned(x));
            for i in j..self.n {
                let product =
                    self.at(i, k) * self.turned(x[0]) + self.at(i, k + 1) * self.turned(x[1]);
                self.set(i, j, self.at(i, j) - product);
            }
            self.set(j, k, x[0]);
            self.set(j, k + 1, x[1]);
            self.set(j, j, self.diagonal(j));
        }
    }
}

/// Solves a system with the block of 2 × 2 at `k`.
fn solve_block<T: Number>(a: &Triangle<T>, k: usize, x: &mut [T; 2]) {
    // Divided by what is beside the diagonal, which is the largest.
    let beside = a.at(k + 1, k);
    let (first, second) = (a.diagonal(k) / a.turned(beside), a.diagonal(k + 1) / beside);
    let determinant = first * second - T::one();
    let (y, z) = (x[0] / a.turned(beside), x[1] / beside);
    *x = [
        (second * y - z) / determinant,
        (first * z - y) / determinant,
    ];
}

pub(crate) fn factor<T: Number>(a: &mut [T], n: usize, hermitian: bool) -> Ldl {
    let mut a = Triangle { a, n, hermitian };
    let mut found = Ldl {
        pivots: Vec::with_capacity(n),
        zero: None,
    };
    let mut k = 0;
    while k < n {
        let Some((row, size)) = a.pivot(k) else {
            found.zero.get_or_insert(k);
            found.pivots.push(k as i32 + 1);
            a.set(k, k, a.diagonal(k));
            k += 1;
            continue;
        };
        let last = k + size - 1;
        if row != last {
            a.exchange(k, last, row);
        }
        let number = row as i32 + 1;
        match size {
            1 => {
                found.pivots.push(number);
                a.eliminate(k);
            }
            _ => {
                found.pivots.extend([-number; 2]);
                a.eliminate_block(k);
            }
        }
        k += size;
    }
    for i in 0..n {
        a.a[i * n + i + 1..(i + 1) * n].fill(T::zero());
    }
    found
}

/// A pivot's row, from 0, if it is one of `n`.
fn row(pivot: i32, n: usize) -> Option<usize> {
    let row = (pivot.unsigned_abs() as usize).checked_sub(1)?;
    (row < n).then_some(row)
}

pub(crate) fn solve<T: Number>(
    mut factors: Vec<T>,
    pivots: &[i32],
    hermitian: bool,
    b: &mut [T],
    [n, columns]: [usize; 2],
) -> Option<()> {
    let a = Triangle {
        a: &mut factors,
        n,
        hermitian,
    };
    let swap = |b: &mut [T], i: usize, j: usize| {
        (0..columns).for_each(|c| b.swap(i * columns + c, j * columns + c));
    };
    let mut blocks = Vec::new();
    let mut k = 0;
    while k < n {
        let size = if pivots[k] > 0 { 1 } else { 2 };
        let (last, with) = (k + size - 1, row(pivots[k], n)?);
        if last == n {
            return None;
        }
        swap(b, last, with);
        for i in last + 1..n {
            for j in k..=last {
                (0..columns).for_each(|c| {
                    let known = b[j * columns + c];
                    b[i * columns + c] -= a.at(i, j) * known;
                });
            }
        }
        for c in 0..columns {
            if size == 1 {
                b[k * columns + c] /= a.diagonal(k);
            } else {
                let places = [k * columns + c, last * columns + c];
                let mut x = places.map(|at| b[at]);
                solve_block(&a, k, &mut x);
                b[places[0]] = x[0];
                b[places[1]] = x[1];
            }
        }
        blocks.push((k, last, with));
        k += size;
    }
    for (k, last, with) in blocks.into_iter().rev() {
        for j in k..=last {
            for i in last + 1..n {
                (0..columns).for_each(|c| {
                    let known = b[i * columns + c];
                    b[j * columns + c] -= a.turned(a.at(i, j)) * known;
                });
            }
        }
        swap(b, last, with);
    }
    Some(())
}
