//! The error function's relatives. Rational approximations are those of
//! [Cephes](https://www.netlib.org/cephes/)' `ndtr` and `ndtri`.

use std::f64::consts::FRAC_1_SQRT_2;

use super::c::*;
use super::polynomial;

/// `exp(x²) erfc(x)` for `x` from 1 on.
fn erfcx_from_1(x: f64) -> f64 {
    if x > 1000.0 {
        let z = 0.5 / (x * x);
        return 0.5641895835477563 / x * (1.0 - z + 3.0 * z * z);
    }
    if x > 8.0 {
        let numerator = polynomial(
            x,
            [
                2.9788666537210022,
                7.4097426995044895,
                6.160210979930536,
                5.019050422511805,
                1.275366707599781,
                0.5641895835477551,
            ],
        );
        let denominator = polynomial(
            x,
            [
                3.369076451000815,
                9.608968090632859,
                17.08144507475659,
                12.048953980809666,
                9.396035249380015,
                2.2605286322011726,
                1.0,
            ],
        );
        return numerator / denominator;
    }
    let numerator = polynomial(
        x,
        [
            557.5353353693994,
            1027.5518868951572,
            934.5285271719576,
            526.4451949954773,
            196.5208329560771,
            48.63719709856814,
            7.463210564422699,
            0.5641895648310689,
            2.461969814735305e-10,
        ],
    );
    let denominator = polynomial(
        x,
        [
            557.5353408177277,
            1656.6630919416134,
            2246.3376081871097,
            1823.9091668790973,
            975.7085017432055,
            354.9377788878199,
            86.70721408859897,
            13.228195115474499,
            1.0,
        ],
    );
    numerator / denominator
}

/// `1 - erf(x)`, also where that is small.
pub fn erfc(x: f64) -> f64 {
    let a = fabs(x);
    if a > 1.0 {
        let tail = exp(-a * a) * erfcx_from_1(a);
        if x < 0.0 {
            return 2.0 - tail;
        }
        return tail;
    }
    1.0 - erf(x)
}

/// `exp(x²) erfc(x)`, the scaled complementary error function.
pub fn erfcx(x: f64) -> f64 {
    if x > 1.0 {
        return erfcx_from_1(x);
    }
    if x < -1.0 {
        return 2.0 * exp(x * x) - erfcx_from_1(-x);
    }
    exp(x * x) * (1.0 - erf(x))
}

/// [`ndtri`] of `½ + y` near ½, over `√(2 π)`.
fn central_ndtri(y: f64) -> f64 {
    let z = y * y;
    let numerator = polynomial(
        z,
        [
            -1.2391658386738125,
            13.931260938727968,
            -56.67628574690703,
            98.00107541859997,
            -59.96335010141079,
        ],
    );
    let denominator = polynomial(
        z,
        [
            -1.1833162112133,
            15.90562251262117,
            -82.03722561683334,
            200.26021238006066,
            -225.46268785411937,
            86.36024213908905,
            4.676279128988815,
            1.9544885833814176,
            1.0,
        ],
    );
    y + y * (z * numerator / denominator)
}

/// The `x` below which a standard normal variable is with probability `p`, for `p` up to ½.
fn lower_ndtri(p: f64) -> f64 {
    if p > 0.1353352832366127 {
        return 2.5066282746310007 * central_ndtri(p - 0.5);
    }
    let x = sqrt(-2.0 * log(p));
    let z = 1.0 / x;
    if x < 8.0 {
        let numerator = polynomial(
            z,
            [
                -0.0008574567851546854,
                -0.03504246268278482,
                -0.1402560791713545,
                2.1866330685079025,
                14.684956192885803,
                44.08050738932008,
                57.16281922464213,
                31.525109459989388,
                4.0554489230596245,
            ],
        );
        let denominator = polynomial(
            z,
            [
                -0.0009332594808954574,
                -0.03808064076915783,
                -0.14218292285478779,
                2.504649462083094,
                15.04253856929075,
                41.3172038254672,
                45.39076351288792,
                15.779988325646675,
                1.0,
            ],
        );
        return log(x) / x - x + z * numerator / denominator;
    }
    let numerator = polynomial(
        z,
        [
            6.239745391849833e-9,
            2.6580697468673755e-6,
            0.00030158155350823543,
            0.012371663481782003,
            0.20148538954917908,
            1.3330346081580755,
            3.9388102529247444,
            6.915228890689842,
            3.2377489177694603,
        ],
    );
    let denominator = polynomial(
        z,
        [
            6.790194080099813e-9,
            2.8924786474538068e-6,
            0.00032801446468212774,
            0.013420400608854318,
            0.21623699359449663,
            1.3770209948908132,
            3.6798356385616087,
            6.02427039364742,
            1.0,
        ],
    );
    log(x) / x - x + z * numerator / denominator
}

/// The `x` below which a standard normal variable is with probability `p`.
pub fn ndtri(p: f64) -> f64 {
    if p < 0.0 {
        return f64::NAN;
    }
    if p > 1.0 {
        return f64::NAN;
    }
    if p == 0.0 {
        return -f64::INFINITY;
    }
    if p == 1.0 {
        return f64::INFINITY;
    }
    if p > 0.5 {
        return -lower_ndtri(1.0 - p);
    }
    lower_ndtri(p)
}

/// The inverse of the error function.
pub fn erfinv(y: f64) -> f64 {
    let a = fabs(y);
    if a > 1.0 {
        return f64::NAN;
    }
    if a == 1.0 {
        return y * f64::INFINITY;
    }
    if a < 0.5 {
        // The result is that for `y / 2 + 1 / 2`, without rounding this sum.
        return 1.772453850905516 * central_ndtri(0.5 * y);
    }
    let x = -FRAC_1_SQRT_2 * lower_ndtri(0.5 * (1.0 - a));
    if y < 0.0 {
        return -x;
    }
    x
}
