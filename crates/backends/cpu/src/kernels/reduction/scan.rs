//! Each element combined with all before it.

use num_traits::{One, Zero};
use rustorch_ir::ops::ScanOp;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::fold::{Addend, Ordered};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines;
use crate::math::Real;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Scan,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Cost of an exponential function and a logarithm beside an addition.
const SLOW: usize = 16;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Scan(op) = args.op else {
        return Err(Misuse("not a scan".to_owned()));
    };
    let (op, dim) = (op.op, op.dim);
    let dtype = args.inputs[0].dtype();
    match op {
        ScanOp::Sum | ScanOp::Prod => match dtype {
            d if d.is_float() => with_type!(d, floats T => totals::<T, T>(&mut args, op, dim)),
            d if d.is_complex() => with_type!(d, complex T => totals::<T, T>(&mut args, op, dim)),
            d => with_type!(d, ints T => totals::<T, i64>(&mut args, op, dim)),
        },
        ScanOp::Max | ScanOp::Min => {
            with_type!(dtype, reals T => extremes::<T>(&mut args, op, dim))
        }
        ScanOp::LogSumExp => with_type!(dtype, floats T => log_sums::<T>(&mut args, dim)),
    }
}

/// Sums or products.
fn totals<T, Y>(args: &mut Args, op: ScanOp, dim: usize) -> Result<(), Misuse>
where
    T: Element<Compute: Addend<Result = Y::Compute>>,
    Y: Element,
{
    map_lines::<T, Y>(args, dim, 1, |x, y| {
        let pairs = y.iter_mut().zip(x);
        if op == ScanOp::Sum {
            let mut sum = Zero::zero();
            for (y, x) in pairs {
                sum = sum + x.widen();
                *y = T::Compute::narrow(sum);
            }
        } else {
            let mut product = One::one();
            for (y, x) in pairs {
                product = product * x.widen();
                *y = T::Compute::narrow(product);
            }
        }
    });
    Ok(())
}

/// The largest elements so far, or the smallest.
fn extremes<T>(args: &mut Args, op: ScanOp, dim: usize) -> Result<(), Misuse>
where
    T: Element<Compute: Ordered>,
{
    map_lines::<T, T>(args, dim, 1, |x, y| {
        let mut best = x.first().copied();
        for (y, &x) in y.iter_mut().zip(x) {
            let before = best.unwrap_or(x);
            *y = match op {
                ScanOp::Max => before.larger(x),
                _ => before.smaller(x),
            };
            best = Some(*y);
        }
    });
    Ok(())
}

/// `ln Σ eˣ`, in double precision.
fn log_sums<T>(args: &mut Args, dim: usize) -> Result<(), Misuse>
where
    T: Element<Compute: Real>,
{
    map_lines::<T, T>(args, dim, SLOW, |x, y| {
        let mut sum = f64::NEG_INFINITY;
        for (y, x) in y.iter_mut().zip(x) {
            sum = log_add_exp(sum, x.widen());
            *y = T::Compute::narrow(sum);
        }
    });
    Ok(())
}

/// `ln(eᵃ + eᵇ)`
fn log_add_exp(a: f64, b: f64) -> f64 {
    let largest = a.larger(b);
    match largest.is_infinite() {
        true => largest,
        false => largest + (-(a - b).abs()).exp().ln_1p(),
    }
}
