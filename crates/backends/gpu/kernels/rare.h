// What kernels of u16, u64, 8-bit floats and complex numbers can use beside prelude.h, which others do
// without: so their sources, by which compiled kernels are kept, do not depend on it.

typedef ushort storage_u16;
typedef ulong storage_u64;
typedef uchar storage_f8e4m3;
typedef uchar storage_f8e5m2;

typedef ushort compute_u16;
typedef ulong compute_u64;
// Not computed with: their bits.
typedef uchar compute_f8e4m3;
typedef uchar compute_f8e5m2;

#define load_u16(p, i) (p)[i]
#define load_u64(p, i) (p)[i]
#define load_f8e4m3(p, i) (p)[i]
#define load_f8e5m2(p, i) (p)[i]

#define store_u16(p, i, v) (p)[i] = (v)
#define store_u64(p, i, v) (p)[i] = (v)
#define store_f8e4m3(p, i, v) (p)[i] = (v)
#define store_f8e5m2(p, i, v) (p)[i] = (v)

#ifdef SIMD_WIDTH
FUNCTION ushort simd_xor(ushort x, uint mask) { return (ushort)simd_xor((short)x, mask); }
#endif

// 8-bit floats with MANTISSA bits of fraction, whose exponents have BIAS added to them. A sum
// with a number whose last bit is the unit of subnormal numbers is rounded to that unit.
#define FLOAT8_FUNCTION(name, MANTISSA, BIAS, LARGEST, OVERFLOW) \
    FUNCTION uchar f32_to_##name(float x) { \
        const uint bits = BITS_OF_F32(x); \
        const uint sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu; \
        if (magnitude > 0x7f800000u) return (uchar)(sign | 0x7fu); \
        if (magnitude < (uint)(128 - BIAS) << 23) { \
            const uint large = (uint)(151 - BIAS - MANTISSA) << 23; \
            const float sum = F32_OF_BITS(magnitude) + F32_OF_BITS(large); \
            return (uchar)(sign | (BITS_OF_F32(sum) - large)); \
        } \
        const uint even = magnitude >> (23 - MANTISSA) & 1u; \
        const uint half_ = (1u << (22 - MANTISSA)) - 1u + even; \
        const uint nearest = ((magnitude + half_) >> (23 - MANTISSA)) \
            - ((uint)(127 - BIAS) << MANTISSA); \
        return (uchar)(sign | (nearest > LARGEST ? OVERFLOW : nearest)); \
    }
FLOAT8_FUNCTION(f8e4m3, 3, 7, 0x7eu, 0x7eu)
FLOAT8_FUNCTION(f8e5m2, 2, 15, 0x7bu, 0x7cu)

// The bits of a half are those of a number of the one type, but for 8 more bits of fraction, and of
// a number 256 times smaller of the other.
FUNCTION float f8e5m2_to_f32(uchar x) { return f16_to_f32((ushort)((uint)x << 8)); }
FUNCTION float f8e4m3_to_f32(uchar x) {
    const uint sign = (uint)x & 0x80u, magnitude = (uint)x & 0x7fu;
    if (magnitude == 0x7fu) return F32_OF_BITS(sign << 24 | 0x7ff00000u);
    return f16_to_f32((ushort)(sign << 8 | magnitude << 7)) * 256.0f;
}

// As odd_of_i64; of what has no room there the lowest bit is lost, and leaves an odd one.
FUNCTION float odd_of_u64(ulong v) {
    const bool fits = v >> 63 == 0;
    const float f = odd_of_i64((long)(fits ? v : v >> 1 | (v & 1)));
    return fits ? f : 2 * f;
}

UNSIGNED_FUNCTIONS(ushort, u16)
FUNCTION ulong remainder_u64(ulong a, ulong b) { return a % b; }
FUNCTION ulong floor_divide_u64(ulong a, ulong b) { return a / b; }
FUNCTION ulong pow_u64(ulong base, ulong exponent) {
    ulong result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result;
}

#define cut_u16(x) ((ushort)CUT_UNSIGNED(uint, x, 65536.0f, 65535))
#define cut_u64(x) CUT_UNSIGNED(ulong, x, 18446744073709551616.0f, 18446744073709551615UL)

// Divisions by the larger part of the divisor on its own, so that neither squares overflow nor a division
// by 0 loses the infinities (R. L. Smith 1962, Algorithm 116: Complex division).
#define COMPLEX_DIVISIONS(C, R) \
    FUNCTION C divided_##C(C z, R x) { return make_##C(z.x / x, z.y / x); } \
    FUNCTION R larger_##C(C z) { return fabs(z.x) >= fabs(z.y) ? z.x : z.y; } \
    FUNCTION C scaled_##C(C z) { \
        return fabs(z.x) >= fabs(z.y) ? make_##C(1, z.y / z.x) : make_##C(z.x / z.y, 1); \
    } \
    FUNCTION C quotient_##C(C a, C b) { \
        const R larger = larger_##C(b); \
        return b.x == 0 && b.y == 0 ? divided_##C(a, fabs(larger)) \
                                    : divided_##C(div_##C(a, scaled_##C(b)), larger); \
    } \
    FUNCTION C reciprocal_##C(C z) { \
        const R larger = larger_##C(z); \
        return z.x == 0 && z.y == 0 ? divided_##C(make_##C(1, 0), fabs(larger)) \
                                    : divided_##C(inverse_##C(scaled_##C(z)), larger); \
    }
COMPLEX_DIVISIONS(complex64, float)
#if HAS_F64
COMPLEX_DIVISIONS(complex128, double)
#endif
