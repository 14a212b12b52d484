use num_complex::Complex64;
use rustorch_ir::ops::{Svd, SvdVectors};
use rustorch_ir::order::order;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

/// Times that all pairs of columns are made orthogonal.
const SWEEPS: usize = 30;

pub(crate) fn evaluate(op: &Svd, call: &Call) -> Result<Vec<Values>, Misuse> {
    let found: Vec<_> = call.inputs[0].matrices().iter().map(svd).collect();
    let values = found
        .iter()
        .map(|(_, s, _)| s.iter().map(|&s| s.into()).collect());
    if op.vectors == SvdVectors::No {
        return Ok(vec![matrix::values(call.output(), values)]);
    }
    let [left, s, right] = call.outputs else {
        unreachable!("inference gives three results");
    };
    let u = found.iter().map(|(u, ..)| u.elements.clone());
    let vh = found.iter().map(|(.., v)| v.adjoint().elements);
    Ok(vec![
        matrix::values(left, u),
        matrix::values(s, values),
        matrix::values(right, vh),
    ])
}

/// `U`, the values, and `V`.
fn svd(a: &Matrix) -> (Matrix, Vec<f64>, Matrix) {
    let (mut u, s, mut v) = match a.m >= a.n {
        true => tall(a),
        false => {
            let (v, s, u) = tall(&a.adjoint());
            (u, s, v)
        }
    };
    for j in 0..s.len() {
        let phase = u.phase(j);
        u.scale(j, phase);
        v.scale(j, phase);
    }
    (u, s, v)
}

/// One-sided rotations ([Hestenes 1958](https://doi.org/10.1137/0106005)): `A·V` gets orthogonal
/// columns, whose lengths are the values.
fn tall(a: &Matrix) -> (Matrix, Vec<f64>, Matrix) {
    let (mut u, mut v) = (a.clone(), Matrix::identity(a.n, a.n));
    for _ in 0..SWEEPS {
        for p in 0..a.n {
            for q in p + 1..a.n {
                let dot: Complex64 = (0..a.m).map(|i| u[[i, p]].conj() * u[[i, q]]).sum();
                let (of_p, of_q) = (u.length(p).powi(2), u.length(q).powi(2));
                if let Some(rotation) = rotation(of_p, of_q, dot) {
                    rotate(&mut u, p, q, rotation);
                    rotate(&mut v, p, q, rotation);
                }
            }
        }
    }
    let lengths: Vec<f64> = (0..a.n).map(|j| u.length(j)).collect();
    let order = order(a.n, &|i, j| lengths[j].total_cmp(&lengths[i]));
    (0..a.n).for_each(|j| u.scale(j, (1.0 / lengths[j]).into()));
    let s = order.iter().map(|&j| lengths[j]).collect();
    (u.columns(&order), s, v.columns(&order))
}

/// Cosine, and sine with its phase, of the rotation that makes the Hermitian matrix
/// `[[p, dot], [conj(dot), q]]` diagonal; none where it is.
pub(crate) fn rotation(p: f64, q: f64, dot: Complex64) -> Option<(f64, Complex64)> {
    let size = dot.norm();
    if size == 0.0 {
        return None;
    }
    let slope = (q - p) / (2.0 * size);
    let tangent = 1f64.copysign(slope) / (slope.abs() + slope.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    Some((cosine, dot / size * (cosine * tangent)))
}

/// Turns two columns into each other.
pub(crate) fn rotate(a: &mut Matrix, p: usize, q: usize, (cosine, sine): (f64, Complex64)) {
    for i in 0..a.m {
        let (x, y) = (a[[i, p]], a[[i, q]]);
        a[[i, p]] = x * cosine - y * sine.conj();
        a[[i, q]] = x * sine + y * cosine;
    }
}
