//! Bessel functions and Airy's. Rational approximations are those of
//! [Cephes](https://www.netlib.org/cephes/)' `j0`, `j1` and `airy`.

use std::f64::consts::PI;

use super::c::*;
use super::polynomial;

/// The amplitude of the even part of Hankel's expansion of order 0, of `z = 25 / x²`.
fn hankel_p0(z: f64) -> f64 {
    let numerator = polynomial(
        z,
        [
            1.0,
            5.303240382353949,
            8.74716500199817,
            5.447250030587687,
            1.239533716464143,
            0.08283523921074408,
            0.0007969367292973471,
        ],
    );
    let denominator = polynomial(
        z,
        [
            1.0,
            5.306052882353947,
            8.761908832370695,
            5.470977403304171,
            1.2535274390105895,
            0.08562884743544745,
            0.0009244088105588637,
        ],
    );
    numerator / denominator
}

/// The odd part, over `5 / x`.
fn hankel_q0(z: f64) -> f64 {
    let numerator = polynomial(
        z,
        [
            -6.050143506007285,
            -51.41053267665993,
            -147.07750515495118,
            -177.68116798048806,
            -93.20601521237683,
            -19.553954425773597,
            -1.2825271867050931,
            -0.011366383889846916,
        ],
    );
    let denominator = polynomial(
        z,
        [
            242.0057402402914,
            2062.0933166032783,
            5930.727011873169,
            7240.467741956525,
            3882.4018360540163,
            856.4300259769806,
            64.3178256118178,
            1.0,
        ],
    );
    numerator / denominator
}

/// Bessel function of the first kind of order 0.
pub fn bessel_j0(x: f64) -> f64 {
    let a = fabs(x);
    if a == f64::INFINITY {
        return 0.0;
    }
    let z = a * a;
    if a <= 5.0 {
        let numerator = polynomial(
            z,
            [
                9708622510473064.0,
                -249248344360967.72,
                1956174919465.5657,
                -4794432209.782018,
            ],
        );
        let denominator = polynomial(
            z,
            [
                1.7108629408104315e18,
                3.1812195594320496e16,
                310518229857422.56,
                2112775201154.892,
                11185553704.535683,
                48440965.83399621,
                173785.4016763747,
                499.563147152651,
                1.0,
            ],
        );
        // The first two zeros are exact.
        return (z - 5.783185962946784) * (z - 30.471262343662087) * numerator / denominator;
    }
    let inverse = 5.0 / a;
    let square = inverse * inverse;
    let phase = a - 0.25 * PI;
    let wave = hankel_p0(square) * cos(phase) - inverse * hankel_q0(square) * sin(phase);
    wave * sqrt(2.0 / PI) / sqrt(a)
}

/// Bessel function of the second kind of order 0; −∞ at 0, NaN below.
pub fn bessel_y0(x: f64) -> f64 {
    if x == 0.0 {
        return -f64::INFINITY;
    }
    if x < 0.0 || x == f64::INFINITY {
        return f64::NAN;
    }
    if x <= 5.0 {
        let z = x * x;
        let numerator = polynomial(
            z,
            [
                -1.8495080043698668e16,
                4.4273326857256984e16,
                -3466283033847297.0,
                87590639439536.7,
                -982136065717.9115,
                5435264770.518765,
                -14663929.59039716,
                15592.436785523574,
            ],
        );
        let denominator = polynomial(
            z,
            [
                2.5059625617265306e17,
                3171577528429750.5,
                20297961275010.555,
                86400248710.3935,
                268919633.39381415,
                626107.330137135,
                1041.2835366425984,
                1.0,
            ],
        );
        return numerator / denominator + 2.0 / PI * log(x) * bessel_j0(x);
    }
    let inverse = 5.0 / x;
    let square = inverse * inverse;
    let phase = x - 0.25 * PI;
    let wave = hankel_p0(square) * sin(phase) + inverse * hankel_q0(square) * cos(phase);
    wave * sqrt(2.0 / PI) / sqrt(x)
}

/// The same as [`hankel_p0`], of order 1.
fn hankel_p1(z: f64) -> f64 {
    let numerator = polynomial(
        z,
        [
            1.0,
            5.214515986823615,
            8.424045901417724,
            5.112079511468076,
            1.1271960812968493,
            0.07313970569409176,
            0.0007621256162081731,
        ],
    );
    let denominator = polynomial(
        z,
        [
            1.0,
            5.209828486823619,
            8.399855543276042,
            5.073863861286015,
            1.105142326340617,
            0.06884559087544954,
            0.0005713231280725487,
        ],
    );
    numerator / denominator
}

/// The same as [`hankel_q0`], of order 1.
fn hankel_q1(z: f64) -> f64 {
    let numerator = polynomial(
        z,
        [
            25.207020585802372,
            211.68875710057213,
            597.4896124006136,
            710.8563049989261,
            366.7796093601508,
            75.82382841325453,
            4.982138729512334,
            0.05108625947501766,
        ],
    );
    let denominator = polynomial(
        z,
        [
            336.0936078106983,
            2826.1927851763908,
            7997.041604473507,
            9562.318924047562,
            4986.410583376536,
            1056.4488603826283,
            74.23732770356752,
            1.0,
        ],
    );
    numerator / denominator
}

/// Bessel function of the first kind of order 1.
pub fn bessel_j1(x: f64) -> f64 {
    let a = fabs(x);
    if a == f64::INFINITY {
        return 0.0;
    }
    let z = a * a;
    if a <= 5.0 {
        let numerator = polynomial(
            z,
            [
                3682957328638529.0,
                -72749424522181.83,
                452228297998.19403,
                -899971225.7055594,
            ],
        );
        let denominator = polynomial(
            z,
            [
                5.322786203326801e18,
                8.952223361846274e16,
                784369607876235.9,
                4749141220799.914,
                22151159547.97925,
                83514679.14319493,
                256987.25675774884,
                620.8364781180543,
                1.0,
            ],
        );
        // Its first two zeros are exact, too.
        return x * (z - 14.681970642123893) * (z - 49.2184563216946) * numerator / denominator;
    }
    let inverse = 5.0 / a;
    let square = inverse * inverse;
    let phase = a - 0.75 * PI;
    let wave = hankel_p1(square) * cos(phase) - inverse * hankel_q1(square) * sin(phase);
    let value = wave * sqrt(2.0 / PI) / sqrt(a);
    if x < 0.0 {
        return -value;
    }
    value
}

/// Bessel function of the second kind of order 1; −∞ at 0, NaN below.
pub fn bessel_y1(x: f64) -> f64 {
    if x == 0.0 {
        return -f64::INFINITY;
    }
    if x < 0.0 || x == f64::INFINITY {
        return f64::NAN;
    }
    if x <= 5.0 {
        let z = x * x;
        let numerator = polynomial(
            z,
            [
                -7.788771962659501e17,
                2.024394757135949e17,
                -8127702555013251.0,
                114509511541823.73,
                -647355876379.1603,
                1263204747.9017804,
            ],
        );
        let denominator = polynomial(
            z,
            [
                3.9727060811656064e18,
                6.871410873553005e16,
                620557727146953.8,
                3882312774962.3857,
                18760131610.870617,
                73481194.44597217,
                235564.09294306856,
                594.3015923461282,
                1.0,
            ],
        );
        return x * numerator / denominator + 2.0 / PI * (bessel_j1(x) * log(x) - 1.0 / x);
    }
    let inverse = 5.0 / x;
    let square = inverse * inverse;
    let phase = x - 0.75 * PI;
    let wave = hankel_p1(square) * sin(phase) + inverse * hankel_q1(square) * cos(phase);
    wave * sqrt(2.0 / PI) / sqrt(x)
}

/// The modified Bessel function of order 0 by its power series.
fn i0_series(x: f64) -> f64 {
    let z = 0.25 * x * x;
    let mut k = 0.0;
    let mut term = 1.0;
    let mut sum = 1.0;
    while term > f64::EPSILON * sum {
        k += 1.0;
        term *= z / (k * k);
        sum += term;
    }
    sum
}

/// The series of order 1.
fn i1_series(x: f64) -> f64 {
    let z = 0.25 * x * x;
    let mut k = 0.0;
    let mut term = 1.0;
    let mut sum = 1.0;
    while term > f64::EPSILON * sum {
        k += 1.0;
        term *= z / (k * (k + 1.0));
        sum += term;
    }
    0.5 * x * sum
}

/// `√(2πx) e⁻ˣ I(x)` for large `x`, by Hankel's expansion; `order` is 4 times the order's square.
fn i_expansion(order: f64, x: f64) -> f64 {
    let mut k = 0.0;
    let mut term = 1.0;
    let mut sum = 1.0;
    while fabs(term) > f64::EPSILON && k < 40.0 {
        k += 1.0;
        let odd = 2.0 * k - 1.0;
        term *= (odd * odd - order) / (8.0 * k * x);
        sum += term;
    }
    sum
}

/// `e^-|x|` times the modified Bessel function of the first kind of order 0.
pub fn i0e(x: f64) -> f64 {
    let a = fabs(x);
    if a <= 20.0 {
        return exp(-a) * i0_series(a);
    }
    i_expansion(0.0, a) / (sqrt(2.0 * PI) * sqrt(a))
}

/// `e^-|x|` times the modified Bessel function of the first kind of order 1.
pub fn i1e(x: f64) -> f64 {
    let a = fabs(x);
    if a <= 20.0 {
        return exp(-a) * i1_series(x);
    }
    let value = i_expansion(4.0, a) / (sqrt(2.0 * PI) * sqrt(a));
    if x < 0.0 {
        return -value;
    }
    value
}

/// The modified Bessel function of the second kind of order 0 for `x` up to 2, by its power series.
fn k0_series(x: f64) -> f64 {
    let z = 0.25 * x * x;
    let mut k = 0.0;
    let mut term = 1.0;
    let mut harmonic = 0.0;
    let mut sum = 0.0;
    while term > f64::EPSILON {
        k += 1.0;
        term *= z / (k * k);
        harmonic += 1.0 / k;
        sum += term * harmonic;
    }
    sum - (log(0.5 * x) + 0.5772156649015329) * i0_series(x)
}

/// `eˣ` times the modified Bessel function of the second kind, for `x` from 2 on. `order` is 0 or 1.
/// It is Temme's continued fraction (Temme 1975, doi 10.1016/0021-9991(75)90082-0).
fn k_fraction(order: f64, x: f64) -> f64 {
    // The fraction is 1 to all digits, and its terms would overflow.
    if x > 1e17 {
        return sqrt(0.5 * PI) / sqrt(x);
    }
    let mut b = 2.0 * (1.0 + x);
    let mut d = 1.0 / b;
    let mut h = d;
    let mut step = d;
    let mut before = 0.0;
    let mut now = 1.0;
    let mut a = -0.25;
    let mut c = 0.25;
    let mut q = 0.25;
    let mut sum = 1.0 + q * step;
    let mut change = sum;
    let mut i = 1.0;
    while fabs(change) > f64::EPSILON * fabs(sum) && i < 500.0 {
        i += 1.0;
        a -= 2.0 * (i - 1.0);
        c = -a * c / i;
        let next = (before - b * now) / a;
        before = now;
        now = next;
        q += c * next;
        b += 2.0;
        d = 1.0 / (b + a * d);
        step *= b * d - 1.0;
        h += step;
        change = q * step;
        sum += change;
    }
    let k0 = sqrt(0.5 * PI) / sqrt(x) / sum;
    if order == 0.0 {
        return k0;
    }
    k0 * (x + 0.5 - 0.25 * h) / x
}

/// `eˣ` times the modified Bessel function of the second kind of order 0; ∞ at 0, NaN below.
pub fn k0e(x: f64) -> f64 {
    if x < 0.0 {
        return f64::NAN;
    }
    if x == f64::INFINITY {
        return 0.0;
    }
    if x <= 2.0 {
        return exp(x) * k0_series(x);
    }
    k_fraction(0.0, x)
}

/// `eˣ` times the modified Bessel function of the second kind of order 1; ∞ at 0, NaN below.
pub fn k1e(x: f64) -> f64 {
    if x < 0.0 {
        return f64::NAN;
    }
    if x == f64::INFINITY {
        return 0.0;
    }
    if x == 0.0 {
        return f64::INFINITY;
    }
    if x <= 2.0 {
        // By the Wronskian of both kinds.
        return exp(x) * (1.0 / x - i1_series(x) * k0_series(x)) / i0_series(x);
    }
    k_fraction(1.0, x)
}

/// Airy's function Ai.
pub fn airy_ai(x: f64) -> f64 {
    if x > 103.892 {
        return 0.0;
    }
    if x < -2.09 {
        let root = sqrt(-x);
        let zeta = -2.0 / 3.0 * x * root;
        let inverse = 1.0 / zeta;
        let z = inverse * inverse;
        let even = polynomial(
            z,
            [
                -1.6778769848911465e-8,
                -2.776491081552329e-6,
                -0.0001592764962392621,
                -0.004062659235948854,
                -0.04919001326095003,
                -0.2797799815451191,
                -0.6931580360369335,
                -0.6264565444319123,
                -0.1316963234183318,
            ],
        ) / polynomial(
            z,
            [
                4.5185009297058035e-7,
                7.547203482874142e-5,
                0.004402916416152112,
                0.11568717379518804,
                1.4752914677166642,
                9.187074029072596,
                26.736704094149957,
                32.682503279522464,
                13.356042070655324,
                1.0,
            ],
        );
        let odd = polynomial(
            z,
            [
                3.415517847659236e-10,
                8.117892395543892e-8,
                6.98793669997261e-6,
                0.000282851600836737,
                0.005858041130483885,
                0.06338889196289255,
                0.35146565610554764,
                0.9391692298166502,
                1.0657989759959559,
                0.39110302961568827,
                0.01973399320916857,
            ],
        ) / polynomial(
            z,
            [
                4.9183457006293e-9,
                1.1716673321441352e-6,
                0.00010125908511650914,
                0.004126565238242226,
                0.08645808263523921,
                0.9542936116189619,
                5.476860694229755,
                15.564662893286462,
                19.835292871831214,
                9.30892908077442,
                1.0,
            ],
        );
        let phase = zeta + 0.25 * PI;
        let wave = sin(phase) * (1.0 + z * even) - cos(phase) * (inverse * odd);
        return wave / sqrt(PI * root);
    }
    if x >= 2.09 {
        let root = sqrt(x);
        let zeta = 2.0 / 3.0 * x * root;
        let inverse = 1.0 / zeta;
        let numerator = polynomial(
            inverse,
            [
                1.0,
                14.026469116338967,
                70.53609068404442,
                159.75639135016442,
                168.08922493463058,
                76.27960536152345,
                12.007595273964581,
                0.346538101525629,
            ],
        );
        let denominator = polynomial(
            inverse,
            [
                1.0,
                14.095913560783403,
                71.47784008255756,
                164.2346928715297,
                177.31808814540045,
                84.51389701414746,
                14.75625625848472,
                0.5675945326387702,
            ],
        );
        return exp(-zeta) * numerator / (denominator * 2.0 * sqrt(PI * root));
    }
    let z = x * x * x;
    let mut k = 0.0;
    let mut f_term = 1.0;
    let mut g_term = x;
    let mut f = 1.0;
    let mut g = x;
    while fabs(f_term) > f64::EPSILON * fabs(f) {
        k += 3.0;
        f_term *= z / (k * (k - 1.0));
        g_term *= z / (k * (k + 1.0));
        f += f_term;
        g += g_term;
    }
    0.3550280538878172 * f - 0.2588194037928068 * g
}
