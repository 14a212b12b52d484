//! Discrete Fourier transforms of `f32` and `f64`, of any length, unscaled, through
//! [rustfft](https://docs.rs/rustfft) and [realfft](https://docs.rs/realfft).
//!
//! Both libraries are generic and large. Here they are compiled once for each type, and not again with
//! the CPU backend and its tests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::f64::consts::TAU;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytemuck::{Pod, cast_slice};
use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};

/// A type that can be transformed: `f32` or `f64`.
pub trait Float: FftNum + Pod {
    /// `y[k] = Σ x[j] exp(∓2πi jk / n)` of `n` complex numbers: minus, or plus if `inverse`.
    fn complex(n: usize, inverse: bool) -> ComplexPlan<Self>;

    /// The first `n / 2 + 1` results of the forward transform of `n` real numbers.
    fn real(n: usize) -> RealPlan<Self>;

    /// The inverse transform to `n` real numbers, from their first `n / 2 + 1` complex ones.
    fn inverse_real(n: usize) -> InverseRealPlan<Self>;

    /// Calls `f` with this thread's memory for `len` numbers, of any values.
    #[doc(hidden)]
    fn with_scratch(len: usize, f: impl FnOnce(&mut [Complex<Self>]));
}

/// Transform of complex numbers.
pub struct ComplexPlan<T>(Arc<dyn Fft<T>>);

impl<T: Float> ComplexPlan<T> {
    /// Transforms a line.
    ///
    /// # Panics
    /// Panics if a length differs from the plan's.
    pub fn transform(&self, x: &[Complex<T>], y: &mut [Complex<T>]) {
        let Self(plan) = self;
        T::with_scratch(plan.get_immutable_scratch_len(), |scratch| {
            plan.process_immutable_with_scratch(x, y, scratch);
        });
    }
}

/// Transform of real numbers.
pub enum RealPlan<T> {
    /// An even number of them.
    Pairs(PairsPlan<T>),
    /// An odd number of them.
    Odd(OddPlan<T>),
}

impl<T: Float> RealPlan<T> {
    /// Transforms a line.
    ///
    /// # Panics
    /// Panics if a length differs from the plan's.
    pub fn transform(&self, x: &[T], y: &mut [Complex<T>]) {
        match self {
            Self::Pairs(plan) => {
                plan.transform(x, y);
                plan.separate(y);
            }
            Self::Odd(plan) => plan.transform(x, y),
        }
    }
}

/// Transform of an odd number of reals.
pub struct OddPlan<T>(Arc<dyn RealToComplex<T>>);

impl<T: Float> OddPlan<T> {
    /// Transforms a line.
    ///
    /// # Panics
    /// Panics if a length differs from the plan's.
    pub fn transform(&self, x: &[T], y: &mut [Complex<T>]) {
        if let Err(error) = self.0.process(&mut x.to_vec(), y) {
            panic!("{error}");
        }
    }
}

/// The transform of an even number `n` of reals: neighbours as complex numbers, half as many. Their transform is
/// `Z[k] = E[k] + i O[k]`, with `E` and `O` those of the reals at even and at odd places. The result is `E[k] +
/// w^k O[k]` with `w = exp(-2πi / n)`.
pub struct PairsPlan<T> {
    half: ComplexPlan<T>,
    /// `w^k / 2` of each `k` from 1 on that is less than `n / 4`.
    factors: Arc<[Complex<T>]>,
}

/// Pairs of results that are computed from one another together: each block is brought into one order first, as
/// the compiler makes vector instructions of that.
const TOGETHER: usize = 64;

impl<T: Float> PairsPlan<T> {
    /// Writes `Z`, which has one element less than the result: [`Self::separate`] does the rest.
    ///
    /// # Panics
    /// Panics if a length differs from the plan's.
    pub fn transform(&self, x: &[T], y: &mut [Complex<T>]) {
        let half = x.len() / 2;
        self.half.transform(cast_slice(x), &mut y[..half]);
    }

    /// Makes the result of `Z`. It is inlined, for whoever calls it with more instructions than are everywhere.
    ///
    /// # Panics
    /// Panics if there are no elements.
    #[inline(always)]
    pub fn separate(&self, y: &mut [Complex<T>]) {
        let half = y.len() - 1;
        let first = y[0];
        y[0] = Complex::new(first.re + first.im, T::zero());
        y[half] = Complex::new(first.re - first.im, T::zero());
        let pairs = half.saturating_sub(1) / 2;
        let Some((left, right)) = y.get_mut(1..half).map(|y| y.split_at_mut(pairs)) else {
            return;
        };
        // The one in the middle is its own partner.
        let (middle, right) = right.split_at_mut(right.len() - pairs);
        middle.iter_mut().for_each(|z| z.im = -z.im);
        let mut partners = [Complex::new(T::zero(), T::zero()); TOGETHER];
        let blocks = left.chunks_mut(TOGETHER).zip(right.rchunks_mut(TOGETHER));
        for ((left, right), factors) in blocks.zip(self.factors.chunks(TOGETHER)) {
            let partners = &mut partners[..right.len()];
            (partners.iter_mut().zip(right.iter().rev())).for_each(|(to, z)| *to = *z);
            for ((a, b), w) in left.iter_mut().zip(partners.iter_mut()).zip(factors) {
                let two = T::one() + T::one();
                let even = Complex::new((a.re + b.re) / two, (a.im - b.im) / two);
                let odd = Complex::new(a.im + b.im, b.re - a.re);
                let turned =
                    Complex::new(w.re * odd.re - w.im * odd.im, w.re * odd.im + w.im * odd.re);
                *a = Complex::new(even.re + turned.re, even.im + turned.im);
                *b = Complex::new(even.re - turned.re, turned.im - even.im);
            }
            (right.iter_mut().rev().zip(partners)).for_each(|(to, z)| *to = *z);
        }
    }
}

/// The factors of a [`PairsPlan`] of `n` reals.
fn factors<T: Float>(n: usize) -> Arc<[Complex<T>]> {
    let real = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
    let factor = |k: usize| {
        let angle = -TAU * k as f64 / n as f64;
        Complex::new(real(0.5 * angle.cos()), real(0.5 * angle.sin()))
    };
    (1..n.div_ceil(4)).map(factor).collect()
}

/// Transform from complex numbers to real ones.
pub struct InverseRealPlan<T>(Arc<dyn ComplexToReal<T>>);

impl<T: Float> InverseRealPlan<T> {
    /// Transforms a line. Imaginary parts that must be 0, for the result to be real, do not count.
    ///
    /// # Panics
    /// Panics if a length differs from the plan's.
    pub fn transform(&self, x: &[Complex<T>], y: &mut [T]) {
        let mut x = x.to_vec();
        let middle = y.len().is_multiple_of(2).then_some(y.len() / 2);
        for i in [Some(0), middle].into_iter().flatten() {
            x[i].im = T::zero();
        }
        if let Err(error) = self.0.process(&mut x, y) {
            panic!("{error}");
        }
    }
}

/// Number of requests for plans after which all are made again. So lengths that do not come again
/// do not take memory for ever.
const KEPT: usize = 4096;

/// Maker and keeper of the plans of one type.
struct Planners<T: FftNum> {
    complex: FftPlanner<T>,
    real: RealFftPlanner<T>,
    factors: HashMap<usize, Arc<[Complex<T>]>>,
    asked: usize,
}

impl<T: FftNum> Default for Planners<T> {
    fn default() -> Self {
        Self {
            complex: FftPlanner::new(),
            real: RealFftPlanner::new(),
            factors: HashMap::new(),
            asked: 0,
        }
    }
}

/// Asks for a plan.
fn ask<T: FftNum, P>(planners: &Mutex<Planners<T>>, plan: impl FnOnce(&mut Planners<T>) -> P) -> P {
    let mut planners = planners.lock().unwrap_or_else(PoisonError::into_inner);
    if planners.asked == KEPT {
        *planners = Planners::default();
    }
    planners.asked += 1;
    plan(&mut planners)
}

macro_rules! floats {
    ($($float:ty, $planners:ident, $scratch:ident;)+) => {$(
        // A plan serves all transforms of its length.
        static $planners: LazyLock<Mutex<Planners<$float>>> = LazyLock::new(Mutex::default);

        thread_local! {
            static $scratch: RefCell<Vec<Complex<$float>>> = const { RefCell::new(Vec::new()) };
        }

        impl Float for $float {
            fn complex(n: usize, inverse: bool) -> ComplexPlan<Self> {
                let direction = match inverse {
                    true => FftDirection::Inverse,
                    false => FftDirection::Forward,
                };
                ComplexPlan(ask(&$planners, |all| all.complex.plan_fft(n, direction)))
            }

            fn real(n: usize) -> RealPlan<Self> {
                ask(&$planners, |all| match n % 2 {
                    0 => RealPlan::Pairs(PairsPlan {
                        half: ComplexPlan(all.complex.plan_fft_forward(n / 2)),
                        factors: all.factors.entry(n).or_insert_with(|| factors(n)).clone(),
                    }),
                    _ => RealPlan::Odd(OddPlan(all.real.plan_fft_forward(n))),
                })
            }

            fn inverse_real(n: usize) -> InverseRealPlan<Self> {
                InverseRealPlan(ask(&$planners, |all| all.real.plan_fft_inverse(n)))
            }

            fn with_scratch(len: usize, f: impl FnOnce(&mut [Complex<Self>])) {
                let mut scratch = $scratch.take();
                if scratch.len() < len {
                    scratch.resize(len, Complex::default());
                }
                f(&mut scratch[..len]);
                $scratch.set(scratch);
            }
        }
    )+};
}

floats! {
    f32, SINGLE, SINGLES;
    f64, DOUBLE, DOUBLES;
}
