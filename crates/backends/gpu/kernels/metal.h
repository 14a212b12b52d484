// The portable dialect in the Metal Shading Language 3.0. What differs between the drivers'
// languages is here and nowhere else.

#include <metal_stdlib>
using namespace metal;

// Results that are defined to the bit need each operation rounded; MULTIPLY_ADD, a * b + c, may
// be rounded once. Older compilers keep operations apart when fast math is off.
#if __METAL_VERSION__ >= 320
#pragma METAL fp contract(off)
#endif
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)

#define GLOBAL device
#define LOCAL threadgroup
#define GROUP_ID(d) (group_id_[d])
#define LANE lane_
// A group of one has nobody to wait for.
#define BARRIER do { if (GROUP > 1) threadgroup_barrier(mem_flags::mem_threadgroup); } while (0)
// Inside a kernel's outermost braces.
#define LOCAL_ARRAY(type, name, length) threadgroup type name[length]
#define FUNCTION inline
// As everywhere here, products and sums are not made one operation with one rounding.
#define SEPARATE_ROUNDING
// Before a loop whose arrays are to be registers.
#define UNROLL _Pragma("clang loop unroll(full)")
// Launches do not overlap.
#define LAUNCH_NEXT

#define BITS_OF_F32(x) as_type<uint>((float)(x))
#define F32_OF_BITS(x) as_type<float>((uint)(x))
#define MUL_HIGH(a, b) mulhi((uint)(a), (uint)(b))

FUNCTION uint leading_zeros_64(ulong x) {
    const uint high = (uint)(x >> 32);
    return high != 0 ? clz(high) : 32 + clz((uint)x);
}
#define LEADING_ZEROS_64(x) leading_zeros_64(x)

// SIMD-groups, whose lanes all have to get to each of these: the number of lanes, a lane's own
// number, its group's number in the group, and the value of the lane whose number differs by
// `mask`.
#define SIMD_WIDTH 32
#define SIMD_LANE simd_lane_
#define SIMD_GROUP simd_group_
#define SIMD_XOR(T) \
    FUNCTION T simd_xor(T x, uint mask) { return simd_shuffle_xor(x, (ushort)mask); }
SIMD_XOR(float)
SIMD_XOR(float2)
SIMD_XOR(int)
SIMD_XOR(uint)
SIMD_XOR(short)
SIMD_XOR(char)
SIMD_XOR(uchar)
// Numbers of 64 bits go in halves.
FUNCTION long simd_xor(long x, uint mask) {
    return as_type<long>(simd_shuffle_xor(as_type<uint2>(x), (ushort)mask));
}
FUNCTION ulong simd_xor(ulong x, uint mask) {
    return as_type<ulong>(simd_shuffle_xor(as_type<uint2>(x), (ushort)mask));
}

// From half precision, and to it, rounded to the nearest, ties to even.
typedef half storage_f16;
FUNCTION float f16_to_f32(ushort x) { return (float)as_type<half>(x); }
FUNCTION ushort f32_to_f16(float x) { return as_type<ushort>((half)x); }
#define load_f16(p, i) (float)(p)[i]
#define store_f16(p, i, v) (p)[i] = (half)(v)

// The dot product of four signed bytes each, added to `sum`.
FUNCTION int dot4(int a, int b, int sum) {
    const char4 x = as_type<char4>(a), y = as_type<char4>(b);
    return sum + x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}

// A little-endian word at an address that is a multiple of 2.
FUNCTION uint word_at_2(GLOBAL const uchar* p) {
    GLOBAL const ushort* halves = (GLOBAL const ushort*)p;
    return (uint)halves[0] | (uint)halves[1] << 16;
}

// The length of (x, y), also where its square is out of range.
FUNCTION float hypot(float x, float y) {
    const float a = max(fabs(x), fabs(y)), b = min(fabs(x), fabs(y));
    if (isinf(a)) return a;
    // The language's max and min leave NaN out.
    if (isnan(x) || isnan(y)) return x + y;
    if (a == 0) return a;
    const float ratio = b / a;
    return a * sqrt(1 + ratio * ratio);
}

// The language has no error function. Within 2 ulp: x + x P(x²) near 0, elsewhere
// 1 - exp(-Q(|x|)). The coefficients are least-squares fits with Lawson's weights, which make
// the largest relative error small, to erf(√z) / √z - 1 for z up to 0.81 and to -ln erfc(t)
// for t from 0.9 to 4.
FUNCTION float erf(float x) {
    const float z = x * x;
    float near = fma(z, -0.00061112916f, 0.005016228f);
    near = fma(z, near, -0.026781958f);
    near = fma(z, near, 0.1128223f);
    near = fma(z, near, -0.37612534f);
    near = fma(z, near, 0.12837915f);
    near = fma(x, near, x);
    // From 4 on the result rounds to 1; NaN passes.
    const float t = fabs(x) > 4 ? 4.0f : fabs(x);
    float far = fma(t, -0.0001982207f, 0.0030654997f);
    far = fma(t, far, -0.022315249f);
    far = fma(t, far, 0.10411374f);
    far = fma(t, far, 0.636976f);
    far = fma(t, far, 1.1277972f);
    far = fma(t, far, 0.00016643909f);
    return t < 0.9f ? near : copysign(1 - exp(-far), x);
}
