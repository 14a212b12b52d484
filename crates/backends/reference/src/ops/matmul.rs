use rustorch_ir::ops::Matmul;
use rustorch_ir::{Layout, Shape};

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::{Element, each_type};

/// Columns of the result that are worked on together, so that they stay in a cache.
const COLUMNS: usize = 256;

pub(crate) fn evaluate(_op: &Matmul, call: &Call) -> Result<Values, Misuse> {
    let (a, b) = (&call.inputs[0], &call.inputs[1]);
    let (batch_a, m, k) = split(a.shape());
    let (batch_b, _, n) = split(b.shape());
    let (batch, ..) = split(&call.output().shape);
    // Places at which the matrices of each batch start.
    let starts_a = Layout::contiguous(&batch_a).broadcast_to(&batch);
    let starts_b = Layout::contiguous(&batch_b).broadcast_to(&batch);
    let starts: Vec<_> = starts_a.positions().zip(starts_b.positions()).collect();
    Ok(each_type!(&*a.values, a => {
        let b = Element::of(&b.values);
        let product = |(i, j): (usize, usize)| {
            multiply(&a[i * m * k..][..m * k], &b[j * k * n..][..k * n], m, k, n)
        };
        starts.into_iter().flat_map(product).collect()
    }))
}

/// The batch dimensions, and the two of a matrix.
fn split(shape: &Shape) -> (Shape, usize, usize) {
    let (batch, matrix) = shape.split_at(shape.len() - 2);
    (batch.into(), matrix[0], matrix[1])
}

fn multiply<T: Element>(a: &[T], b: &[T], m: usize, k: usize, n: usize) -> Vec<T> {
    let mut out = vec![T::ZERO; m * n];
    for first in (0..n).step_by(COLUMNS) {
        let columns = first..n.min(first + COLUMNS);
        for l in 0..k {
            let b = &b[l * n..][columns.clone()];
            for i in 0..m {
                let a = a[i * k + l];
                let out = &mut out[i * n..][columns.clone()];
                for (out, &b) in out.iter_mut().zip(b) {
                    *out = out.plus(a.times(b));
                }
            }
        }
    }
    out
}
