//! Fourier transforms, through rustfft.

use std::sync::{LazyLock, Mutex, PoisonError};

use num_complex::Complex;
use realfft::RealFftPlanner;
use rustfft::{FftDirection, FftNum, FftPlanner};
use rustorch_ir::ops::{Fft, FftKind};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, unknown};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines;

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
    // What is planned for a length serves all transforms of that.
    static SINGLE: LazyLock<Mutex<Plans<f32>>> = LazyLock::new(Mutex::default);
    static DOUBLE: LazyLock<Mutex<Plans<f64>>> = LazyLock::new(Mutex::default);
    match args.output.dtype().real() {
        DType::F32 => transform(&mut args, op, &SINGLE),
        DType::F64 => transform(&mut args, op, &DOUBLE),
        other => return Err(unknown(other)),
    }
    Ok(())
}

fn transform<T>(args: &mut Args, op: &Fft, plans: &Mutex<Plans<T>>)
where
    T: FftNum + Element<Compute = T>,
    Complex<T>: Element<Compute = Complex<T>>,
{
    let (dim, size) = (op.dim, args.inputs[0].shape()[op.dim]);
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    plans.make_room();
    let direction = match op.kind {
        FftKind::Forward => FftDirection::Forward,
        FftKind::Inverse => FftDirection::Inverse,
        FftKind::RealToComplex => {
            let plan = plans.real.plan_fft_forward(size);
            drop(plans);
            return map_lines::<T, Complex<T>>(args, dim, WORK, |x, y| {
                let fits = plan.process(&mut x.to_vec(), y);
                debug_assert!(fits.is_ok(), "the lengths are the plan's");
            });
        }
        FftKind::ComplexToReal { n } => {
            let plan = plans.real.plan_fft_inverse(n);
            drop(plans);
            return map_lines::<Complex<T>, T>(args, dim, WORK, |x, y| {
                let mut x = x.to_vec();
                x[0].im = T::zero();
                if n.is_multiple_of(2) {
                    x[n / 2].im = T::zero();
                }
                let fits = plan.process(&mut x, y);
                debug_assert!(fits.is_ok(), "the lengths are the plan's");
            });
        }
    };
    let plan = plans.complex.plan_fft(size, direction);
    drop(plans);
    map_lines::<Complex<T>, Complex<T>>(args, dim, WORK, |x, y| {
        y.copy_from_slice(x);
        plan.process(y);
    });
}

/// Times that plans are asked for before all are made again, so that lengths that do not come again
/// take no memory for ever.
const KEPT: usize = 4096;

/// What makes and keeps the plans of one type.
struct Plans<T: FftNum> {
    complex: FftPlanner<T>,
    real: RealFftPlanner<T>,
    asked: usize,
}

impl<T: FftNum> Default for Plans<T> {
    fn default() -> Self {
        Self {
            complex: FftPlanner::new(),
            real: RealFftPlanner::new(),
            asked: 0,
        }
    }
}

impl<T: FftNum> Plans<T> {
    /// Forgets the plans where it is time to.
    fn make_room(&mut self) {
        if self.asked == KEPT {
            *self = Self::default();
        }
        self.asked += 1;
    }
}
