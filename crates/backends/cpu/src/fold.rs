//! Reductions: sums, products, maxima and minima.

use std::num::Wrapping;
use std::ops::Add;

use num_complex::Complex;
use num_traits::{AsPrimitive, Num, Zero};

use crate::element::Element;
use crate::math::Real;
use crate::simd::from_fn;

/// A number that sums and products are made of.
pub(crate) trait Addend: Copy {
    /// Type of the computation: double precision, or integers that wrap.
    type Total: Num + Copy + Send + Sync;
    /// Type of the rounded result.
    type Result: Element<Compute = Self::Result>;

    /// The number as a total.
    fn widen(self) -> Self::Total;
    /// The sum of some.
    fn sum(x: &[Self]) -> Self::Total;
    /// The total, rounded.
    fn narrow(total: Self::Total) -> Self::Result;
}

impl<T: Real> Addend for T {
    type Total = f64;
    type Result = T;

    #[inline(always)]
    fn widen(self) -> f64 {
        self.as_()
    }

    #[inline(always)]
    fn sum(x: &[T]) -> f64 {
        sum(x, |x| x)
    }

    fn narrow(total: f64) -> T {
        T::constant(total)
    }
}

macro_rules! addends {
    ($($int:ty),+; $($part:ty),+) => {
        $(impl Addend for $int {
            type Total = Wrapping<i64>;
            type Result = i64;

            #[inline(always)]
            fn widen(self) -> Wrapping<i64> {
                Wrapping(self.as_())
            }

            #[inline(always)]
            fn sum(x: &[Self]) -> Self::Total {
                fold(x, Zero::zero(), |sum, x| sum + x.widen(), |a, b| a + b)
            }

            fn narrow(total: Wrapping<i64>) -> i64 {
                total.0
            }
        })+
        $(impl Addend for Complex<$part> {
            type Total = Complex<f64>;
            type Result = Self;

            #[inline(always)]
            fn widen(self) -> Complex<f64> {
                Complex::new(self.re.into(), self.im.into())
            }

            #[inline(always)]
            fn sum(x: &[Self]) -> Self::Total {
                fold(x, Zero::zero(), |sum, x| sum + x.widen(), |a, b| a + b)
            }

            fn narrow(total: Complex<f64>) -> Self {
                Self::new(total.re.as_(), total.im.as_())
            }
        })+
    };
}

addends!(i64, i32, i16, i8, u8, u16, u32, u64; f32, f64);

/// A type with an order, NaN being beyond both ends.
pub(crate) trait Ordered: PartialOrd + Add<Output = Self> + Copy + Send + Sync {
    /// A value that is not above any number.
    const LEAST: Self;
    /// A value that is not below any number.
    const GREATEST: Self;

    /// The larger one; NaN if one is NaN.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.unless_nan(other, if other > self { other } else { self })
    }

    /// The smaller one; NaN if one is NaN.
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        self.unless_nan(other, if other < self { other } else { self })
    }

    /// `chosen`, or NaN if one is NaN, by a sum. A choice would be compiled to stores of some lanes,
    /// which AMD's processors do one by one.
    #[inline(always)]
    fn unless_nan(self, other: Self, chosen: Self) -> Self {
        match self.partial_cmp(&other) {
            None => self + other,
            Some(_) => chosen,
        }
    }

    /// NaN?
    #[inline(always)]
    fn is_unordered(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
}

macro_rules! ordered {
    ($($type:ty: $least:ident, $greatest:ident;)+) => {$(
        impl Ordered for $type {
            const LEAST: Self = Self::$least;
            const GREATEST: Self = Self::$greatest;
        }
    )+};
}

ordered! {
    f64: NEG_INFINITY, INFINITY;
    f32: NEG_INFINITY, INFINITY;
    i64: MIN, MAX;
    i32: MIN, MAX;
    i16: MIN, MAX;
    i8: MIN, MAX;
    u8: MIN, MAX;
    u16: MIN, MAX;
    u32: MIN, MAX;
    u64: MIN, MAX;
}

/// Partial results that are kept apart in [`fold`]: a few vector registers of them.
pub(crate) const LANES: usize = 16;

/// Combines elements with `step`, in an order that depends on nothing but their number and
/// that vector instructions can follow: every 16th belongs to one partial result. `start`
/// is neutral.
#[inline(always)]
pub(crate) fn fold<T: Copy, A: Copy>(
    x: &[T],
    start: A,
    step: impl Fn(A, T) -> A,
    join: impl Fn(A, A) -> A,
) -> A {
    let mut lanes = [start; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        lanes = from_fn(|i| step(lanes[i], chunk[i]));
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, x);
    }
    joined(lanes, join)
}

/// All lanes combined, as vectors whose halves are combined.
#[inline(always)]
pub(crate) fn joined<A: Copy>(lanes: [A; LANES], join: impl Fn(A, A) -> A) -> A {
    let eight: [A; 8] = from_fn(|i| join(lanes[i], lanes[i + 8]));
    let four: [A; 4] = from_fn(|i| join(eight[i], eight[i + 4]));
    join(join(four[0], four[2]), join(four[1], four[3]))
}

/// Vectors that [`sum`] adds at the same time.
const STREAMS: usize = 4;

/// Number of elements from which vectors come from several places, which is how memory brings them
/// soonest.
const APART: usize = 16 * 1024;

/// Elements that a lane adds in their own precision, before doubles take over.
const FEW: usize = 16;

/// The sum of `f` of the elements, in double precision but for a few at a time. In an order that
/// depends on nothing but their number.
#[inline(always)]
pub(crate) fn sum<T: Real>(x: &[T], f: impl Fn(T) -> T) -> f64 {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let (fours, last) = vectors.as_chunks::<STREAMS>();
    let steps = fours.len();
    let mut totals = match x.len() {
        APART.. => {
            let parts: [_; STREAMS] = from_fn(|i| &vectors[i * steps..][..steps]);
            totals(steps, |at| parts.map(|part| &part[at]), &f)
        }
        _ => totals(steps, |at| fours[at].each_ref(), &f),
    };
    for x in last.iter().map(|x| &x[..]).chain([rest]) {
        let lanes = totals.iter_mut().zip(x);
        lanes.for_each(|(total, &x)| *total += f(x).as_());
    }
    joined(totals, |a, b| a + b)
}

/// The sums of the lanes of `f` of the vectors that there are at each of some steps.
#[inline(always)]
fn totals<'a, T: Real>(
    steps: usize,
    at: impl Fn(usize) -> [&'a [T; LANES]; STREAMS],
    f: impl Fn(T) -> T,
) -> [f64; LANES] {
    let mut totals = [0.0; LANES];
    for first in (0..steps).step_by(FEW) {
        let mut lanes = [[T::zero(); LANES]; STREAMS];
        for step in first..steps.min(first + FEW) {
            for (lanes, x) in lanes.iter_mut().zip(at(step)) {
                *lanes = from_fn(|i| lanes[i] + f(x[i]));
            }
        }
        let [a, b, c, d] = lanes;
        totals = from_fn(|i| totals[i] + ((a[i] + b[i]) + (c[i] + d[i])).as_());
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Kernel, Level, Simd};

    struct Sum<'a>(&'a [f32], &'a mut f64);

    impl Kernel for Sum<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            *self.1 = sum(self.0, |x| x);
        }
    }

    #[test]
    fn sums_of_any_length_are_close_and_the_same_at_every_level() {
        let x: Vec<f32> = (0..70_000_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0)
            .collect();
        let levels = Level::available();
        for len in [
            0, 1, 15, 16, 17, 63, 64, 65, 1000, 1024, 16_383, 16_384, 16_449, 70_000,
        ] {
            let x = &x[..len];
            let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
            let sums: Vec<f64> = (levels.iter())
                .map(|level| {
                    let mut sum = 0.0;
                    level.run(Sum(x, &mut sum));
                    sum
                })
                .collect();
            assert!(sums.iter().all(|sum| *sum == sums[0]), "{len}: {sums:?}");
            // A lane rounds 19 times at most before doubles take over.
            let bound = 19.0 * 0.5 * f64::from(f32::EPSILON) * exact;
            assert!(
                (sums[0] - exact).abs() <= bound,
                "{len}: {} {exact}",
                sums[0]
            );
        }
    }
}
