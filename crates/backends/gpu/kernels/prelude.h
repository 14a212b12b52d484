// What every kernel can use: element types, conversions, arithmetic.
//
// For each dtype `t` there are `storage_t`, the element in memory, `compute_t`, the type that
// kernels compute in, `load_t(p, i)` and `store_t(p, i, v)`. LOAD, STORE, STORAGE and COMPUTE
// take the dtype as an argument, which may be a macro.

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define STORAGE(t) PASTE(storage_, t)
#define COMPUTE(t) PASTE(compute_, t)
#define LOAD(t, p, i) PASTE(load_, t)(p, i)
#define STORE(t, p, i, v) PASTE(store_, t)(p, i, v)

typedef float storage_f32;
typedef ushort storage_bf16;
typedef long storage_i64;
typedef int storage_i32;
typedef short storage_i16;
typedef char storage_i8;
typedef uchar storage_u8;
typedef uint storage_u32;
typedef uchar storage_bool;

typedef float compute_f32;
typedef float compute_f16;
typedef float compute_bf16;
typedef long compute_i64;
typedef int compute_i32;
typedef short compute_i16;
typedef char compute_i8;
typedef uchar compute_u8;
typedef uint compute_u32;
typedef uchar compute_bool;

#define load_f32(p, i) (p)[i]
#define load_bf16(p, i) F32_OF_BITS((uint)(p)[i] << 16)
#define load_i64(p, i) (p)[i]
#define load_i32(p, i) (p)[i]
#define load_i16(p, i) (p)[i]
#define load_i8(p, i) (p)[i]
#define load_u8(p, i) (p)[i]
#define load_u32(p, i) (p)[i]
#define load_bool(p, i) (p)[i]

#define store_f32(p, i, v) (p)[i] = (v)
#define store_bf16(p, i, v) (p)[i] = f32_to_bf16(v)
#define store_i64(p, i, v) (p)[i] = (v)
#define store_i32(p, i, v) (p)[i] = (v)
#define store_i16(p, i, v) (p)[i] = (v)
#define store_i8(p, i, v) (p)[i] = (v)
#define store_u8(p, i, v) (p)[i] = (v)
#define store_u32(p, i, v) (p)[i] = (v)
#define store_bool(p, i, v) (p)[i] = (v)

// Rounds to the nearest, ties to even; a NaN stays one.
FUNCTION ushort f32_to_bf16(float x) {
    uint bits = BITS_OF_F32(x);
    if (x != x) return (ushort)((bits >> 16) | 0x40u);
    return (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// A value as it is after it was stored and loaded.
FUNCTION float round_f16(float x) { return f16_to_f32(f32_to_f16(x)); }
FUNCTION float round_bf16(float x) { return F32_OF_BITS((uint)f32_to_bf16(x) << 16); }

// An integer in single precision so that rounding it once more gives what rounding the
// integer would: what gets lost leaves an odd last bit.
FUNCTION float odd_of_i64(long v) {
    ulong m = v < 0 ? 0 - (ulong)v : (ulong)v;
    uint used = 64u - (m == 0 ? 64u : LEADING_ZEROS_64(m));
    if (used > 24u) {
        uint lost = used - 24u;
        ulong kept = m >> lost;
        if ((kept << lost) != m) kept |= 1;
        m = kept << lost;
    }
    float f = (float)m;
    return v < 0 ? -f : f;
}

// The real part of a complex number is `x`, the imaginary one `y`.
typedef float2 complex64;
typedef complex64 storage_complex64;
typedef complex64 compute_complex64;
#define load_complex64(p, i) (p)[i]
#define store_complex64(p, i, v) (p)[i] = (v)

#define COMPLEX_FUNCTIONS(C, R) \
    FUNCTION C make_##C(R re, R im) { C z; z.x = re; z.y = im; return z; } \
    FUNCTION C add_##C(C a, C b) { return make_##C(a.x + b.x, a.y + b.y); } \
    FUNCTION C sub_##C(C a, C b) { return make_##C(a.x - b.x, a.y - b.y); } \
    FUNCTION C mul_##C(C a, C b) { \
        return make_##C(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); \
    } \
    FUNCTION C div_##C(C a, C b) { \
        R d = b.x * b.x + b.y * b.y; \
        return make_##C((a.x * b.x + a.y * b.y) / d, (a.y * b.x - a.x * b.y) / d); \
    } \
    FUNCTION C exp_##C(C z) { \
        R r = exp(z.x); \
        return make_##C(r * cos(z.y), r * sin(z.y)); \
    } \
    FUNCTION C inverse_##C(C z) { \
        R d = z.x * z.x + z.y * z.y; \
        return make_##C(z.x / d, -z.y / d); \
    }
COMPLEX_FUNCTIONS(complex64, float)

// The exact remainder, with the sign of the divisor, and the floor of the exact quotient.
#define DIVISION_FUNCTIONS(T, name) \
    FUNCTION T remainder_##name(T a, T b) { \
        T r = fmod(a, b); \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r; \
    } \
    FUNCTION T floor_divide_##name(T a, T b) { \
        T quotient = a / b; \
        if (isnan(quotient) || isinf(quotient) || isinf(b)) return floor(quotient); \
        return rint((a - remainder_##name(a, b)) / b); \
    }
DIVISION_FUNCTIONS(float, f32)

// Exactly ±1 where the result rounds to that, which not every library's is.
FUNCTION float tanh_f32(float x) { return fabs(x) > 9.5f ? (x < 0 ? -1.0f : 1.0f) : tanh(x); }

// Division rounds down; the one quotient that does not fit wraps. Divisors are not 0.
#define INTEGER_FUNCTIONS(T, name) \
    FUNCTION T remainder_##name(T a, T b) { \
        if (b == (T)-1) return 0; \
        T r = a % b; \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r; \
    } \
    FUNCTION T floor_divide_##name(T a, T b) { \
        if (b == (T)-1) return (T)(0 - (ulong)a); \
        T r = a % b; \
        return a / b - (r != 0 && (r < 0) != (b < 0)); \
    } \
    FUNCTION T pow_##name(T base, T exponent) { \
        if (exponent < 0) { \
            if (base == 1) return 1; \
            return base == (T)-1 ? (exponent & 1 ? -1 : 1) : 0; \
        } \
        ulong result = 1, square = (ulong)base; \
        for (ulong rest = (ulong)exponent; rest > 0; rest >>= 1) { \
            if (rest & 1) result *= square; \
            square *= square; \
        } \
        return (T)result; \
    }
INTEGER_FUNCTIONS(long, i64)
INTEGER_FUNCTIONS(int, i32)
INTEGER_FUNCTIONS(short, i16)
INTEGER_FUNCTIONS(char, i8)

#define UNSIGNED_FUNCTIONS(T, name) \
    FUNCTION T remainder_##name(T a, T b) { return a % b; } \
    FUNCTION T floor_divide_##name(T a, T b) { return a / b; } \
    FUNCTION T pow_##name(T base, T exponent) { \
        ulong result = 1, square = base; \
        for (uint rest = exponent; rest > 0; rest >>= 1) { \
            if (rest & 1) result *= square; \
            square *= square; \
        } \
        return (T)result; \
    }
UNSIGNED_FUNCTIONS(uchar, u8)
UNSIGNED_FUNCTIONS(uint, u32)

// A real number cut towards zero and to the range of an integer type; 0 for NaN. `limit` is
// one more than the largest number.
#define CUT_SIGNED(T, x, limit, max) \
    ((x) != (x) ? (T)0 : (x) >= (limit) ? (T)(max) : (x) < -(limit) ? (T)(-(max)-1) : (T)(x))
#define CUT_UNSIGNED(T, x, limit, max) \
    ((x) != (x) || (x) <= 0 ? (T)0 : (x) >= (limit) ? (T)(max) : (T)(x))
#define cut_i64(x) CUT_SIGNED(long, x, 9223372036854775808.0f, 9223372036854775807L)
#define cut_i32(x) CUT_SIGNED(int, x, 2147483648.0f, 2147483647)
#define cut_i16(x) ((short)CUT_SIGNED(int, x, 32768.0f, 32767))
#define cut_i8(x) ((char)CUT_SIGNED(int, x, 128.0f, 127))
#define cut_u8(x) ((uchar)CUT_UNSIGNED(uint, x, 256.0f, 255))
#define cut_u32(x) CUT_UNSIGNED(uint, x, 4294967296.0f, 4294967295u)

// Tells the host of a caller's mistake; any of several will do.
#define REPORT(status, code) (status)[0] = (code)

#if HAS_F64
typedef double storage_f64;
typedef double compute_f64;
#define load_f64(p, i) (p)[i]
#define store_f64(p, i, v) (p)[i] = (v)

typedef double2 complex128;
typedef complex128 storage_complex128;
typedef complex128 compute_complex128;
#define load_complex128(p, i) (p)[i]
#define store_complex128(p, i, v) (p)[i] = (v)
COMPLEX_FUNCTIONS(complex128, double)
DIVISION_FUNCTIONS(double, f64)
FUNCTION double tanh_f64(double x) { return fabs(x) > 20.0 ? (x < 0 ? -1.0 : 1.0) : tanh(x); }

// A double in single precision so that rounding it once more gives what rounding the double
// would: the last bit of an inexact result is made odd.
FUNCTION float odd_of_f64(double x) {
    float nearest = (float)x;
    if ((double)nearest == x || x != x) return nearest;
    uint bits = BITS_OF_F32(nearest);
    if (fabs((double)nearest) > fabs(x)) bits -= 1;
    return F32_OF_BITS(bits | 1u);
}
#else
// Numbers in double precision are moved as their bits.
typedef ulong storage_f64;
typedef ulong compute_f64;
#define load_f64(p, i) (p)[i]
#define store_f64(p, i, v) (p)[i] = (v)
#undef F64_OF_BITS
#define F64_OF_BITS(x) (x)

typedef ulong2 complex128;
typedef complex128 storage_complex128;
typedef complex128 compute_complex128;
#define load_complex128(p, i) (p)[i]
#define store_complex128(p, i, v) (p)[i] = (v)
FUNCTION complex128 make_complex128(ulong re, ulong im) {
    complex128 z;
    z.x = re;
    z.y = im;
    return z;
}
#endif

// Four random words of Philox4x32-10 (Salmon et al. 2011, doi 10.1145/2063384.2063405).
typedef struct { uint x[4]; } words4;

FUNCTION words4 philox(uint counter_low, uint counter_high, uint key_low, uint key_high) {
    uint x0 = counter_low, x1 = counter_high, x2 = 0, x3 = 0;
    for (int round = 0; round < 10; round++) {
        uint a_high = MUL_HIGH(x0, 0xD2511F53u), a_low = x0 * 0xD2511F53u;
        uint b_high = MUL_HIGH(x2, 0xCD9E8D57u), b_low = x2 * 0xCD9E8D57u;
        x0 = b_high ^ x1 ^ key_low;
        x1 = b_low;
        x2 = a_high ^ x3 ^ key_high;
        x3 = a_low;
        key_low += 0x9E3779B9u;
        key_high += 0xBB67AE85u;
    }
    words4 out;
    out.x[0] = x0; out.x[1] = x1; out.x[2] = x2; out.x[3] = x3;
    return out;
}

// Little-endian numbers among bytes, at addresses that are multiples of 2 and of 4.
FUNCTION float f16_at(GLOBAL const uchar* p) { return f16_to_f32(((GLOBAL const ushort*)p)[0]); }
FUNCTION uint word_at_4(GLOBAL const uchar* p) { return ((GLOBAL const uint*)p)[0]; }

// The lowest four bits, each the lowest of a byte.
FUNCTION uint spread_bits(uint bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }

// Adds to `offset` where element `index` of an array of `rank` dimensions of `shape` lies in one
// of `strides`.
#define ADD_OFFSET(offset, index, rank, shape, strides) \
    { \
        uint rest_ = (index); \
        for (uint d_ = (rank); d_ > 1; d_--) { \
            (offset) += rest_ % (shape)[d_ - 1] * (strides)[d_ - 1]; \
            rest_ /= (shape)[d_ - 1]; \
        } \
        (offset) += rest_ * (strides)[0]; \
    }

#define PLUS(a, b) ((a) + (b))
#define MAX_OR_NAN(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MIN_OR_NAN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
