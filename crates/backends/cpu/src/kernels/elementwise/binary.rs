//! Functions of two operands.

use half::bf16;
use num_complex::Complex;
use num_traits::{CheckedRem, PrimInt, WrappingAdd, WrappingMul, WrappingSub};
use rustorch_ir::ops::BinaryOp;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, unknown, with_type};
use crate::elementwise::{Function, Loop2};
use crate::half_precision::{nearest_bf16, single_of};
use crate::index::coordinates;
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::math::Real;
use crate::reader::Reader;
use crate::simd::{Level, all, apply2, apply2_at, apply2_broadcast, each2};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Binary,
    accepts: |signature| !divides_integers(signature),
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: None,
    },
};

pub(crate) const INTEGER_DIVISION: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Binary,
    accepts: divides_integers,
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: Some(check_divisors),
    },
};

/// Cost of a division or power beside an addition.
const SLOW: usize = 8;

fn divides_integers(signature: &Signature) -> bool {
    let Op::Binary(op) = signature.op else {
        return false;
    };
    let divides = matches!(op.op, BinaryOp::FloorDivide | BinaryOp::Remainder);
    divides && signature.output().dtype.is_int()
}

fn function(signature: &Signature) -> Result<Function, Misuse> {
    let Op::Binary(op) = signature.op else {
        return Err(Misuse("not a binary".to_owned()));
    };
    let (op, dtype) = (op.op, signature.inputs[0].dtype);
    let function = match dtype {
        DType::F32 if op == BinaryOp::Complex => Some(pair::<f32>()),
        DType::F64 if op == BinaryOp::Complex => Some(pair::<f64>()),
        DType::F32 => broadcasting(op).or_else(|| same::<f32>(op, real(op))),
        DType::BF16 => at_once(op).or_else(|| same::<bf16>(op, real(op))),
        d if d.is_float() => with_type!(d, floats T => Ok(same::<T>(op, real(op))))?,
        d if d.is_complex() => with_type!(d, complex T => Ok(same::<T>(op, complex(op))))?,
        d => with_type!(d, ints T => Ok(same::<T>(op, int(op))))?,
    };
    function.ok_or_else(|| unknown(dtype))
}

/// A function whose results are of its operands' type.
fn same<T: Element>(op: BinaryOp, f: Option<Loop2<T::Compute>>) -> Option<Function> {
    let work = match op {
        BinaryOp::Pow | BinaryOp::FloorDivide | BinaryOp::Remainder => SLOW,
        op if op.defined().is_some() => SLOW,
        _ => 1,
    };
    Some(Function::binary::<T, T>(work, f?))
}

/// The functions that take hardly longer than it would take to repeat an element in memory.
fn broadcasting(op: BinaryOp) -> Option<Function> {
    let f: Loop2<f32> = match op {
        BinaryOp::Add => |a, b, out| apply2_broadcast(a, b, out, |a, b| a + b),
        BinaryOp::Sub => |a, b, out| apply2_broadcast(a, b, out, |a, b| a - b),
        BinaryOp::Mul => |a, b, out| apply2_broadcast(a, b, out, |a, b| a * b),
        BinaryOp::Div => |a, b, out| apply2_broadcast(a, b, out, |a, b| a / b),
        _ => return None,
    };
    Some(Function::arithmetic(op, f))
}

/// The functions of bf16 that take less time than the conversions, which go in the same loop.
fn at_once(op: BinaryOp) -> Option<Function> {
    let f: Loop2<bf16> = match op {
        BinaryOp::Add => {
            |a, b, out| apply2(a, b, out, |a, b| nearest_bf16(single_of(a) + single_of(b)))
        }
        BinaryOp::Sub => {
            |a, b, out| apply2(a, b, out, |a, b| nearest_bf16(single_of(a) - single_of(b)))
        }
        BinaryOp::Mul => {
            |a, b, out| apply2(a, b, out, |a, b| nearest_bf16(single_of(a) * single_of(b)))
        }
        BinaryOp::Div => {
            |a, b, out| apply2(a, b, out, |a, b| nearest_bf16(single_of(a) / single_of(b)))
        }
        _ => return None,
    };
    Some(Function::of(
        1,
        move |[a, b]: [&[bf16]; 2], out: &mut [bf16]| f(a, b, out),
    ))
}

fn pair<T: Element<Compute = T>>() -> Function
where
    Complex<T>: Element<Compute = Complex<T>>,
{
    Function::binary::<T, Complex<T>>(1, |re, im, z| apply2(re, im, z, Complex::new))
}

fn real<T: Real>(op: BinaryOp) -> Option<Loop2<T>> {
    Some(match op {
        BinaryOp::Add => |a, b, out| apply2(a, b, out, |a, b| a + b),
        BinaryOp::Sub => |a, b, out| apply2(a, b, out, |a, b| a - b),
        BinaryOp::Mul => |a, b, out| apply2(a, b, out, |a, b| a * b),
        BinaryOp::Div => |a, b, out| apply2(a, b, out, |a, b| a / b),
        BinaryOp::FloorDivide => |a, b, out| each2(a, b, out, floor_divide),
        BinaryOp::Remainder => |a, b, out| each2(a, b, out, remainder),
        BinaryOp::Pow => power,
        BinaryOp::Maximum => |a, b, out| {
            apply2(a, b, out, |a, b| if a > b || a.is_nan() { a } else { b });
        },
        BinaryOp::Minimum => |a, b, out| {
            apply2(a, b, out, |a, b| if a < b || a.is_nan() { a } else { b });
        },
        BinaryOp::NextAfter => |a, b, out| apply2(a, b, out, T::next_after),
        BinaryOp::CopySign => |a, b, out| apply2(a, b, out, T::copysign),
        _ => return defined(op),
    })
}

/// Powers of bases and to exponents of a kind are computed together, and the others one by one.
fn power<T: Real>(a: &[T], b: &[T], out: &mut [T]) {
    apply2_at(Level::current(), a, b, out, |m, a, b| a.power(b, m));
    if !all(a, T::is_base) || !all(b, |b| b.is_finite()) {
        for ((&a, &b), out) in a.iter().zip(b).zip(out) {
            if !a.is_base() || !b.is_finite() {
                *out = a.powf(b);
            }
        }
    }
}

/// The functions that have no better way here than their definition in double precision.
macro_rules! definitions {
    ($($name:ident),+) => {
        fn defined<T: Real>(op: BinaryOp) -> Option<Loop2<T>> {
            let function: Loop2<T> = match op {
                $(BinaryOp::$name => |a, b, out| {
                    if let Some((definition, _)) = BinaryOp::$name.defined() {
                        by_definition(a, b, out, definition);
                    }
                },)+
                _ => return None,
            };
            Some(function)
        }
    };
}
rustorch_ir::for_each_binary_function!(definitions);

/// Not inlined: one loop serves all functions.
#[inline(never)]
fn by_definition<T: Real>(a: &[T], b: &[T], out: &mut [T], definition: fn(f64, f64) -> f64) {
    each2(a, b, out, |a, b| T::constant(definition(a.as_(), b.as_())));
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

/// The floor of the exact quotient, see [`rustorch_ir::special::floor_divide`].
fn floor_divide<T: Real>(a: T, b: T) -> T {
    if b == T::zero() {
        return a / b;
    }
    let rest = a % b;
    // A whole number but for rounding errors, which are less than a half.
    let mut whole = (a - rest) / b;
    if rest != T::zero() && (rest < T::zero()) != (b < T::zero()) {
        whole = whole - T::one();
    }
    match whole == T::zero() {
        true => a / b * T::zero(),
        false => whole.round(),
    }
}

/// An integer type.
trait Int: PrimInt + CheckedRem + WrappingAdd + WrappingSub + WrappingMul {}

impl<T: PrimInt + CheckedRem + WrappingAdd + WrappingSub + WrappingMul> Int for T {}

fn int<T: Int>(op: BinaryOp) -> Option<Loop2<T>> {
    Some(match op {
        BinaryOp::Add => |a, b, out| apply2(a, b, out, |a, b| a.wrapping_add(&b)),
        BinaryOp::Sub => |a, b, out| apply2(a, b, out, |a, b| a.wrapping_sub(&b)),
        BinaryOp::Mul => |a, b, out| apply2(a, b, out, |a, b| a.wrapping_mul(&b)),
        BinaryOp::FloorDivide => |a, b, out| each2(a, b, out, int_floor_divide),
        BinaryOp::Remainder => |a, b, out| each2(a, b, out, int_remainder),
        BinaryOp::Pow => |a, b, out| each2(a, b, out, int_pow),
        BinaryOp::Maximum => |a, b, out| apply2(a, b, out, T::max),
        BinaryOp::Minimum => |a, b, out| apply2(a, b, out, T::min),
        BinaryOp::And => |a, b, out| apply2(a, b, out, |a, b| a & b),
        BinaryOp::Or => |a, b, out| apply2(a, b, out, |a, b| a | b),
        BinaryOp::Xor => |a, b, out| apply2(a, b, out, |a, b| a ^ b),
        BinaryOp::ShiftLeft => |a, b, out| {
            apply2(a, b, out, |a, b| {
                bits_to_shift(b).map_or(T::zero(), |b| a << b)
            });
        },
        BinaryOp::ShiftRight => |a, b, out| {
            apply2(a, b, out, |a, b| match bits_to_shift(b) {
                Some(b) => a >> b,
                // All that is left is the sign.
                None if a < T::zero() => !T::zero(),
                None => T::zero(),
            });
        },
        BinaryOp::Gcd => |a, b, out| each2(a, b, out, gcd),
        _ => return None,
    })
}

/// The quotient for divisors other than 0. The one quotient that does not fit, of the least number
/// and -1, wraps to that number.
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

/// Number of bits to shift by, if any bits are left then.
fn bits_to_shift<T: Int>(b: T) -> Option<usize> {
    let bits = T::zero().count_zeros() as usize;
    b.to_usize().filter(|&b| b < bits)
}

/// By Euclid's algorithm, of magnitudes; those that do not fit wrap.
fn gcd<T: Int>(a: T, b: T) -> T {
    let (mut a, mut b) = (a, b);
    while b != T::zero() {
        (a, b) = (b, int_rem(a, b));
    }
    if a < T::zero() {
        T::zero().wrapping_sub(&a)
    } else {
        a
    }
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
fn check_divisors(args: &Args) -> Result<(), Misuse> {
    let divisors = &args.inputs[1];
    if args.output.ty.shape.elements() == 0 {
        return Ok(());
    }
    let zero = with_type!(divisors.dtype(), ints T => {
        Ok(Reader::<T>::whole(divisors).position(|x| x == 0))
    })?;
    zero.map_or(Ok(()), |at| {
        let at = coordinates(divisors.shape(), at);
        Err(Misuse(format!(
            "integer division by zero: the divisor at {at:?} is 0"
        )))
    })
}

fn complex<F: Real>(op: BinaryOp) -> Option<Loop2<Complex<F>>> {
    Some(match op {
        BinaryOp::Add => |a, b, out| apply2(a, b, out, |a, b| a + b),
        BinaryOp::Sub => |a, b, out| apply2(a, b, out, |a, b| a - b),
        BinaryOp::Mul => |a, b, out| apply2(a, b, out, |a, b| a * b),
        BinaryOp::Div => |a, b, out| apply2(a, b, out, quotient),
        _ => return None,
    })
}

/// Divides by the larger part of the divisor first. So squares do not overflow, and a division by 0 keeps the
/// infinities (R. L. Smith 1962, *Algorithm 116: Complex division*).
#[inline(always)]
pub(in crate::kernels) fn quotient<F: Real>(a: Complex<F>, b: Complex<F>) -> Complex<F> {
    let is_real = b.re.abs() >= b.im.abs();
    let larger = if is_real { b.re } else { b.im };
    let ratio = if is_real { b.im } else { b.re } / larger;
    let re = if is_real { F::one() } else { ratio };
    let im = if is_real { ratio } else { F::one() };
    let (ordinary, by_zero) = (a / Complex::new(re, im) / larger, a / larger.abs());
    let is_zero = b.re == F::zero() && b.im == F::zero();
    Complex::new(
        if is_zero { by_zero.re } else { ordinary.re },
        if is_zero { by_zero.im } else { ordinary.im },
    )
}
