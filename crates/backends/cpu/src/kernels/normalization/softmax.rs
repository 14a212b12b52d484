//! Softmax of lines along any dimension, and its logarithm.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::cache::prefetch;
use crate::element::with_type;
use crate::fold::{fold, sum};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines;
use crate::math::Real;
use crate::simd::{Arithmetic, Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Softmax,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Number of elements between prefetches.
const CHUNK: usize = 64;

/// Cost of an element beside an addition.
const WORK: usize = 4;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Softmax(op) = args.op else {
        return Err(Misuse("not a softmax".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => {
        let level = Level::current();
        match op.log {
            true => map_lines::<T, T>(&mut args, op.dim, WORK, |x, y| level.run(LogLine { x, y })),
            false => map_lines::<T, T>(&mut args, op.dim, WORK, |x, y| level.run(Line { x, y })),
        }
        Ok(())
    })
}

/// The softmax of a line. One that sees nothing at all (a mask of −∞) becomes NaN, as by
/// definition.
pub(in crate::kernels) struct Line<'a, T> {
    pub(in crate::kernels) x: &'a [T],
    pub(in crate::kernels) y: &'a mut [T],
}

impl<T: Real> Kernel for Line<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = Arithmetic::of(s);
        let max = largest(self.x);
        let f = |x: T| (x - max).exponential_of_negative(m);
        // Meanwhile the next line, which lies behind this one, comes nearer.
        let next = self.x.as_ptr_range().end;
        let (x, x_rest) = self.x.as_chunks::<CHUNK>();
        let (y, y_rest) = self.y.as_chunks_mut::<CHUNK>();
        for (chunk, (y, x)) in y.iter_mut().zip(x).enumerate() {
            let next = next.wrapping_add(chunk * CHUNK);
            prefetch(next.cast(), size_of_val(y));
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x));
        }
        let rest = y_rest.iter_mut().zip(x_rest);
        rest.for_each(|(y, &x)| *y = f(x));
        let scale = T::constant(1.0 / sum(self.y, |y| y));
        self.y.iter_mut().for_each(|y| *y = *y * scale);
    }
}

/// The logarithm of the softmax of a line.
struct LogLine<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel for LogLine<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (max, log) = log_sum(self.x, s);
        let results = self.y.iter_mut().zip(self.x);
        results.for_each(|(y, &x)| *y = (x - max) - log);
    }
}

/// Number that the logarithm of a softmax subtracts from an element: in two parts, the larger one
/// first.
pub(in crate::kernels) struct LogSum<'a, T> {
    pub(in crate::kernels) x: &'a [T],
    pub(in crate::kernels) max: &'a mut T,
    pub(in crate::kernels) log: &'a mut T,
}

impl<T: Real> Kernel for LogSum<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        (*self.max, *self.log) = log_sum(self.x, s);
    }
}

/// The largest element and `log Σ exp(x - max)`.
#[inline(always)]
fn log_sum<T: Real, S: Simd>(x: &[T], s: S) -> (T, T) {
    let m = Arithmetic::of(s);
    let max = largest(x);
    let total = sum(x, |x| (x - max).exponential_of_negative(m));
    (max, T::constant(total.ln()))
}

/// The largest number: of NaN, which makes the sum NaN, it may be any.
#[inline(always)]
fn largest<T: Real>(line: &[T]) -> T {
    let larger = |a, b| if b > a { b } else { a };
    fold(line, T::neg_infinity(), larger, larger)
}
