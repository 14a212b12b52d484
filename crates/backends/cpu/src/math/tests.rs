use super::*;
use crate::simd::Level;
use crate::simd::apply::apply_at;

/// Distance of the bit patterns that are tried: some thousands of each exponent.
const STEP: usize = 499;

/// The distance of neighbours at `x`.
fn ulp(x: f64) -> f64 {
    let near = (x.abs() as f32).clamp(f32::MIN_POSITIVE, f32::MAX.next_down());
    f64::from(near.next_up() - near)
}

/// Checks a function's errors over all exponents, with fused multiply-add and without. Errors
/// are in the units that `unit` returns for argument and result.
fn check(
    name: &str,
    limits: [f64; 2],
    f: impl Fn(Arithmetic, f32) -> f32 + Copy,
    exact: impl Fn(f64) -> f64,
    unit: impl Fn(f64, f64) -> f64,
) {
    let x: Vec<f32> = (0..=u32::MAX)
        .step_by(STEP)
        .map(f32::from_bits)
        .filter(|x| x.is_finite())
        .collect();
    let expected: Vec<f64> = x.iter().map(|&x| exact(x.into())).collect();
    let mut y = vec![0.0; x.len()];
    for level in Level::available() {
        apply_at(level, &x, &mut y, f);
        let mut worst = (0.0, 0.0);
        for ((&x, &y), &expected) in x.iter().zip(&y).zip(&expected) {
            let error = match (expected as f32).is_finite() {
                true => (f64::from(y) - expected).abs() / unit(x.into(), expected),
                false if f64::from(y) == f64::from(expected as f32) => 0.0,
                false if y.is_nan() && expected.is_nan() => 0.0,
                false => f64::INFINITY,
            };
            if error.is_nan() || error > worst.0 {
                worst = (error, x);
            }
        }
        let (error, x) = worst;
        let limit = limits[usize::from(level.name() == "plain")];
        println!("{name}, {level}: {error:.3} ulp at {x:e}");
        assert!(error <= limit, "{name}, {level}: {error} ulp at {x:e}");
    }
}

fn y_of(level: Level, f: fn(Arithmetic, f32) -> f32, x: f32) -> f32 {
    let mut y = [0.0];
    apply_at(level, &[x], &mut y, f);
    y[0]
}

fn of_result(_: f64, y: f64) -> f64 {
    ulp(y)
}

#[test]
fn exp_is_exact_within_its_error() {
    check("exp", [0.9, 1.2], exp, f64::exp, of_result);
    let f = |m, x: f32| exp_of_negative(m, -x.abs());
    let exact = |x: f64| match (-x.abs()).exp() {
        y if y < f32::MIN_POSITIVE.into() => 0.0,
        y => y,
    };
    // Subnormal numbers may be flushed to 0.
    let unit = |_, y| {
        ulp(y).max(if y == 0.0 {
            f32::MIN_POSITIVE.into()
        } else {
            0.0
        })
    };
    check("exp of negative", [1.0, 1.2], f, exact, unit);
}

#[test]
fn ln_is_exact_within_its_error() {
    check("ln", [0.8, 0.8], ln, f64::ln, of_result);
}

#[test]
fn tanh_is_exact_within_its_error() {
    check("tanh", [1.5, 2.0], tanh, f64::tanh, of_result);
}

#[test]
fn erf_is_exact_within_its_error() {
    check("erf", [1.2, 1.3], erf, libm::erf, of_result);
}

#[test]
fn sigmoid_is_exact_within_its_error() {
    let exact = |x: f64| 1.0 / (1.0 + (-x).exp());
    check("sigmoid", [2.2, 2.2], sigmoid, exact, of_result);
}

#[test]
fn gelu_is_exact_within_its_error() {
    let exact = |x: f64| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    check("gelu", [1.4, 1.6], gelu, exact, |x, _| ulp(x));
}

#[test]
fn silu_is_exact_within_its_error() {
    let exact = |x: f64| x / (1.0 + (-x).exp());
    // If the sigmoid is subnormal, the unit is a step of the sigmoid times `x`.
    let unit = |x: f64, y| ulp(y).max(x.abs() * f64::from(f32::from_bits(1)));
    check("silu", [3.0, 3.0], silu, exact, unit);
}

#[test]
fn gelu_tanh_is_exact_within_its_error() {
    let scale = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    let exact = |x: f64| x / (1.0 + (-scale * (x + 0.044715 * x.powi(3))).exp());
    check("gelu_tanh", [2.0, 2.0], gelu_tanh, exact, |x, _| ulp(x));
}

#[test]
fn angles_are_exact_within_their_errors() {
    // Other code computes angles beyond `TAME`.
    let tame = |f: fn(Arithmetic, f32) -> f32| {
        move |m: Arithmetic, x: f32| if x.is_tame() { f(m, x) } else { 0.0 }
    };
    let exact = |f: fn(f64) -> f64| move |x: f64| if x.abs() <= TAME.into() { f(x) } else { 0.0 };
    check("sin", [1.6, 1.6], tame(sin), exact(f64::sin), of_result);
    check("cos", [1.6, 1.6], tame(cos), exact(f64::cos), of_result);
    check("tan", [3.6, 3.6], tame(tan), exact(f64::tan), of_result);
}

#[test]
fn powers_are_exact_within_their_error() {
    for y in [
        -7.25, -1.0, -0.5, -1e-3, 0.0, 1e-7, 0.5, 1.0, 2.0, 2.5, 3.0, 40.0,
    ] {
        let f = |m, x: f32| if x.is_base() { pow(m, x, y) } else { 0.0 };
        let exact = |x: f64| match (x as f32).is_base() {
            true => x.powf(y.into()),
            false => 0.0,
        };
        check("pow", [0.51, 0.51], f, exact, of_result);
    }
}

#[test]
fn limits() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = [nan, inf, -inf, 0.0, -0.0, 1.0, f32::MAX, f32::MIN];
    for level in Level::available() {
        let check = |f: &dyn Fn(Arithmetic, f32) -> f32, expected: [f32; 8]| {
            let mut y = [0.0; 8];
            apply_at(level, &x, &mut y, f);
            for ((x, y), expected) in x.into_iter().zip(y).zip(expected) {
                let same = y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan();
                assert!(same, "{level}: {y}, not {expected} of {x}");
            }
        };
        let e = y_of(level, exp, 1.0);
        check(&exp, [nan, inf, 0.0, 1.0, 1.0, e, inf, 0.0]);
        check(
            &|m, x| exp_of_negative(m, -x.abs()),
            [nan, 0.0, 0.0, 1.0, 1.0, e.recip(), 0.0, 0.0],
        );
        check(&ln, [nan, inf, nan, -inf, -inf, 0.0, f32::MAX.ln(), nan]);
        let of_1 = y_of(level, tanh, 1.0);
        check(&tanh, [nan, 1.0, -1.0, 0.0, -0.0, of_1, 1.0, -1.0]);
        let of_1 = y_of(level, erf, 1.0);
        check(&erf, [nan, 1.0, -1.0, 0.0, -0.0, of_1, 1.0, -1.0]);
        let of_1 = y_of(level, sigmoid, 1.0);
        check(&sigmoid, [nan, 1.0, 0.0, 0.5, 0.5, of_1, 1.0, 0.0]);
        let of_1 = y_of(level, gelu, 1.0);
        check(&gelu, [nan, inf, nan, 0.0, 0.0, of_1, f32::MAX, 0.0]);
    }
}
