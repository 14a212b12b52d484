//! The gamma function's relatives.

use std::f64::consts::PI;

use super::c::*;
use super::{expm1, log1p, polynomial};

/// `ln |Γ(x)|` for `x` above 0: [Cephes](https://www.netlib.org/cephes/)' `lgam`.
fn lgamma_of_positive(x: f64) -> f64 {
    if x == f64::INFINITY {
        return x;
    }
    if x < 13.0 {
        // To between 2 and 3.
        let mut factor = 1.0;
        let mut u = x;
        while u >= 3.0 {
            u -= 1.0;
            factor *= u;
        }
        while u < 2.0 {
            factor /= u;
            u += 1.0;
        }
        let r = u - 2.0;
        let numerator = polynomial(
            r,
            [
                -853555.6642457654,
                -1721737.0082083966,
                -1162370.974927623,
                -331612.9927388712,
                -38801.631513463784,
                -1378.2515256912086,
            ],
        );
        let denominator = polynomial(
            r,
            [
                -2018891.4143353277,
                -2532523.0717758294,
                -1139334.4436798252,
                -220528.59055385445,
                -17064.210665188115,
                -351.81570143652345,
                1.0,
            ],
        );
        return log(factor) + r * numerator / denominator;
    }
    let z = 1.0 / (x * x);
    let rest = polynomial(
        z,
        [
            0.08333333333333319,
            -0.002777777777300997,
            0.0007936503404577169,
            -0.0005950619042843014,
            0.0008116141674705085,
        ],
    );
    (x - 0.5) * log(x) - x + 0.9189385332046728 + rest / x
}

/// `ln |Γ(x)|`; infinite at 0 and below it at whole numbers.
pub fn lgamma(x: f64) -> f64 {
    if x > 0.0 {
        return lgamma_of_positive(x);
    }
    if x == floor(x) {
        return f64::INFINITY;
    }
    if x > -1e-15 {
        return -log(-x);
    }
    // By reflection. The difference is exact.
    let sine = sin(PI * (x - floor(x + 0.5)));
    log(PI / fabs(sine * x)) - lgamma_of_positive(-x)
}

/// The derivative of `ln Γ(x)`: up to 10 by recurrence, from there on by its asymptotic series;
/// below 0 by reflection. NaN at whole numbers below 0.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return -1.0 / x;
    }
    let mut sum = 0.0;
    let mut u = x;
    if x < 0.0 {
        let fraction = x - floor(x + 0.5);
        if fraction == 0.0 || x == -f64::INFINITY {
            return f64::NAN;
        }
        sum = -PI / tan(PI * fraction);
        u = 1.0 - x;
    }
    while u < 10.0 {
        sum -= 1.0 / u;
        u += 1.0;
    }
    if u == f64::INFINITY {
        return u;
    }
    let z = 1.0 / (u * u);
    let series = polynomial(
        z,
        [
            0.08333333333333333,
            -0.008333333333333333,
            0.003968253968253968,
            -0.004166666666666667,
            0.007575757575757576,
            -0.021092796092796094,
            0.08333333333333333,
        ],
    );
    sum + (log(u) - 0.5 / u - z * series)
}

/// Hurwitz's zeta function `Σ (q + k)⁻ˣ` over `k` from 0 on, for `x` above 1: terms up to 9, the rest
/// by the Euler-Maclaurin formula, as [Cephes](https://www.netlib.org/cephes/)' `zeta` does it.
pub fn zeta(x: f64, q: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == floor(q) {
            return f64::INFINITY;
        }
        if x != floor(x) {
            return f64::NAN;
        }
    }
    let mut sum = pow(q, -x);
    let mut a = q;
    let mut power = 0.0;
    let mut count = 0.0;
    while count < 9.0 || a <= 9.0 {
        count += 1.0;
        a += 1.0;
        power = pow(a, -x);
        sum += power;
        if fabs(power) < f64::EPSILON * fabs(sum) {
            return sum;
        }
    }
    sum += power * a / (x - 1.0) - 0.5 * power;
    // Bernoulli numbers over factorials, B₂ₖ / (2k)!.
    let z = 1.0 / (a * a);
    let mut factor = x * power / a;
    sum += factor / 12.0;
    factor *= (x + 1.0) * (x + 2.0) * z;
    sum -= factor / 720.0;
    factor *= (x + 3.0) * (x + 4.0) * z;
    sum += factor / 30240.0;
    factor *= (x + 5.0) * (x + 6.0) * z;
    sum -= factor / 1209600.0;
    factor *= (x + 7.0) * (x + 8.0) * z;
    sum += factor / 47900160.0;
    factor *= (x + 9.0) * (x + 10.0) * z;
    sum -= factor / 1892437580.3183792;
    factor *= (x + 11.0) * (x + 12.0) * z;
    sum += factor / 74724249600.0;
    factor *= (x + 13.0) * (x + 14.0) * z;
    sum - factor / 2950130727918.164
}

/// `xᵃ e⁻ˣ / Γ(a)`, for large `a` by Stirling's series.
fn gamma_density(a: f64, x: f64) -> f64 {
    if a < 20.0 {
        return exp(a * log(x) - x - lgamma_of_positive(a));
    }
    let distance = (x - a) / a;
    let z = 1.0 / (a * a);
    let series = polynomial(
        z,
        [
            0.08333333333333333,
            -0.002777777777777778,
            0.0007936507936507937,
            -0.0005952380952380953,
        ],
    );
    sqrt(a / (2.0 * PI)) * exp(a * (log1p(distance) - distance) - series / a)
}

/// The regularised lower incomplete gamma function by its power series.
fn lower_gamma_series(a: f64, x: f64) -> f64 {
    let mut n = a;
    let mut term = 1.0;
    let mut sum = 1.0;
    while term > f64::EPSILON * sum && n < a + 20000.0 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    sum * gamma_density(a, x) / a
}

/// The regularised upper incomplete gamma function by its power series, for small `x`.
fn upper_gamma_series(a: f64, x: f64) -> f64 {
    let mut n = 0.0;
    let mut factor = 1.0;
    let mut term = 1.0;
    let mut sum = 0.0;
    while fabs(term) > f64::EPSILON * fabs(sum) && n < 2000.0 {
        n += 1.0;
        factor *= -x / n;
        term = factor / (a + n);
        sum += term;
    }
    let power = a * log(x);
    let first = -expm1(power - lgamma_of_positive(1.0 + a));
    first - exp(power - lgamma_of_positive(a)) * sum
}

/// The regularised upper incomplete gamma function by its continued fraction, in Lentz's way.
fn upper_gamma_fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let mut c = 1e30;
    let mut d = 1.0 / b;
    let mut fraction = d;
    let mut step = 0.0;
    let mut i = 0.0;
    while fabs(step - 1.0) > f64::EPSILON && i < 20000.0 {
        i += 1.0;
        let numerator = i * (a - i);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        step = d * c;
        fraction *= step;
    }
    fraction * gamma_density(a, x)
}

/// `Γ(a, x) / Γ(a)` of `a` and `x` above 0 and finite. The expansion is chosen as in
/// [Cephes](https://www.netlib.org/cephes/)' `igamc`.
fn upper_gamma(a: f64, x: f64) -> f64 {
    if x > 1.1 {
        if x < a {
            return 1.0 - lower_gamma_series(a, x);
        }
        return upper_gamma_fraction(a, x);
    }
    let mut limit = x * 1.1;
    if x <= 0.5 {
        limit = -0.4 / log(x);
    }
    if limit < a {
        return 1.0 - lower_gamma_series(a, x);
    }
    upper_gamma_series(a, x)
}

/// The regularised upper incomplete gamma function `Γ(a, x) / Γ(a)`. If one of the numbers decides
/// the result, the other may be NaN, as in PyTorch.
pub fn gammaincc(a: f64, x: f64) -> f64 {
    if a < 0.0 || x < 0.0 || a == 0.0 && (x == 0.0 || isnan(x)) {
        return f64::NAN;
    }
    if a == f64::INFINITY && x == f64::INFINITY {
        return f64::NAN;
    }
    if x == 0.0 || a == f64::INFINITY {
        return 1.0;
    }
    if a == 0.0 || x == f64::INFINITY {
        return 0.0;
    }
    if isnan(a) || isnan(x) {
        return f64::NAN;
    }
    upper_gamma(a, x)
}

/// The regularised lower incomplete gamma function `γ(a, x) / Γ(a)`. If one of the numbers decides
/// the result, the other may be NaN, as in PyTorch.
pub fn gammainc(a: f64, x: f64) -> f64 {
    if a < 0.0 || x < 0.0 || a == 0.0 && (x == 0.0 || isnan(x)) {
        return f64::NAN;
    }
    if a == f64::INFINITY && x == f64::INFINITY {
        return f64::NAN;
    }
    if x == 0.0 || a == f64::INFINITY {
        return 0.0;
    }
    if a == 0.0 || x == f64::INFINITY {
        return 1.0;
    }
    if isnan(a) || isnan(x) {
        return f64::NAN;
    }
    if x > 1.0 && x > a {
        return 1.0 - upper_gamma(a, x);
    }
    lower_gamma_series(a, x)
}
