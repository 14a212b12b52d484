//! Functions of each element.

use num_complex::Complex;
use num_traits::{One, PrimInt, WrappingSub};
use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use super::binary::quotient;
use crate::element::{Element, unknown, with_type};
use crate::elementwise::{Function, Loop1};
use crate::kernel::Misuse;
use crate::launch::Launch;
use crate::math::Real;
use crate::simd::{Arithmetic, all, apply, apply_function};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Unary,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: None,
    },
};

/// Cost of an elementary function beside an addition.
const SLOW: usize = 8;

fn accepts(_: &Signature) -> bool {
    true
}

fn function(signature: &Signature) -> Result<Function, Misuse> {
    let Op::Unary(op) = signature.op else {
        return Err(Misuse("not a unary".to_owned()));
    };
    let (op, dtype) = (op.op, signature.inputs[0].dtype);
    let function = match dtype {
        d if d.is_float() && op == UnaryOp::IsNan => with_type!(d, floats T => {
            Ok(Some(Function::unary::<T, u8>(1, is_nan)))
        })?,
        d if d.is_float() => with_type!(d, floats T => Ok(same::<T>(op, real(op))))?,
        DType::Complex64 => of_complex::<f32>(op),
        DType::Complex128 => of_complex::<f64>(op),
        DType::Bool => same::<u8>(op, Some(|x, y| apply(x, y, |x| u8::from(x == 0)))),
        d => with_type!(d, ints T => Ok(same::<T>(op, int(op))))?,
    };
    function.ok_or_else(|| unknown(dtype))
}

fn is_nan<T: Real>(x: &[T], y: &mut [u8]) {
    apply(x, y, |x| x.is_nan().into());
}

/// A function whose results are of its operand's type.
fn same<T: Element>(op: UnaryOp, f: Option<Loop1<T::Compute>>) -> Option<Function> {
    let work = match op {
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Not | UnaryOp::Conj => 1,
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => 1,
        _ => SLOW,
    };
    Some(Function::unary::<T, T>(work, f?))
}

/// Functions of complex numbers with parts of `F`.
fn of_complex<F: Real>(op: UnaryOp) -> Option<Function>
where
    Complex<F>: Element<Compute = Complex<F>>,
{
    let parts: Loop1<Complex<F>, F> = match op {
        UnaryOp::Abs => |x, y| apply(x, y, |z| z.re.hypot(z.im)),
        UnaryOp::Real => |x, y| apply(x, y, |z| z.re),
        UnaryOp::Imag => |x, y| apply(x, y, |z| z.im),
        _ => return same::<Complex<F>>(op, complex(op)),
    };
    Some(Function::unary::<Complex<F>, F>(1, parts))
}

fn real<T: Real>(op: UnaryOp) -> Option<Loop1<T>> {
    Some(match op {
        UnaryOp::Neg => |x, y| apply(x, y, |x| -x),
        UnaryOp::Abs => |x, y| apply(x, y, |x| x.abs()),
        UnaryOp::Sign => |x, y| apply(x, y, sign),
        UnaryOp::Exp => |x, y| apply_function(x, y, |m, x: T| x.exponential(m)),
        UnaryOp::Log => |x, y| apply_function(x, y, |m, x: T| x.logarithm(m)),
        UnaryOp::Sqrt => |x, y| apply(x, y, |x| x.sqrt()),
        UnaryOp::Rsqrt => |x, y| apply(x, y, |x| x.sqrt().recip()),
        UnaryOp::Reciprocal => |x, y| apply(x, y, |x| x.recip()),
        UnaryOp::Sin => |x, y| apply_to_angles(x, y, |m, x: T| x.sine(m), T::sin),
        UnaryOp::Cos => |x, y| apply_to_angles(x, y, |m, x: T| x.cosine(m), T::cos),
        UnaryOp::Tan => |x, y| apply_to_angles(x, y, |m, x: T| x.tangent(m), T::tan),
        UnaryOp::Tanh => |x, y| apply_function(x, y, |m, x: T| x.hyperbolic_tangent(m)),
        UnaryOp::Erf => |x, y| apply_function(x, y, |m, x: T| x.error_function(m)),
        UnaryOp::Floor => |x, y| apply(x, y, |x| x.floor()),
        UnaryOp::Ceil => |x, y| apply(x, y, |x| x.ceil()),
        UnaryOp::Round => |x, y| apply(x, y, |x| Real::round_ties_even(x)),
        UnaryOp::Trunc => |x, y| apply(x, y, |x| x.trunc()),
        _ => return defined(op),
    })
}

/// `near` of angles that it holds for, and `far` of the rest, which are seldom.
fn apply_to_angles<T: Real>(
    x: &[T],
    y: &mut [T],
    near: impl Fn(Arithmetic, T) -> T,
    far: impl Fn(T) -> T,
) {
    apply_function(x, y, near);
    if !all(x, T::is_tame) {
        let pairs = x.iter().zip(y).filter(|(x, _)| !x.is_tame());
        pairs.for_each(|(&x, y)| *y = far(x));
    }
}

/// The functions that have no better way here than their definition in double precision.
macro_rules! definitions {
    ($($name:ident),+) => {
        fn defined<T: Real>(op: UnaryOp) -> Option<Loop1<T>> {
            let function: Loop1<T> = match op {
                $(UnaryOp::$name => |x, y| {
                    if let Some((definition, _)) = UnaryOp::$name.defined() {
                        by_definition(x, y, definition);
                    }
                },)+
                _ => return None,
            };
            Some(function)
        }
    };
}
rustorch_ir::for_each_function!(definitions);

/// Calls leave nothing to vector instructions. Not inlined: one loop serves all functions.
#[inline(never)]
fn by_definition<T: Real>(x: &[T], y: &mut [T], definition: fn(f64) -> f64) {
    for (&x, y) in x.iter().zip(y) {
        *y = T::constant(definition(x.as_()));
    }
}

/// 0 for NaN.
#[inline(always)]
fn sign<T: Real>(x: T) -> T {
    let positive = if x > T::zero() { T::one() } else { T::zero() };
    if x < T::zero() { -T::one() } else { positive }
}

fn int<T: PrimInt + WrappingSub>(op: UnaryOp) -> Option<Loop1<T>> {
    Some(match op {
        UnaryOp::Neg => |x, y| apply(x, y, negative),
        UnaryOp::Abs => |x, y| apply(x, y, |x| if x < T::zero() { negative(x) } else { x }),
        UnaryOp::Sign => |x, y| {
            apply(x, y, |x| match x.cmp(&T::zero()) {
                std::cmp::Ordering::Less => negative(T::one()),
                std::cmp::Ordering::Equal => T::zero(),
                std::cmp::Ordering::Greater => T::one(),
            });
        },
        _ => return None,
    })
}

/// Wraps.
fn negative<T: PrimInt + WrappingSub>(x: T) -> T {
    T::zero().wrapping_sub(&x)
}

fn complex<F: Real>(op: UnaryOp) -> Option<Loop1<Complex<F>>> {
    Some(match op {
        UnaryOp::Neg => |x, y| apply(x, y, |z| -z),
        UnaryOp::Exp => |x, y| apply(x, y, |z| z.exp()),
        UnaryOp::Reciprocal => |x, y| apply(x, y, |z| quotient(Complex::one(), z)),
        UnaryOp::Conj => |x, y| apply(x, y, |z| z.conj()),
        _ => return None,
    })
}
