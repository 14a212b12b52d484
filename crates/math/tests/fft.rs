//! Transforms beside their definition.

use std::f64::consts::TAU;

use num_complex::{Complex, Complex64};
use rustorch_math::fft::Float;

/// Lengths with factors 2, 3 and 5, primes, none of these, and what is computed in several blocks.
const LENGTHS: [usize; 13] = [1, 2, 3, 4, 6, 8, 15, 31, 60, 97, 128, 254, 600];

fn definition(x: &[Complex64], inverse: bool) -> Vec<Complex64> {
    let n = x.len();
    let sign = if inverse { 1.0 } else { -1.0 };
    let sum = |k: usize| {
        let turn = |j: usize| sign * TAU * (j * k % n) as f64 / n as f64;
        let terms = x.iter().enumerate();
        terms.map(|(j, x)| x * Complex64::cis(turn(j))).sum()
    };
    (0..n).map(sum).collect()
}

fn line(n: usize) -> Vec<Complex64> {
    let number = |i: usize| (i * 37 % 101) as f64 / 50.0 - 1.0;
    (0..n)
        .map(|i| Complex::new(number(i), number(i + 7)))
        .collect()
}

fn assert_near(got: &[Complex64], want: &[Complex64], epsilon: f64) {
    let n = want.len() as f64;
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!(
            (got - want).norm() <= 4.0 * n * epsilon,
            "{got} for {want} of {n}"
        );
    }
}

fn wide<T: Float + Into<f64>>(x: &[Complex<T>]) -> Vec<Complex64> {
    x.iter()
        .map(|x| Complex::new(x.re.into(), x.im.into()))
        .collect()
}

fn transforms_are_the_sums<T: Float + Into<f64>>(narrow: impl Fn(f64) -> T, epsilon: f64) {
    for n in LENGTHS {
        let x: Vec<Complex<T>> = line(n)
            .iter()
            .map(|x| Complex::new(narrow(x.re), narrow(x.im)))
            .collect();
        for inverse in [false, true] {
            let mut y = x.clone();
            T::complex(n, inverse).transform(&x, &mut y);
            assert_near(&wide(&y), &definition(&wide(&x), inverse), epsilon);
        }

        let real: Vec<T> = x.iter().map(|x| x.re).collect();
        let whole: Vec<Complex64> = real.iter().map(|&x| Complex64::from(x.into())).collect();
        let whole = definition(&whole, false);
        let mut half = vec![Complex::new(narrow(0.0), narrow(0.0)); n / 2 + 1];
        T::real(n).transform(&real, &mut half);
        assert_near(&wide(&half), &whole[..=n / 2], epsilon);

        // The imaginary part of the first does not count.
        half[0].im = narrow(3.0);
        let mut back = vec![narrow(0.0); n];
        T::inverse_real(n).transform(&half, &mut back);
        let scaled = |x: &T| Complex64::from((*x).into() * n as f64);
        let want: Vec<Complex64> = real.iter().map(scaled).collect();
        let back: Vec<Complex64> = back.iter().map(|&x| Complex64::from(x.into())).collect();
        assert_near(&back, &want, n as f64 * epsilon);
    }
}

#[test]
fn singles_are_transformed() {
    transforms_are_the_sums(|x| x as f32, f64::from(f32::EPSILON));
}

#[test]
fn doubles_are_transformed() {
    transforms_are_the_sums(|x| x, f64::EPSILON);
}
