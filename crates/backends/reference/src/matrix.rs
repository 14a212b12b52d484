//! Matrices of complex numbers, and how operands and results are made of them.

use std::ops::{Index, IndexMut};

use num_complex::Complex64;
use rustorch_ir::TensorType;

use crate::Values;
use crate::operand::Operand;

/// A matrix in row-major order.
#[derive(Clone)]
pub(crate) struct Matrix {
    /// Rows.
    pub(crate) m: usize,
    /// Columns.
    pub(crate) n: usize,
    /// The elements.
    pub(crate) elements: Vec<Complex64>,
}

impl Index<[usize; 2]> for Matrix {
    type Output = Complex64;

    fn index(&self, [i, j]: [usize; 2]) -> &Complex64 {
        &self.elements[i * self.n + j]
    }
}

impl IndexMut<[usize; 2]> for Matrix {
    fn index_mut(&mut self, [i, j]: [usize; 2]) -> &mut Complex64 {
        &mut self.elements[i * self.n + j]
    }
}

impl Matrix {
    /// A matrix by its elements.
    pub(crate) fn new(m: usize, n: usize, f: impl Fn(usize, usize) -> Complex64) -> Self {
        let elements = (0..m * n).map(|at| f(at / n, at % n)).collect();
        Self { m, n, elements }
    }

    /// 1 on the diagonal, 0 elsewhere.
    pub(crate) fn identity(m: usize, n: usize) -> Self {
        Self::new(m, n, |i, j| f64::from(u8::from(i == j)).into())
    }

    /// The product.
    pub(crate) fn times(&self, other: &Self) -> Self {
        Self::new(self.m, other.n, |i, j| {
            (0..self.n).map(|k| self[[i, k]] * other[[k, j]]).sum()
        })
    }

    /// The conjugated transpose.
    pub(crate) fn adjoint(&self) -> Self {
        Self::new(self.n, self.m, |i, j| self[[j, i]].conj())
    }

    /// A selection of the columns.
    pub(crate) fn columns(&self, columns: &[usize]) -> Self {
        Self::new(self.m, columns.len(), |i, j| self[[i, columns[j]]])
    }

    /// The length of a column.
    pub(crate) fn length(&self, j: usize) -> f64 {
        (0..self.m)
            .map(|i| self[[i, j]].norm_sqr())
            .sum::<f64>()
            .sqrt()
    }

    /// Multiplies a column by a number.
    pub(crate) fn scale(&mut self, j: usize, factor: Complex64) {
        (0..self.m).for_each(|i| self[[i, j]] *= factor);
    }

    /// The factor that makes an element of a column real and positive: the first one with a modulus
    /// of at least half the largest.
    pub(crate) fn phase(&self, j: usize) -> Complex64 {
        let column = || (0..self.m).map(|i| self[[i, j]]);
        let largest = column().map(Complex64::norm).fold(0.0, f64::max);
        let leading = column().find(|x| x.norm() >= largest / 2.0);
        let leading = leading.filter(|x| x.norm() > 0.0);
        leading.map_or(Complex64::ONE, |x| x.conj() / x.norm())
    }
}

impl Operand<'_> {
    /// The matrices of an operand `[…, m, n]`.
    pub(crate) fn matrices(&self) -> Vec<Matrix> {
        let [batch @ .., m, n] = &self.shape()[..] else {
            unreachable!("inference admits only matrices");
        };
        let parts = self.parts(batch.iter().product(), m * n);
        let matrix = |elements| Matrix {
            m: *m,
            n: *n,
            elements,
        };
        parts.into_iter().map(matrix).collect()
    }

    /// The elements as `count` runs of `len`.
    pub(crate) fn parts(&self, count: usize, len: usize) -> Vec<Vec<Complex64>> {
        let element = |at: usize| match &*self.values {
            Values::Float(x) => x[at].into(),
            Values::Complex(x) => x[at],
            _ => unreachable!("inference admits only floating-point and complex values"),
        };
        (0..count)
            .map(|i| (i * len..(i + 1) * len).map(element).collect())
            .collect()
    }
}

/// The elements of a result, one matrix or vector after the other.
pub(crate) fn values(ty: &TensorType, parts: impl IntoIterator<Item = Vec<Complex64>>) -> Values {
    let elements = parts.into_iter().flatten();
    match ty.dtype.is_complex() {
        true => Values::Complex(elements.collect()),
        false => Values::Float(elements.map(|x| x.re).collect()),
    }
}

/// Whole numbers, one run after the other.
pub(crate) fn numbers(parts: impl IntoIterator<Item = Vec<usize>>) -> Values {
    Values::Int(parts.into_iter().flatten().map(|x| x as i128).collect())
}
