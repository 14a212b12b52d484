// Functions that every kernel can use.
//
// The language lets compilers assume that there are no NaN and no infinities. So both are found by their bits, and
// functions get no argument whose result would be one.

// Groups of a row of the grid.
const ROW = 32768u;

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_infinite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn is_negative(x: f32) -> bool { return (bitcast<u32>(x) >> 31u) == 1u; }

// A value by its bits, hidden from the compiler, which has no such constants.
fn of_bits(given: u32) -> f32 {
    var bits = given;
    return bitcast<f32>(bits);
}

fn with_sign(x: f32, y: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}

// Numbers in their order as integers.
fn ordered(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return select(bits, -2147483648 - bits, bits < 0);
}
fn lt(a: f32, b: f32) -> bool { return !is_nan(a) && !is_nan(b) && ordered(a) < ordered(b); }
fn le(a: f32, b: f32) -> bool { return !is_nan(a) && !is_nan(b) && ordered(a) <= ordered(b); }
fn eq(a: f32, b: f32) -> bool { return !is_nan(a) && !is_nan(b) && ordered(a) == ordered(b); }

// The larger and the smaller one; NaN if one is.
fn larger(a: f32, b: f32) -> f32 {
    return select(b, a, is_nan(a) || (!is_nan(b) && ordered(a) > ordered(b)));
}
fn smaller(a: f32, b: f32) -> f32 {
    return select(b, a, is_nan(a) || (!is_nan(b) && ordered(a) < ordered(b)));
}

// The sum; two numbers that cancel are left to the device, NaN and infinities are not.
fn sum(a: f32, b: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (is_nan(b)) { return b; }
    if (is_infinite(a)) {
        return select(a, of_bits(0x7fc00000u), is_infinite(b) && is_negative(a) != is_negative(b));
    }
    if (is_infinite(b)) { return b; }
    return a + b;
}
fn difference(a: f32, b: f32) -> f32 { return sum(a, bitcast<f32>(bitcast<u32>(b) ^ 0x80000000u)); }
fn product(a: f32, b: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (is_nan(b)) { return b; }
    if (is_infinite(a) || is_infinite(b)) {
        let is_zero = ordered(a) == 0 || ordered(b) == 0;
        let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
        return of_bits(select(sign | 0x7f800000u, 0x7fc00000u, is_zero));
    }
    return a * b;
}
fn quotient(a: f32, b: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (is_nan(b)) { return b; }
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
    if (is_infinite(a)) { return of_bits(select(sign | 0x7f800000u, 0x7fc00000u, is_infinite(b))); }
    if (is_infinite(b)) { return of_bits(sign); }
    if (ordered(b) == 0) { return of_bits(select(sign | 0x7f800000u, 0x7fc00000u, ordered(a) == 0)); }
    return a / b;
}

fn power_of_two(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }

// 2 to the power n, times eʳ for an r between -0.35 and 0.35: eight terms of its series.
fn scaled_exp(n: i32, r: f32) -> f32 {
    var y = fma(r, 1.984127e-4, 1.3888889e-3);
    y = fma(r, y, 8.333334e-3);
    y = fma(r, y, 4.1666668e-2);
    y = fma(r, y, 1.6666667e-1);
    y = fma(r, y, 0.5);
    y = fma(r * r, y, r) + 1.0;
    // In two steps: the power alone may be too large or too small.
    let half = n / 2;
    return y * power_of_two(half) * power_of_two(n - half);
}
fn exp_f32(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    if (ordered(x) > ordered(88.72284)) { return of_bits(0x7f800000u); }
    if (ordered(x) < ordered(-103.98)) { return 0.0; }
    let n = i32(round(x * 1.442695));
    if (n == 0) { return scaled_exp(0, x); }
    // Compilers may reorder sums of floats, and lose the digits of x - n ln 2. So it is a sum of whole numbers of 2⁻²⁴.
    let units = i32(round(x * 16777216.0)) - n * 11629079;
    return scaled_exp(n, (f32(units) - f32(n) * 0.96804520) * 5.9604645e-8);
}
fn exp2_f32(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    if (ordered(x) >= ordered(128.0)) { return of_bits(0x7f800000u); }
    if (ordered(x) < ordered(-150.0)) { return 0.0; }
    let n = round(x);
    return scaled_exp(i32(n), (x - n) * 0.6931472);
}
fn log_f32(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    if (ordered(x) == 0) { return of_bits(0xff800000u); }
    if (is_negative(x)) { return of_bits(0x7fc00000u); }
    if (is_infinite(x)) { return x; }
    var bits = bitcast<u32>(x);
    var k = 0;
    if (bits < 0x00800000u) {
        // Not normal: a whole number of the smallest ones.
        bits = bitcast<u32>(f32(bits));
        k = -149;
    }
    // x = 2ᵏ (1 + f), with 1 + f from √½ to √2.
    let over = i32(bits - 0x3f3504f3u) >> 23u;
    k += over;
    let f = bitcast<f32>(bits - u32(over << 23u)) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * fma(z, fma(z, fma(z, 0.22222222, 0.2857143), 0.4), 0.6666667);
    let h = 0.5 * f * f;
    let n = f32(k);
    return fma(n, 0.693145751953125, f - (h - fma(s, h + r, n * 1.4286068e-6)));
}
fn tanh_f32(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = abs(x);
    if (ordered(a) > ordered(10.0)) { return with_sign(1.0, x); }
    if (a > 0.5) { return with_sign(1.0 - 2.0 / (exp_f32(2.0 * a) + 1.0), x); }
    let z = x * x;
    var y = fma(z, -1.455834e-3, 3.5921281e-3);
    y = fma(z, y, -8.8632355e-3);
    y = fma(z, y, 2.1869488e-2);
    y = fma(z, y, -5.396825e-2);
    y = fma(z, y, 0.13333334);
    y = fma(z, y, -0.33333334);
    return fma(x * z, y, x);
}
fn erf_f32(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = abs(x);
    if (ordered(a) > ordered(4.0)) { return with_sign(1.0, x); }
    if (a < 1.0) {
        // The series 2/√π Σ (-1)ⁿ x²ⁿ⁺¹ / (n! (2n + 1)).
        let z = -x * x;
        var y = fma(z, 1.0892222e-9, 1.3122532e-8);
        y = fma(z, y, 1.4503852e-7);
        y = fma(z, y, 1.4589169e-6);
        y = fma(z, y, 1.3227514e-5);
        y = fma(z, y, 1.0683761e-4);
        y = fma(z, y, 7.5757575e-4);
        y = fma(z, y, 4.6296297e-3);
        y = fma(z, y, 2.3809524e-2);
        y = fma(z, y, 0.1);
        y = fma(z, y, 0.33333334);
        return 1.1283792 * fma(x * z, y, x);
    }
    // Abramowitz and Stegun, 7.1.26.
    let t = 1.0 / fma(a, 0.3275911, 1.0);
    var y = fma(t, 1.0614054, -1.4531521);
    y = fma(t, y, 1.4214138);
    y = fma(t, y, -0.28449672);
    y = fma(t, y, 0.2548296);
    return with_sign(1.0 - y * t * exp_f32(-a * a), x);
}
fn sqrt_f32(x: f32) -> f32 {
    if (is_nan(x) || ordered(x) == 0) { return x; }
    if (is_negative(x)) { return of_bits(0x7fc00000u); }
    if (is_infinite(x)) { return x; }
    return sqrt(x);
}
fn sign_f32(x: f32) -> f32 {
    if (is_nan(x) || ordered(x) == 0) { return 0.0; }
    return select(1.0, -1.0, is_negative(x));
}
// Numbers of 2²³ and more are whole.
fn is_whole(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) >= 0x4b000000u; }
fn floor_f32(x: f32) -> f32 {
    if (is_whole(x)) { return x; }
    return with_sign(floor(x), x);
}
fn ceil_f32(x: f32) -> f32 {
    if (is_whole(x)) { return x; }
    return with_sign(ceil(x), x);
}
fn round_f32(x: f32) -> f32 {
    if (is_whole(x)) { return x; }
    return with_sign(round(x), x);
}
fn trunc_f32(x: f32) -> f32 {
    if (is_whole(x)) { return x; }
    return with_sign(trunc(x), x);
}
fn sigmoid_f32(x: f32) -> f32 { return quotient(1.0, sum(1.0, exp_f32(bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u)))); }

// An integer of 64 bits, or the nearest one of 32.
fn i32_of_words(low: u32, high: u32) -> i32 {
    if (high == u32(bitcast<i32>(low) >> 31u)) { return bitcast<i32>(low); }
    return select(2147483647, -2147483648, (high >> 31u) == 1u);
}

// Elements of 8 and 16 bits, from and to the low bits of a word.
fn load_u8(word: u32) -> u32 { return word; }
fn load_bool(word: u32) -> u32 { return word; }
fn load_u16(word: u32) -> u32 { return word; }
fn load_i8(word: u32) -> i32 { return bitcast<i32>(word << 24u) >> 24u; }
fn load_i16(word: u32) -> i32 { return bitcast<i32>(word << 16u) >> 16u; }
fn load_bf16(word: u32) -> f32 { return bitcast<f32>(word << 16u); }
fn load_f16(word: u32) -> f32 {
    let sign = (word & 0x8000u) << 16u;
    let rest = word & 0x7fffu;
    if (rest < 0x0400u) {
        // Not normal: a whole number of 2⁻²⁴.
        return bitcast<f32>(bitcast<u32>(f32(rest) * 5.9604645e-8) | sign);
    }
    if (rest < 0x7c00u) { return bitcast<f32>(((rest << 13u) + 0x38000000u) | sign); }
    return bitcast<f32>((rest << 13u) | 0x7f800000u | sign);
}
fn store_u8(value: u32) -> u32 { return value; }
fn store_bool(value: u32) -> u32 { return value; }
fn store_u16(value: u32) -> u32 { return value; }
fn store_i8(value: i32) -> u32 { return bitcast<u32>(value); }
fn store_i16(value: i32) -> u32 { return bitcast<u32>(value); }
// Rounded to the nearest, ties to even; a NaN stays one.
fn store_bf16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if (is_nan(value)) { return (bits >> 16u) | 0x40u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
fn store_f16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) { return sign | 0x7e00u; }
    // From 65520 on, infinity.
    if (rest >= 0x477ff000u) { return sign | 0x7c00u; }
    if (rest >= 0x38800000u) {
        let near = rest + 0xfffu + ((rest >> 13u) & 1u);
        return sign | ((near - 0x38000000u) >> 13u);
    }
    // Not normal, or 0: the digits move to where 2⁻²⁴ is one.
    if (rest < 0x33000000u) { return sign; }
    let digits = (rest & 0x7fffffu) | 0x800000u;
    let shift = 126u - (rest >> 23u);
    let whole = digits >> shift;
    let part = digits & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    let up = part > half || (part == half && (whole & 1u) == 1u);
    return sign | (whole + select(0u, 1u, up));
}

// A number cut towards zero and to the range of an integer of so many bits; 0 for NaN.
fn cut_signed(x: f32, bits: u32) -> i32 {
    if (is_nan(x)) { return 0; }
    let limit = power_of_two(i32(bits) - 1);
    if (ordered(x) >= ordered(limit)) { return i32((1u << (bits - 1u)) - 1u); }
    if (ordered(x) < ordered(-limit)) { return bitcast<i32>(~((1u << (bits - 1u)) - 1u)); }
    return i32(x);
}
fn cut_unsigned(x: f32, bits: u32) -> u32 {
    if (is_nan(x) || is_negative(x)) { return 0u; }
    if (ordered(x) >= ordered(power_of_two(i32(bits)))) { return 0xffffffffu >> (32u - bits); }
    return u32(x);
}
