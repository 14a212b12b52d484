// The portable dialect in CUDA C++, as NVRTC compiles it. What differs between the drivers'
// languages is here and nowhere else. Products and sums are made one operation only where
// MULTIPLY_ADD says so: the compiler is told not to by itself.

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;
// 64 bits on every system.
#define long long long

#define MULTIPLY_ADD(a, b, c) fma(a, b, c)

#define GLOBAL
#define LOCAL
#define GROUP_ID(d) ((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z)
#define LANE threadIdx.x
// A group of one has nobody to wait for.
#define BARRIER do { if (GROUP > 1) __syncthreads(); } while (0)
// Inside a kernel's outermost braces.
#define LOCAL_ARRAY(type, name, length) __shared__ type name[length]
#define FUNCTION __device__ __forceinline__
// As everywhere here, products and sums are not made one operation with one rounding.
#define SEPARATE_ROUNDING
// Before a loop whose arrays are to be registers.
#define UNROLL _Pragma("unroll")

// Local memory of as many bytes as the launch says.
extern __shared__ __align__(128) uchar dynamic_local_[];
#define DYNAMIC_LOCAL dynamic_local_

// A launch may begin before the one ahead of it has ended: all of it waits first, but for
// kernels that say STARTS_EARLY, which read nothing that another launch writes until they do.
// LAUNCH_NEXT lets the next launch begin.
#if __CUDA_ARCH__ >= 900
#define WAIT_FOR_INPUTS asm volatile("griddepcontrol.wait;" ::: "memory")
#define LAUNCH_NEXT asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#else
#define WAIT_FOR_INPUTS
#define LAUNCH_NEXT
#endif

#define INFINITY __int_as_float(0x7f800000)
#define BITS_OF_F32(x) __float_as_uint(x)
#define F32_OF_BITS(x) __uint_as_float(x)
#define BITS_OF_F64(x) ((ulong)__double_as_longlong(x))
#define F64_OF_BITS(x) __longlong_as_double((long)(x))
#define LEADING_ZEROS_64(x) ((uint)__clzll((long)(x)))
#define MUL_HIGH(a, b) __umulhi((uint)(a), (uint)(b))

// Warps, whose lanes all have to get to each of these: the number of lanes, a lane's own
// number, its warp's number in the group, and the value of the lane whose number differs by
// `mask`.
#define SIMD_WIDTH 32
#define SIMD_LANE (threadIdx.x % 32)
#define SIMD_GROUP (threadIdx.x / 32)
#define SIMD_XOR(T, via) \
    FUNCTION T simd_xor(T x, uint mask) { return (T)__shfl_xor_sync(~0u, (via)x, mask); }
SIMD_XOR(float, float)
SIMD_XOR(double, double)
SIMD_XOR(long, long)
SIMD_XOR(ulong, ulong)
SIMD_XOR(int, int)
SIMD_XOR(uint, uint)
SIMD_XOR(short, int)
SIMD_XOR(char, int)
SIMD_XOR(uchar, uint)
#define SIMD_XOR_PAIR(T) \
    FUNCTION T simd_xor(T x, uint mask) { \
        T y; \
        y.x = simd_xor(x.x, mask); \
        y.y = simd_xor(x.y, mask); \
        return y; \
    }
SIMD_XOR_PAIR(float2)
SIMD_XOR_PAIR(double2)

// From half precision, and to it, rounded to the nearest, ties to even.
typedef ushort storage_f16;
FUNCTION float f16_to_f32(ushort x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
FUNCTION ushort f32_to_f16(float x) {
    ushort y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
#define load_f16(p, i) f16_to_f32((p)[i])
#define store_f16(p, i, v) (p)[i] = f32_to_f16(v)

// The dot product of four signed bytes each, added to `sum`.
FUNCTION int dot4(int a, int b, int sum) { return __dp4a(a, b, sum); }

// A little-endian word at an address that is a multiple of 2.
FUNCTION uint word_at_2(GLOBAL const uchar* p) {
    const ushort* halves = (const ushort*)p;
    return (uint)halves[0] | (uint)halves[1] << 16;
}
