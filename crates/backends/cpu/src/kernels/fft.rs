//! Fourier transforms, through `rustorch-math` (feature `fft`).

use num_complex::Complex;
use rustorch_ir::ops::{Fft, FftKind};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_math::fft::{Float, PairsPlan, RealPlan};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, unknown};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines;
use crate::simd::{Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Fft,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Cost of an element beside an addition.
const WORK: usize = 16;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Fft(op) = args.op else {
        return Err(Misuse("not an fft".to_owned()));
    };
    match args.output.dtype().real() {
        DType::F32 => transform::<f32>(&mut args, op),
        DType::F64 => transform::<f64>(&mut args, op),
        other => return Err(unknown(other)),
    }
    Ok(())
}

fn transform<T>(args: &mut Args, op: &Fft)
where
    T: Float + Element<Compute = T>,
    Complex<T>: Element<Compute = Complex<T>>,
{
    let (dim, size) = (op.dim, args.inputs[0].shape()[op.dim]);
    let inverse = match op.kind {
        FftKind::Forward => false,
        FftKind::Inverse => true,
        FftKind::RealToComplex => {
            return match T::real(size) {
                RealPlan::Pairs(plan) => map_lines::<T, Complex<T>>(args, dim, WORK, |x, y| {
                    plan.transform(x, y);
                    Level::current().run(Separate { plan: &plan, y });
                }),
                RealPlan::Odd(plan) => {
                    map_lines::<T, Complex<T>>(args, dim, WORK, |x, y| plan.transform(x, y));
                }
            };
        }
        FftKind::ComplexToReal { n } => {
            let plan = T::inverse_real(n);
            return map_lines::<Complex<T>, T>(args, dim, WORK, |x, y| plan.transform(x, y));
        }
    };
    let plan = T::complex(size, inverse);
    map_lines::<Complex<T>, Complex<T>>(args, dim, WORK, |x, y| plan.transform(x, y));
}

/// [`PairsPlan::separate`].
struct Separate<'a, T> {
    plan: &'a PairsPlan<T>,
    y: &'a mut [Complex<T>],
}

impl<T: Float> Kernel for Separate<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.plan.separate(self.y);
    }
}
