use rustorch_ir::ops::{Scatter, ScatterMode};

use super::gather::addressed;
use crate::Values;
use crate::operand::{Call, Misuse};
use crate::ops::binary::{maximum, minimum};
use crate::values::{Element, each_type};

pub(crate) fn evaluate(op: &Scatter, call: &Call) -> Result<Values, Misuse> {
    let [x, index, source] = call.inputs else {
        unreachable!("inference admits only three operands");
    };
    let positions = addressed(x.ty, op.dim, index.shape(), &index.values)?;
    let values = &*source.values;
    Ok(match (op.mode, &*x.values) {
        (ScatterMode::Set, x) => each_type!(x, x => scatter(x, &positions, values, |_, new| new)),
        (ScatterMode::Add, x) => each_type!(x, x => scatter(x, &positions, values, Element::plus)),
        (ScatterMode::Prod, x) => {
            each_type!(x, x => scatter(x, &positions, values, Element::times))
        }
        (ScatterMode::Max, Values::Float(x)) => {
            Values::Float(scatter(x, &positions, values, maximum))
        }
        (ScatterMode::Min, Values::Float(x)) => {
            Values::Float(scatter(x, &positions, values, minimum))
        }
        (ScatterMode::Max, Values::Int(x)) => {
            Values::Int(scatter(x, &positions, values, i128::max))
        }
        (ScatterMode::Min, Values::Int(x)) => {
            Values::Int(scatter(x, &positions, values, i128::min))
        }
        _ => unreachable!("inference admits only numbers that have an order"),
    })
}

fn scatter<T: Element>(
    x: &[T],
    positions: &[usize],
    source: &Values,
    combine: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut out = x.to_vec();
    for (&at, &value) in positions.iter().zip(T::of(source)) {
        out[at] = combine(out[at], value);
    }
    out
}
