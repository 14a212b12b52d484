//! Discrete Fourier transforms of `f32` and `f64`, of any length, unscaled, through
//! [rustfft](https://docs.rs/rustfft) and [realfft](https://docs.rs/realfft).
//!
//! Both libraries are generic and large. Here they are compiled once for each type, and not again with
//! the CPU backend and its tests.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};

/// A type that can be transformed: `f32` or `f64`.
pub trait Float: FftNum {
    /// `y[k] = Σ x[j] exp(∓2πi jk / n)` of `n` complex numbers: minus, or plus if `inverse`.
    fn complex(n: usize, inverse: bool) -> ComplexPlan<Self>;

    /// The first `n / 2 + 1` of the forward transform of `n` real numbers.
    fn real(n: usize) -> RealPlan<Self>;

    /// The inverse transform to `n` real numbers, of their first `n / 2 + 1` complex ones.
    fn inverse_real(n: usize) -> InverseRealPlan<Self>;
}

/// How complex numbers are transformed.
pub struct ComplexPlan<T>(Arc<dyn Fft<T>>);

impl<T: Float> ComplexPlan<T> {
    /// Transforms a line in place.
    ///
    /// # Panics
    /// If its length is not the plan's.
    pub fn transform(&self, line: &mut [Complex<T>]) {
        self.0.process(line);
    }
}

/// How real numbers are transformed.
pub struct RealPlan<T>(Arc<dyn RealToComplex<T>>);

impl<T: Float> RealPlan<T> {
    /// Transforms a line.
    ///
    /// # Panics
    /// If a length is not the plan's.
    pub fn transform(&self, x: &[T], y: &mut [Complex<T>]) {
        if let Err(error) = self.0.process(&mut x.to_vec(), y) {
            panic!("{error}");
        }
    }
}

/// How complex numbers become real ones.
pub struct InverseRealPlan<T>(Arc<dyn ComplexToReal<T>>);

impl<T: Float> InverseRealPlan<T> {
    /// Transforms a line. Imaginary parts that must be 0, for the result to be real, do not count.
    ///
    /// # Panics
    /// If a length is not the plan's.
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

/// Times that plans are asked for before all are made again, so that lengths that do not come again
/// take no memory for ever.
const KEPT: usize = 4096;

/// What makes and keeps the plans of one type.
struct Planners<T: FftNum> {
    complex: FftPlanner<T>,
    real: RealFftPlanner<T>,
    asked: usize,
}

impl<T: FftNum> Default for Planners<T> {
    fn default() -> Self {
        Self {
            complex: FftPlanner::new(),
            real: RealFftPlanner::new(),
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
    ($($float:ty, $planners:ident;)+) => {$(
        // What is planned for a length serves all transforms of that.
        static $planners: LazyLock<Mutex<Planners<$float>>> = LazyLock::new(Mutex::default);

        impl Float for $float {
            fn complex(n: usize, inverse: bool) -> ComplexPlan<Self> {
                let direction = match inverse {
                    true => FftDirection::Inverse,
                    false => FftDirection::Forward,
                };
                ComplexPlan(ask(&$planners, |all| all.complex.plan_fft(n, direction)))
            }

            fn real(n: usize) -> RealPlan<Self> {
                RealPlan(ask(&$planners, |all| all.real.plan_fft_forward(n)))
            }

            fn inverse_real(n: usize) -> InverseRealPlan<Self> {
                InverseRealPlan(ask(&$planners, |all| all.real.plan_fft_inverse(n)))
            }
        }
    )+};
}

floats! {
    f32, SINGLE;
    f64, DOUBLE;
}
