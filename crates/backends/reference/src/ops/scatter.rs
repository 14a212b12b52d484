use rustorch_ir::ops::{Scatter, ScatterMode};

use super::gather::addressed;
use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::{Element, each_type};

pub(crate) fn evaluate(op: &Scatter, call: &Call) -> Result<Values, Misuse> {
    let [x, index, source] = call.inputs else {
        unreachable!("inference admits only three operands");
    };
    let positions = addressed(x.ty, op.dim, index.shape(), &index.values)?;
    Ok(each_type!(&*x.values, x => scatter(op.mode, x, &positions, Element::of(&source.values))))
}

fn scatter<T: Element>(mode: ScatterMode, x: &[T], positions: &[usize], source: &[T]) -> Vec<T> {
    let mut out = x.to_vec();
    for (&at, &value) in positions.iter().zip(source) {
        out[at] = match mode {
            ScatterMode::Set => value,
            ScatterMode::Add => out[at].plus(value),
        };
    }
    out
}
