use num_complex::Complex64;
use rustorch_ir::ops::Eig;
use rustorch_ir::order::sort_by;

use super::geqrf::{factor, product};
use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

/// Steps of the iteration for each eigenvalue.
const STEPS: usize = 80;

/// Steps after which one has another shift, as some matrices come back to themselves by the usual one.
const PATIENCE: usize = 10;

pub(crate) fn evaluate(op: &Eig, call: &Call) -> Result<Vec<Values>, Misuse> {
    let matrices = call.inputs[0].matrices();
    let values: Vec<_> = matrices.iter().map(eigenvalues).collect();
    let mut results = vec![matrix::values(call.output(), values.iter().cloned())];
    if op.vectors {
        let each = matrices.iter().zip(&values);
        let vectors = each.map(|(a, values)| eigenvectors(a, values).elements);
        results.push(matrix::values(&call.outputs[1], vectors));
    }
    Ok(results)
}

/// A matrix with the same eigenvalues and with zeros below the elements that are below the diagonal.
fn hessenberg(a: &Matrix) -> Matrix {
    let n = a.n;
    let mut a = a.clone();
    for k in 0..n.saturating_sub(2) {
        let rest = n - k - 1;
        let mut below = Matrix::new(rest, 1, |i, _| a[[k + 1 + i, k]]);
        let taus = factor(&mut below);
        let turn = product(&below, &taus, rest);
        let one = Matrix::identity(n, n);
        let q = Matrix::new(n, n, |i, j| match i.min(j) > k {
            true => turn[[i - k - 1, j - k - 1]],
            false => one[[i, j]],
        });
        a = q.adjoint().times(&a).times(&q);
        (k + 2..n).for_each(|i| a[[i, k]] = Complex64::ZERO);
    }
    a
}

/// Francis' iteration with Wilkinson's shift: a matrix factorised as `Q·R` becomes `R·Q`, until the
/// last row is 0 but for its end.
fn eigenvalues(a: &Matrix) -> Vec<Complex64> {
    let mut a = hessenberg(a);
    let mut values = Vec::new();
    for n in (1..=a.n).rev() {
        a = Matrix::new(n, n, |i, j| a[[i, j]]);
        for step in 1..=STEPS {
            let below = n.checked_sub(2).map_or(0.0, |i| a[[n - 1, i]].norm());
            // Squares of what is smaller yet have no digits left.
            if below <= 1e-18 * a.elements.iter().map(|x| x.norm()).sum::<f64>() {
                break;
            }
            let mut shift = shift(&a);
            if step % PATIENCE == 0 {
                shift += below;
            }
            let mut factors = a.clone();
            (0..n).for_each(|i| factors[[i, i]] -= shift);
            let taus = factor(&mut factors);
            let q = product(&factors, &taus, n);
            a = q.adjoint().times(&a).times(&q);
        }
        values.push(a[[n - 1, n - 1]]);
    }
    sort_by(&mut values, |x, y| {
        x.re.total_cmp(&y.re).then(y.im.total_cmp(&x.im))
    });
    values
}

/// The eigenvalue of the last two rows and columns that is nearer to the last element.
fn shift(a: &Matrix) -> Complex64 {
    let Some(i) = a.n.checked_sub(2) else {
        return a[[0, 0]];
    };
    let j = i + 1;
    let middle = (a[[i, i]] + a[[j, j]]) / 2.0;
    let half = (a[[i, i]] - a[[j, j]]) / 2.0;
    let root = (half * half + a[[i, j]] * a[[j, i]]).sqrt();
    let both = [middle - root, middle + root];
    let [first, second] = both.map(|x| (x - a[[j, j]]).norm());
    if first < second { both[0] } else { both[1] }
}

/// Inverse iteration: solving with the matrix less nearly an eigenvalue leaves its vector alone.
fn eigenvectors(a: &Matrix, values: &[Complex64]) -> Matrix {
    let mut vectors = Matrix::new(a.n, a.n, |_, _| Complex64::ONE);
    for (j, &value) in values.iter().enumerate() {
        let mut x = vectors.columns(&[j]);
        for _ in 0..4 {
            let near = value + 1e-9 * (1.0 + value.norm());
            let shifted = |i, k| if i == k { a[[i, k]] - near } else { a[[i, k]] };
            let mut factors = Matrix::new(a.n, a.n, shifted);
            let taus = factor(&mut factors);
            x = product(&factors, &taus, a.n).adjoint().times(&x);
            super::solve_triangular::upper(&factors, &mut x);
            let length = x.length(0);
            x.scale(0, (1.0 / length).into());
        }
        let phase = x.phase(0);
        (0..a.n).for_each(|i| vectors[[i, j]] = x[[i, 0]] * phase);
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of powers of eigenvalues are the traces of powers.
    #[test]
    fn eigenvalues_have_the_matrix_traces() {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        for trial in 0..2000 {
            let n = 1 + trial % 6;
            let numbers: Vec<[f64; 2]> = (0..n * n).map(|_| [next(), next()]).collect();
            let number = |i: usize, j: usize| {
                let [re, im] = numbers[i * n + j];
                let im = if trial % 4 < 2 { im } else { 0.0 };
                let large = if i == j && trial % 2 == 0 {
                    n as f64
                } else {
                    0.0
                };
                Complex64::new(re + large, im)
            };
            let a = Matrix::new(n, n, number);
            let values = eigenvalues(&a);
            let mut power = Matrix::identity(n, n);
            for k in 1..=3 {
                power = power.times(&a);
                let trace: Complex64 = (0..n).map(|i| power[[i, i]]).sum();
                let sum: Complex64 = values.iter().map(|value| value.powu(k)).sum();
                assert!((trace - sum).norm() < 1e-10, "{trial}: {trace} {sum}");
            }
        }
    }
}
