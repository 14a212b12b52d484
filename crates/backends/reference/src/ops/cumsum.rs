use rustorch_ir::ops::Cumsum;

use crate::Values;
use crate::operand::{Call, Misuse, from_last};
use crate::values::{Element, each_type};

pub(crate) fn evaluate(op: &Cumsum, call: &Call) -> Result<Values, Misuse> {
    let x = &call.inputs[0];
    let size = x.shape()[op.dim];
    let sums = each_type!(&*x.with_last(&[op.dim]), x => running_sums(x, size));
    Ok(from_last(&sums, x.shape(), op.dim))
}

fn running_sums<T: Element>(x: &[T], size: usize) -> Vec<T> {
    let mut sums = x.to_vec();
    for run in sums.chunks_mut(size.max(1)) {
        let mut sum = T::ZERO;
        for x in run {
            sum = sum.plus(*x);
            *x = sum;
        }
    }
    sums
}
