//! Orthogonal polynomials of degree `n`, which is cut to a whole number; 0 where it is below 0.
//! Chebyshev's polynomials between −1 and 1 are trigonometric functions, which are exact also for
//! large `n`. The others are computed degree by degree, and NaN of one above 100,000.

use super::c::*;

/// `n` cut to a whole number; numbers that are no degrees stay.
fn degree(n: f64) -> f64 {
    if n < 0.0 {
        return -floor(-n);
    }
    floor(n)
}

/// Is `n` odd? 1 or 0.
fn odd(n: f64) -> f64 {
    n - 2.0 * floor(0.5 * n)
}

/// The polynomial of degree `n` above 0 that begins with 1 and `first`, by
/// `next = 2 x now - before`.
fn chebyshev(x: f64, first: f64, n: f64) -> f64 {
    if n > 1e5 {
        return f64::NAN;
    }
    let mut before = 1.0;
    let mut now = first;
    let mut k = 1.0;
    while k < n && !isnan(now) {
        let next = (x + x) * now - before;
        before = now;
        now = next;
        k += 1.0;
    }
    now
}

/// Chebyshev polynomial of the first kind.
pub fn chebyshev_polynomial_t(x: f64, n: f64) -> f64 {
    let m = degree(n);
    if m < 0.0 {
        return 0.0;
    }
    if m == 0.0 {
        return 1.0;
    }
    if fabs(x) == 1.0 {
        if x > 0.0 || odd(m) == 0.0 {
            return 1.0;
        }
        return -1.0;
    }
    if m > 6.0 && fabs(x) < 1.0 {
        return cos(m * acos(x));
    }
    chebyshev(x, x, m)
}

/// Chebyshev polynomial of the second kind.
pub fn chebyshev_polynomial_u(x: f64, n: f64) -> f64 {
    let m = degree(n);
    if m < 0.0 {
        return 0.0;
    }
    if m == 0.0 {
        return 1.0;
    }
    if fabs(x) == 1.0 {
        if x > 0.0 || odd(m) == 0.0 {
            return m + 1.0;
        }
        return -(m + 1.0);
    }
    if m > 8.0 && fabs(x) < 1.0 {
        let angle = acos(x);
        return sin((m + 1.0) * angle) / sin(angle);
    }
    chebyshev(x, x + x, m)
}

/// Chebyshev polynomial of the third kind.
pub fn chebyshev_polynomial_v(x: f64, n: f64) -> f64 {
    let m = degree(n);
    if m < 0.0 {
        return 0.0;
    }
    if m == 0.0 {
        return 1.0;
    }
    if fabs(x) == 1.0 {
        if x > 0.0 {
            return 1.0;
        }
        if odd(m) == 0.0 {
            return 2.0 * m + 1.0;
        }
        return -(2.0 * m + 1.0);
    }
    if m > 8.0 && fabs(x) < 1.0 {
        let angle = acos(x);
        return cos((m + 0.5) * angle) / cos(0.5 * angle);
    }
    chebyshev(x, x + x - 1.0, m)
}

/// Chebyshev polynomial of the fourth kind.
pub fn chebyshev_polynomial_w(x: f64, n: f64) -> f64 {
    let m = degree(n);
    if m < 0.0 {
        return 0.0;
    }
    if m == 0.0 {
        return 1.0;
    }
    if fabs(x) == 1.0 {
        if x > 0.0 {
            return 2.0 * m + 1.0;
        }
        if odd(m) == 0.0 {
            return 1.0;
        }
        return -1.0;
    }
    if m > 8.0 && fabs(x) < 1.0 {
        let angle = acos(x);
        return sin((m + 0.5) * angle) / sin(0.5 * angle);
    }
    chebyshev(x, x + x + 1.0, m)
}

/// Hermite polynomial, by `next = scale (x now - k before)`.
fn hermite(x: f64, n: f64, scale: f64) -> f64 {
    let m = degree(n);
    if m < 0.0 {
        return 0.0;
    }
    if m > 1e5 {
        return f64::NAN;
    }
    let mut before = 0.0;
    let mut now = 1.0;
    let mut k = 0.0;
    while k < m && !isnan(now) {
        let next = scale * (x * now - k * before);
        before = now;
        now = next;
        k += 1.0;
    }
    now
}

/// Physicist's Hermite polynomial.
pub fn hermite_polynomial_h(x: f64, n: f64) -> f64 {
    hermite(x, n, 2.0)
}

/// Probabilist's Hermite polynomial.
pub fn hermite_polynomial_he(x: f64, n: f64) -> f64 {
    hermite(x, n, 1.0)
}

/// The polynomial of degree `m` that begins with 1, by
/// `(k + 1) next = ((2 k + 1) slope + shift) now - k before`.
fn legendre(slope: f64, shift: f64, m: f64) -> f64 {
    if m < 0.0 {
        return 0.0;
    }
    if m > 1e5 {
        return f64::NAN;
    }
    let mut before = 0.0;
    let mut now = 1.0;
    let mut k = 0.0;
    while k < m && !isnan(now) {
        let next = (((k + k + 1.0) * slope + shift) * now - k * before) / (k + 1.0);
        before = now;
        now = next;
        k += 1.0;
    }
    now
}

/// Laguerre polynomial.
pub fn laguerre_polynomial_l(x: f64, n: f64) -> f64 {
    legendre(1.0, -x, degree(n))
}

/// Legendre polynomial.
pub fn legendre_polynomial_p(x: f64, n: f64) -> f64 {
    let m = degree(n);
    if m >= 0.0 && fabs(x) == 1.0 {
        if x > 0.0 || odd(m) == 0.0 {
            return 1.0;
        }
        return -1.0;
    }
    legendre(x, 0.0, m)
}
