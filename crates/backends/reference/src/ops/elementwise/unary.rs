use num_complex::Complex64;
use rustorch_ir::ops::{Unary, UnaryOp};

use super::binary::quotient;
use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Unary, call: &Call) -> Result<Values, Misuse> {
    Ok(match &*call.inputs[0].values {
        Values::Float(x) if op.op == UnaryOp::IsNan => {
            Values::Int(x.iter().map(|x| x.is_nan().into()).collect())
        }
        Values::Float(x) => Values::Float(x.iter().map(|&x| real(op.op, x)).collect()),
        Values::Int(x) => Values::Int(x.iter().map(|&x| integer(op.op, x)).collect()),
        Values::Complex(x) => match op.op {
            UnaryOp::Abs => Values::Float(x.iter().map(|z| z.norm()).collect()),
            UnaryOp::Real => Values::Float(x.iter().map(|z| z.re).collect()),
            UnaryOp::Imag => Values::Float(x.iter().map(|z| z.im).collect()),
            _ => Values::Complex(x.iter().map(|&z| complex(op.op, z)).collect()),
        },
        Values::Blocks(_) => unreachable!("inference admits only scalars"),
    })
}

fn real(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign if x > 0.0 => 1.0,
        UnaryOp::Sign if x < 0.0 => -1.0,
        UnaryOp::Sign => 0.0,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Trunc => x.trunc(),
        _ => match op.defined() {
            Some((definition, _)) => definition(x),
            None => unreachable!("{op:?} of a real number"),
        },
    }
}

fn integer(op: UnaryOp, x: i128) -> i128 {
    match op {
        UnaryOp::Neg => x.wrapping_neg(),
        UnaryOp::Abs => x.wrapping_abs(),
        UnaryOp::Sign => x.signum(),
        UnaryOp::Not => 1 - x,
        _ => unreachable!("{op:?} of an integer"),
    }
}

fn complex(op: UnaryOp, z: Complex64) -> Complex64 {
    match op {
        UnaryOp::Neg => -z,
        UnaryOp::Exp => z.exp(),
        UnaryOp::Reciprocal => quotient(Complex64::ONE, z),
        UnaryOp::Conj => z.conj(),
        _ => unreachable!("{op:?} of a complex number"),
    }
}
