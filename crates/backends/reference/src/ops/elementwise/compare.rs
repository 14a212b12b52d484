use rustorch_ir::ops::{Compare, CompareOp};

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Compare, call: &Call) -> Result<Values, Misuse> {
    let a = call.inputs[0].broadcast(&call.output().shape);
    let b = call.inputs[1].broadcast(&call.output().shape);
    Ok(Values::Int(match (&*a, &*b) {
        (Values::Float(a), Values::Float(b)) => ordered(op.op, a, b),
        (Values::Int(a), Values::Int(b)) => ordered(op.op, a, b),
        (Values::Complex(a), Values::Complex(b)) => {
            let equal = a.iter().zip(b).map(|(a, b)| a == b);
            equal
                .map(|e| (e == (op.op == CompareOp::Eq)).into())
                .collect()
        }
        _ => unreachable!("inference admits only operands of one dtype"),
    }))
}

fn ordered<T: PartialOrd>(op: CompareOp, a: &[T], b: &[T]) -> Vec<i128> {
    let holds = match op {
        CompareOp::Eq => T::eq,
        CompareOp::Ne => T::ne,
        CompareOp::Lt => T::lt,
        CompareOp::Le => T::le,
        CompareOp::Gt => T::gt,
        CompareOp::Ge => T::ge,
    };
    a.iter().zip(b).map(|(a, b)| holds(a, b).into()).collect()
}
