use num_complex::Complex64;
use rustorch_ir::ops::Ldl;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Ldl, call: &Call) -> Result<[Values; 3], Misuse> {
    let found: Vec<Factors> = (call.inputs[0].matrices().iter())
        .map(|a| factor(a, op.hermitian))
        .collect();
    if op.check && found.iter().any(|f| f.zero > 0) {
        return Err(Misuse("a matrix that is singular".to_owned()));
    }
    let pivots = found.iter().flat_map(|f| f.pivots.iter().copied());
    let pivots = Values::Int(pivots.collect());
    let zeros = found.iter().map(|f| f.zero).collect();
    let factors = found.into_iter().map(|f| f.ld.elements);
    let factors = matrix::values(call.output(), factors);
    Ok([factors, pivots, matrix::numbers([zeros])])
}

struct Factors {
    /// Both factors in the lower triangle.
    ld: Matrix,
    pivots: Vec<i128>,
    /// 0, or the first block that is 0, from 1.
    zero: usize,
}

/// Bunch's and Kaufman's pivoting on a whole matrix. The rows and columns from `k` on are the part
/// that is left.
fn factor(a: &Matrix, hermitian: bool) -> Factors {
    let n = a.n;
    let turned = |x: Complex64| if hermitian { x.conj() } else { x };
    let mut rest = Matrix::new(n, n, |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Greater => a[[i, j]],
        std::cmp::Ordering::Less => turned(a[[j, i]]),
        std::cmp::Ordering::Equal if hermitian => a[[i, i]].re.into(),
        std::cmp::Ordering::Equal => a[[i, i]],
    });
    let mut ld = Matrix::new(n, n, |_, _| Complex64::ZERO);
    let (mut pivots, mut zero, mut k) = (Vec::new(), 0, 0);
    while k < n {
        let (row, size) = pivot(&rest, k).unwrap_or_else(|| {
            zero = if zero == 0 { k + 1 } else { zero };
            (k, 1)
        });
        let last = k + size - 1;
        for i in 0..n {
            rest.elements.swap(last * n + i, row * n + i);
        }
        for i in 0..n {
            rest.elements.swap(i * n + last, i * n + row);
        }
        let number = row as i128 + 1;
        pivots.extend(vec![if size == 1 { number } else { -number }; size]);
        let block = Matrix::new(size, size, |i, j| rest[[k + i, k + j]]);
        for i in 0..size {
            (0..=i).for_each(|j| ld[[k + i, k + j]] = block[[i, j]]);
        }
        for i in last + 1..n {
            let below = [rest[[i, k]], rest[[i, last]]];
            let [x, y] = row_solution(&block, below);
            ld[[i, k]] = x;
            if size == 2 {
                ld[[i, last]] = y;
            }
        }
        let before = rest.clone();
        for i in last + 1..n {
            for j in last + 1..n {
                let product: Complex64 = (k..=last).map(|p| ld[[i, p]] * before[[p, j]]).sum();
                rest[[i, j]] -= product;
            }
        }
        k += size;
    }
    Factors { ld, pivots, zero }
}

/// The row, and the size of the block, that come next; `None` if the column is 0.
fn pivot(rest: &Matrix, k: usize) -> Option<(usize, usize)> {
    let alpha = (1.0 + 17f64.sqrt()) / 8.0;
    let size = |i: usize, j: usize| rest[[i, j]].re.abs() + rest[[i, j]].im.abs();
    // The first of the largest.
    let below = (k + 1..rest.n).rev();
    let row = below.max_by(|&i, &j| size(i, k).total_cmp(&size(j, k)));
    let largest = row.map_or(0.0, |row| size(row, k));
    let here = size(k, k);
    if here.max(largest) == 0.0 || here.is_nan() {
        return None;
    }
    let Some(row) = row.filter(|_| here < alpha * largest) else {
        return Some((k, 1));
    };
    let others = (k..rest.n).filter(|&j| j != row);
    let across = others.map(|j| size(row, j)).fold(0.0, f64::max);
    Some(if here >= alpha * largest * (largest / across) {
        (k, 1)
    } else if size(row, row) >= alpha * across {
        (row, 1)
    } else {
        (row, 2)
    })
}

/// The row whose product with the block is `row`. With a block of 1 × 1 only the first element
/// counts. A block of 0 is left out.
fn row_solution(block: &Matrix, [x, y]: [Complex64; 2]) -> [Complex64; 2] {
    if block.n == 1 {
        let pivot = block[[0, 0]];
        return [
            if pivot == Complex64::ZERO {
                x
            } else {
                x / pivot
            },
            y,
        ];
    }
    let [a, b, c, d] = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|at| block[at]);
    let determinant = a * d - b * c;
    [(x * d - y * c) / determinant, (y * a - x * b) / determinant]
}
