//! The exponential of a matrix.

use faer::Par;
use faer::linalg::matmul::matmul;
use faer::linalg::solvers::{PartialPivLu, Solve};
use faer::{Accum, Mat, MatRef};

use super::{Number, elements, matrix};

/// Coefficients of the Padé approximant of degree 13, lowest first.
const PADE: [f64; 14] = [
    64_764_752_532_480_000.0,
    32_382_376_266_240_000.0,
    7_771_770_303_897_600.0,
    1_187_353_796_428_800.0,
    129_060_195_264_000.0,
    10_559_470_521_600.0,
    670_442_572_800.0,
    33_522_128_640.0,
    1_323_241_920.0,
    40_840_800.0,
    960_960.0,
    16_380.0,
    182.0,
    1.0,
];

/// The largest 1-norm for which that approximant is as exact as double precision.
const LARGEST: f64 = 5.371_920_351_148_152;

/// Scaling and squaring ([Higham 2005](https://doi.org/10.1137/04061101X)).
pub(crate) fn exponential<T: Number>(a: &mut [T], n: usize) {
    let column = |j: usize| a.iter().skip(j).step_by(n).map(T::abs_impl).sum::<f64>();
    let norm = (0..n).map(column).fold(0.0, f64::max);
    if !norm.is_finite() {
        return a.fill(T::nan_impl());
    }
    let squarings = (norm / LARGEST).log2().ceil().max(0.0) as i32;
    let x = scaled(matrix(a, n, n), 0.5f64.powi(squarings));
    let squared = product(&x, &x);
    let fourth = product(&squared, &squared);
    let sixth = product(&squared, &fourth);
    let sum = |[c6, c4, c2, c0]: [f64; 4]| {
        Mat::<T>::from_fn(n, n, |i, j| {
            let constant = if i == j {
                T::from_f64_impl(c0)
            } else {
                T::zero()
            };
            sixth[(i, j)] * T::from_f64_impl(c6)
                + fourth[(i, j)] * T::from_f64_impl(c4)
                + squared[(i, j)] * T::from_f64_impl(c2)
                + constant
        })
    };
    let c = &PADE;
    let high = product(&sixth, &sum([c[13], c[11], c[9], 0.0]));
    let odd = product(&x, &(high + sum([c[7], c[5], c[3], c[1]])));
    let high = product(&sixth, &sum([c[12], c[10], c[8], 0.0]));
    let even = high + sum([c[6], c[4], c[2], c[0]]);
    let mut result = PartialPivLu::new((&even - &odd).as_ref()).solve(&even + &odd);
    for _ in 0..squarings {
        result = product(&result, &result);
    }
    a.copy_from_slice(&elements(result.as_ref()));
}

fn scaled<T: Number>(a: MatRef<'_, T>, factor: f64) -> Mat<T> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| {
        T::mul_real_impl(&a[(i, j)], &factor)
    })
}

fn product<T: Number>(a: &Mat<T>, b: &Mat<T>) -> Mat<T> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(&mut out, Accum::Replace, a, b, T::one(), Par::Seq);
    out
}
