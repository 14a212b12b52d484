//! Functions of two operands.

use num_complex::Complex;
use num_traits::{CheckedRem, PrimInt, WrappingAdd, WrappingMul, WrappingSub};
use rustorch_ir::ops::BinaryOp;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, unknown, with_type};
use crate::elementwise::map2;
use crate::index::coordinates;
use crate::kernel::{Args, Launch, Misuse};
use crate::math::Real;
use crate::reader::Reader;
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Binary,
    accepts,
    layouts: Layouts::Any,
    launch,
};

/// A loop over blocks of two operands.
type Loop<X, Y = X> = fn(&[X], &[X], &mut [Y]);

/// Cost of a division or power beside an addition.
const SLOW: usize = 8;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Binary(op) = args.op else {
        return Err(Misuse("not a binary".to_owned()));
    };
    let dtype = args.inputs[0].dtype();
    match dtype {
        DType::F32 if op.op == BinaryOp::Complex => pair::<f32>(&mut args),
        DType::F64 if op.op == BinaryOp::Complex => pair::<f64>(&mut args),
        d if d.is_float() => with_type!(d, floats T => run::<T>(&mut args, op.op, real(op.op))),
        d if d.is_complex() => with_type!(d, complex T => {
            run::<T>(&mut args, op.op, complex(op.op))
        }),
        d => with_type!(d, ints T => {
            if matches!(op.op, BinaryOp::FloorDivide | BinaryOp::Remainder) {
                let somewhere = args.output.ty.shape.elements() > 0;
                check_divisors::<T>(&args.inputs[1], somewhere)?;
            }
            run::<T>(&mut args, op.op, int(op.op))
        }),
    }
}

fn run<T: Element>(
    args: &mut Args,
    op: BinaryOp,
    f: Option<Loop<T::Compute>>,
) -> Result<(), Misuse> {
    let f = f.ok_or_else(|| unknown(args.inputs[0].dtype()))?;
    let work = match op {
        BinaryOp::Pow | BinaryOp::FloorDivide | BinaryOp::Remainder => SLOW,
        _ => 1,
    };
    map2::<T, T>(args, work, f);
    Ok(())
}

fn pair<T: Element<Compute = T>>(args: &mut Args) -> Result<(), Misuse>
where
    Complex<T>: Element<Compute = Complex<T>>,
{
    map2::<T, Complex<T>>(args, 1, |re, im, z| each(re, im, z, Complex::new));
    Ok(())
}

/// `out[i] = f(a[i], b[i])`.
fn each<X: Copy, Y>(a: &[X], b: &[X], out: &mut [Y], f: impl Fn(X, X) -> Y) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}

fn real<T: Real>(op: BinaryOp) -> Option<Loop<T>> {
    Some(match op {
        BinaryOp::Add => |a, b, out| each(a, b, out, |a, b| a + b),
        BinaryOp::Sub => |a, b, out| each(a, b, out, |a, b| a - b),
        BinaryOp::Mul => |a, b, out| each(a, b, out, |a, b| a * b),
        BinaryOp::Div => |a, b, out| each(a, b, out, |a, b| a / b),
        BinaryOp::FloorDivide => |a, b, out| each(a, b, out, floor_divide),
        BinaryOp::Remainder => |a, b, out| each(a, b, out, remainder),
        BinaryOp::Pow => |a, b, out| each(a, b, out, T::powf),
        BinaryOp::Maximum => |a, b, out| {
            each(a, b, out, |a, b| if a > b || a.is_nan() { a } else { b });
        },
        BinaryOp::Minimum => |a, b, out| {
            each(a, b, out, |a, b| if a < b || a.is_nan() { a } else { b });
        },
        _ => return None,
    })
}

/// The exact remainder, with the sign of the divisor.
fn remainder<T: Real>(a: T, b: T) -> T {
    let r = a % b;
    if r != T::zero() && r.is_sign_negative() != b.is_sign_negative() {
        r + b
    } else {
        r
    }
}

/// The floor of the exact quotient: rounding `a / b` first may cross an integer.
fn floor_divide<T: Real>(a: T, b: T) -> T {
    let quotient = a / b;
    if !quotient.is_finite() || b.is_infinite() {
        return quotient.floor();
    }
    let whole = (a - remainder(a, b)) / b;
    // A whole number but for rounding errors, which are less than a half.
    whole.round()
}

/// An integer type.
trait Int: PrimInt + CheckedRem + WrappingAdd + WrappingSub + WrappingMul {}

impl<T: PrimInt + CheckedRem + WrappingAdd + WrappingSub + WrappingMul> Int for T {}

fn int<T: Int>(op: BinaryOp) -> Option<Loop<T>> {
    Some(match op {
        BinaryOp::Add => |a, b, out| each(a, b, out, |a, b| a.wrapping_add(&b)),
        BinaryOp::Sub => |a, b, out| each(a, b, out, |a, b| a.wrapping_sub(&b)),
        BinaryOp::Mul => |a, b, out| each(a, b, out, |a, b| a.wrapping_mul(&b)),
        BinaryOp::FloorDivide => |a, b, out| each(a, b, out, int_floor_divide),
        BinaryOp::Remainder => |a, b, out| each(a, b, out, int_remainder),
        BinaryOp::Pow => |a, b, out| each(a, b, out, int_pow),
        BinaryOp::Maximum => |a, b, out| each(a, b, out, T::max),
        BinaryOp::Minimum => |a, b, out| each(a, b, out, T::min),
        BinaryOp::And => |a, b, out| each(a, b, out, |a, b| a & b),
        BinaryOp::Or => |a, b, out| each(a, b, out, |a, b| a | b),
        BinaryOp::Xor => |a, b, out| each(a, b, out, |a, b| a ^ b),
        _ => return None,
    })
}

/// Of divisors other than 0. The one quotient that does not fit, of the least number and
/// -1, wraps to that number.
fn int_floor_divide<T: Int>(a: T, b: T) -> T {
    let quotient = a.checked_div(&b).unwrap_or(a);
    if crosses(int_rem(a, b), b) {
        quotient - T::one()
    } else {
        quotient
    }
}

fn int_remainder<T: Int>(a: T, b: T) -> T {
    let r = int_rem(a, b);
    if crosses(r, b) { r + b } else { r }
}

/// The remainder with the dividend's sign.
fn int_rem<T: Int>(a: T, b: T) -> T {
    a.checked_rem(&b).unwrap_or(T::zero())
}

/// Does a remainder have to move to the divisor's side of zero?
fn crosses<T: Int>(r: T, b: T) -> bool {
    r != T::zero() && (r < T::zero()) != (b < T::zero())
}

fn int_pow<T: Int>(base: T, exponent: T) -> T {
    let one = T::one();
    if exponent < T::zero() {
        let is_unit = base == one || base == T::zero().wrapping_sub(&one);
        return match is_unit {
            true if exponent & one == one => base,
            true => one,
            false => T::zero(),
        };
    }
    let (mut result, mut square, mut rest) = (one, base, exponent);
    while rest > T::zero() {
        if rest & one == one {
            result = result.wrapping_mul(&square);
        }
        square = square.wrapping_mul(&square);
        rest = rest >> 1;
    }
    result
}

/// Refuses divisors of 0, unless nothing is divided.
fn check_divisors<T: Element<Compute = T> + PrimInt>(
    divisors: &View,
    divides: bool,
) -> Result<(), Misuse> {
    let zero = Reader::<T>::whole(divisors).position(|x| x == T::zero());
    match zero.filter(|_| divides) {
        Some(at) => {
            let at = coordinates(divisors.shape(), at);
            Err(Misuse(format!(
                "integer division by zero: the divisor at {at:?} is 0"
            )))
        }
        None => Ok(()),
    }
}

fn complex<F: Real>(op: BinaryOp) -> Option<Loop<Complex<F>>> {
    Some(match op {
        BinaryOp::Add => |a, b, out| each(a, b, out, |a, b| a + b),
        BinaryOp::Sub => |a, b, out| each(a, b, out, |a, b| a - b),
        BinaryOp::Mul => |a, b, out| each(a, b, out, |a, b| a * b),
        BinaryOp::Div => |a, b, out| each(a, b, out, |a, b| a / b),
        _ => return None,
    })
}
