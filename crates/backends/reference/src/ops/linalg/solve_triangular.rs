use num_complex::Complex64;
use rustorch_ir::ops::SolveTriangular;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &SolveTriangular, call: &Call) -> Result<Values, Misuse> {
    let triangles = call.inputs[0].matrices();
    let mut solutions = call.inputs[1].matrices();
    for (a, x) in triangles.iter().zip(&mut solutions) {
        let diagonal = |i| {
            if op.unitriangular {
                Complex64::ONE
            } else {
                a[[i, i]]
            }
        };
        // A lower triangle is an upper one with the unknowns in the opposite order.
        let place = |i: usize| if op.upper { i } else { a.n - 1 - i };
        let a = Matrix::new(a.n, a.n, |i, j| match i == j {
            true => diagonal(place(i)),
            false => a[[place(i), place(j)]],
        });
        let mut turned = Matrix::new(x.m, x.n, |i, j| x[[place(i), j]]);
        upper(&a, &mut turned);
        *x = Matrix::new(x.m, x.n, |i, j| turned[[place(i), j]]);
    }
    let solutions = solutions.into_iter().map(|x| x.elements);
    Ok(matrix::values(call.output(), solutions))
}

/// Solves a system with the upper triangle of `a` in place of its right-hand sides.
pub(crate) fn upper(a: &Matrix, x: &mut Matrix) {
    for j in 0..x.n {
        for i in (0..a.n).rev() {
            let known: Complex64 = (i + 1..a.n).map(|k| a[[i, k]] * x[[k, j]]).sum();
            x[[i, j]] = (x[[i, j]] - known) / a[[i, i]];
        }
    }
}
