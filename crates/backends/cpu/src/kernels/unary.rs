//! Functions of each element.

use num_complex::Complex;
use num_traits::{PrimInt, WrappingSub};
use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, unknown, with_type};
use crate::elementwise::map1;
use crate::kernel::{Args, Launch, Misuse};
use crate::math::{Real, apply};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Unary,
    accepts,
    layouts: Layouts::Any,
    launch,
};

/// A loop over a block.
type Loop<X, Y = X> = fn(&[X], &mut [Y]);

/// Cost of an elementary function beside an addition.
const WORK: usize = 8;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Unary(op) = args.op else {
        return Err(Misuse("not a unary".to_owned()));
    };
    match args.inputs[0].dtype() {
        d if d.is_float() && op.op == UnaryOp::IsNan => with_type!(d, floats T => {
            map1::<T, u8>(&mut args, 1, |x, y| apply(x, y, |x| x.is_nan().into()));
            Ok(())
        }),
        d if d.is_float() => with_type!(d, floats T => run::<T>(&mut args, real(op.op))),
        DType::Complex64 => complex_launch::<f32>(&mut args, op.op),
        DType::Complex128 => complex_launch::<f64>(&mut args, op.op),
        DType::Bool => run::<u8>(&mut args, Some(|x, y| apply(x, y, |x| u8::from(x == 0)))),
        d => with_type!(d, ints T => run::<T>(&mut args, int(op.op))),
    }
}

fn run<T: Element>(args: &mut Args, f: Option<Loop<T::Compute>>) -> Result<(), Misuse> {
    let f = f.ok_or_else(|| unknown(args.inputs[0].dtype()))?;
    map1::<T, T>(args, WORK, f);
    Ok(())
}

/// Functions of complex numbers with parts of `F`.
fn complex_launch<F: Real>(args: &mut Args, op: UnaryOp) -> Result<(), Misuse>
where
    Complex<F>: Element<Compute = Complex<F>>,
{
    let parts: Loop<Complex<F>, F> = match op {
        UnaryOp::Abs => |x, y| apply(x, y, |z| z.re.hypot(z.im)),
        UnaryOp::Real => |x, y| apply(x, y, |z| z.re),
        UnaryOp::Imag => |x, y| apply(x, y, |z| z.im),
        _ => return run::<Complex<F>>(args, complex(op)),
    };
    map1::<Complex<F>, F>(args, 1, parts);
    Ok(())
}

fn real<T: Real>(op: UnaryOp) -> Option<Loop<T>> {
    Some(match op {
        UnaryOp::Neg => |x, y| apply(x, y, |x| -x),
        UnaryOp::Abs => |x, y| apply(x, y, |x| x.abs()),
        UnaryOp::Sign => |x, y| apply(x, y, sign),
        UnaryOp::Exp => |x, y| apply(x, y, |x| x.exponential()),
        UnaryOp::Log => |x, y| apply(x, y, |x| x.logarithm()),
        UnaryOp::Sqrt => |x, y| apply(x, y, |x| x.sqrt()),
        UnaryOp::Rsqrt => |x, y| apply(x, y, |x| x.sqrt().recip()),
        UnaryOp::Reciprocal => |x, y| apply(x, y, |x| x.recip()),
        UnaryOp::Sin => |x, y| apply(x, y, |x| x.sin()),
        UnaryOp::Cos => |x, y| apply(x, y, |x| x.cos()),
        UnaryOp::Tan => |x, y| apply(x, y, |x| x.tan()),
        UnaryOp::Tanh => |x, y| apply(x, y, |x| x.hyperbolic_tangent()),
        UnaryOp::Erf => |x, y| apply(x, y, |x| x.error_function()),
        UnaryOp::Floor => |x, y| apply(x, y, |x| x.floor()),
        UnaryOp::Ceil => |x, y| apply(x, y, |x| x.ceil()),
        UnaryOp::Round => |x, y| apply(x, y, |x| Real::round_ties_even(x)),
        UnaryOp::Trunc => |x, y| apply(x, y, |x| x.trunc()),
        _ => return None,
    })
}

/// 0 for NaN.
#[inline(always)]
fn sign<T: Real>(x: T) -> T {
    let positive = if x > T::zero() { T::one() } else { T::zero() };
    if x < T::zero() { -T::one() } else { positive }
}

fn int<T: PrimInt + WrappingSub>(op: UnaryOp) -> Option<Loop<T>> {
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

fn complex<F: Real>(op: UnaryOp) -> Option<Loop<Complex<F>>> {
    Some(match op {
        UnaryOp::Neg => |x, y| apply(x, y, |z| -z),
        UnaryOp::Exp => |x, y| apply(x, y, |z| z.exp()),
        UnaryOp::Reciprocal => |x, y| apply(x, y, |z| z.inv()),
        UnaryOp::Conj => |x, y| apply(x, y, |z| z.conj()),
        _ => return None,
    })
}
