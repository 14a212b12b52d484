use std::cmp::Ordering;

use num_complex::Complex64;
use rustorch_ir::DType;
use rustorch_ir::ops::{Binary, BinaryOp};

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Binary, call: &Call) -> Result<Values, Misuse> {
    let a = call.inputs[0].broadcast(&call.output().shape);
    let b = call.inputs[1].broadcast(&call.output().shape);
    let dtype = call.output().dtype;
    Ok(match (&*a, &*b) {
        (Values::Float(a), Values::Float(b)) if op.op == BinaryOp::Complex => {
            let pairs = a.iter().zip(b);
            Values::Complex(pairs.map(|(&re, &im)| Complex64::new(re, im)).collect())
        }
        (Values::Float(a), Values::Float(b)) if op.op == BinaryOp::NextAfter => {
            let pairs = a.iter().zip(b);
            Values::Float(pairs.map(|(&a, &b)| next_after(a, b, dtype)).collect())
        }
        (Values::Float(a), Values::Float(b)) => {
            let pairs = a.iter().zip(b);
            Values::Float(pairs.map(|(&a, &b)| real(op.op, a, b)).collect())
        }
        (Values::Int(a), Values::Int(b)) => {
            let pairs = a.iter().zip(b).enumerate();
            let results = pairs.map(|(i, (&a, &b))| {
                integer(op.op, a, b, dtype)
                    .ok_or_else(|| Misuse(format!("element {i} is {a} divided by 0")))
            });
            Values::Int(results.collect::<Result<_, _>>()?)
        }
        (Values::Complex(a), Values::Complex(b)) => {
            let pairs = a.iter().zip(b);
            Values::Complex(pairs.map(|(&a, &b)| complex(op.op, a, b)).collect())
        }
        _ => unreachable!("inference admits only operands of one dtype"),
    })
}

fn real(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::FloorDivide => rustorch_ir::special::floor_divide(a, b),
        BinaryOp::Remainder => remainder(a, b),
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Maximum => maximum(a, b),
        BinaryOp::Minimum => minimum(a, b),
        _ => match op.defined() {
            Some((definition, _)) => definition(a, b),
            None => unreachable!("{op:?} of real numbers"),
        },
    }
}

/// The next number that `dtype`, of single or double precision, has from `a` towards `b`.
fn next_after(a: f64, b: f64, dtype: DType) -> f64 {
    let single = dtype == DType::F32;
    match a.partial_cmp(&b) {
        None => f64::NAN,
        Some(Ordering::Equal) => b,
        Some(Ordering::Less) if single => (a as f32).next_up().into(),
        Some(Ordering::Less) => a.next_up(),
        Some(Ordering::Greater) if single => (a as f32).next_down().into(),
        Some(Ordering::Greater) => a.next_down(),
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    match b {
        0 => a,
        _ => greatest_common_divisor(b, a % b),
    }
}

/// The exact remainder, with the sign of the divisor.
fn remainder(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) {
        r + b
    } else {
        r
    }
}

/// The larger one; NaN if one is NaN.
pub(crate) fn maximum(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// The smaller one; NaN if one is NaN.
pub(crate) fn minimum(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}

/// `None` for a division by zero. The program brings the result into the dtype's range.
fn integer(op: BinaryOp, a: i128, b: i128, dtype: DType) -> Option<i128> {
    let bits = dtype.size().unwrap_or(8) as i128 * 8;
    Some(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::FloorDivide if b == 0 => return None,
        BinaryOp::Remainder if b == 0 => return None,
        BinaryOp::FloorDivide => {
            let crosses = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
            a.wrapping_div(b) - i128::from(crosses)
        }
        BinaryOp::Remainder => {
            let r = a.wrapping_rem(b);
            let crosses = r != 0 && (r < 0) != (b < 0);
            if crosses { r + b } else { r }
        }
        BinaryOp::Pow => power(a, b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::ShiftLeft if (0..bits).contains(&b) => a << b,
        BinaryOp::ShiftLeft => 0,
        BinaryOp::ShiftRight if (0..bits).contains(&b) => a >> b,
        BinaryOp::ShiftRight => -i128::from(a < 0),
        BinaryOp::Gcd => greatest_common_divisor(a.unsigned_abs(), b.unsigned_abs()) as i128,
        _ => unreachable!("{op:?} of integers"),
    })
}

fn power(base: i128, exponent: i128) -> i128 {
    let odd = exponent & 1 != 0;
    match (base, exponent) {
        (1, _) => 1,
        (-1, _) => {
            if odd {
                -1
            } else {
                1
            }
        }
        (_, ..0) => 0,
        _ => {
            let (mut result, mut square, mut rest) = (1i128, base, exponent);
            while rest > 0 {
                if rest & 1 != 0 {
                    result = result.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                rest >>= 1;
            }
            result
        }
    }
}

fn complex(op: BinaryOp, a: Complex64, b: Complex64) -> Complex64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => quotient(a, b),
        _ => unreachable!("{op:?} of complex numbers"),
    }
}

/// `a / b`: no square overflows, and 0 divides each part (R. L. Smith 1962, *Algorithm 116: Complex
/// division*).
pub(crate) fn quotient(a: Complex64, b: Complex64) -> Complex64 {
    if b == Complex64::ZERO {
        return a / 0.0;
    }
    let (larger, scaled) = match b.re.abs() >= b.im.abs() {
        true => (b.re, Complex64::new(1.0, b.im / b.re)),
        false => (b.im, Complex64::new(b.re / b.im, 1.0)),
    };
    a / scaled / larger
}
