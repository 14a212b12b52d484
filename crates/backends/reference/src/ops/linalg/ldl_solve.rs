use num_complex::Complex64;
use rustorch_ir::ops::LdlSolve;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};
use crate::values::Element;

pub(crate) fn evaluate(op: &LdlSolve, call: &Call) -> Result<Values, Misuse> {
    let factors = call.inputs[0].matrices();
    let pivots = i128::of(&call.inputs[1].values);
    let mut solutions = call.inputs[2].matrices();
    for (i, (ld, x)) in factors.iter().zip(&mut solutions).enumerate() {
        solve(ld, &pivots[i * ld.n..][..ld.n], op.hermitian, x)?;
    }
    let solutions = solutions.into_iter().map(|x| x.elements);
    Ok(matrix::values(call.output(), solutions))
}

/// The blocks one by one: first and last row, and which row the last was exchanged with.
fn blocks(pivots: &[i128]) -> Result<Vec<[usize; 3]>, Misuse> {
    let (n, mut k, mut blocks) = (pivots.len(), 0, Vec::new());
    while k < n {
        let last = if pivots[k] > 0 { k } else { k + 1 };
        let with = pivots[k].unsigned_abs() as usize;
        if with == 0 || with > n || last >= n {
            let range = format!("a row of {n}, counted from 1, or the negatives of two");
            return Err(Misuse(format!(
                "the pivot {} at {k} is not {range}",
                pivots[k]
            )));
        }
        blocks.push([k, last, with - 1]);
        k = last + 1;
    }
    Ok(blocks)
}

fn solve(ld: &Matrix, pivots: &[i128], hermitian: bool, x: &mut Matrix) -> Result<(), Misuse> {
    let turned = |x: Complex64| if hermitian { x.conj() } else { x };
    let real = |x: Complex64| if hermitian { x.re.into() } else { x };
    let blocks = blocks(pivots)?;
    for j in 0..x.n {
        for &[k, last, with] in &blocks {
            x.elements.swap(last * x.n + j, with * x.n + j);
            for i in last + 1..ld.n {
                let known: Complex64 = (k..=last).map(|p| ld[[i, p]] * x[[p, j]]).sum();
                x[[i, j]] -= known;
            }
            let (a, d, c) = (real(ld[[k, k]]), real(ld[[last, last]]), ld[[last, k]]);
            let [y, z] = [x[[k, j]], x[[last, j]]];
            if k == last {
                x[[k, j]] = y / a;
            } else {
                let determinant = a * d - c * turned(c);
                x[[k, j]] = (y * d - z * turned(c)) / determinant;
                x[[last, j]] = (z * a - y * c) / determinant;
            }
        }
        for &[k, last, with] in blocks.iter().rev() {
            for p in k..=last {
                let known: Complex64 = (last + 1..ld.n)
                    .map(|i| turned(ld[[i, p]]) * x[[i, j]])
                    .sum();
                x[[p, j]] -= known;
            }
            x.elements.swap(last * x.n + j, with * x.n + j);
        }
    }
    Ok(())
}
