// The portable dialect in OpenCL C 1.2. What differs between the drivers' languages is here
// and nowhere else.

#if HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

// Results that are defined to the bit need each operation rounded; MULTIPLY_ADD, a * b + c, may
// be rounded once.
#pragma OPENCL FP_CONTRACT OFF
#define MULTIPLY_ADD(a, b, c) mad(a, b, c)

#define GLOBAL __global
#define LOCAL __local
#define GROUP_ID(d) ((uint)get_group_id(d))
#define LANE ((uint)get_local_id(0))
// A group of one has nobody to wait for.
#define BARRIER do { if (GROUP > 1) barrier(CLK_LOCAL_MEM_FENCE); } while (0)
// Inside a kernel's outermost braces.
#define LOCAL_ARRAY(type, name, length) __local type name[length]
#define FUNCTION inline
// From here on a product and a sum are not made one operation with one rounding.
#define SEPARATE_ROUNDING _Pragma("OPENCL FP_CONTRACT OFF")
// Before a loop whose arrays are to be registers.
#define UNROLL _Pragma("unroll")
// Launches do not overlap.
#define LAUNCH_NEXT

#define BITS_OF_F32(x) as_uint(x)
#define F32_OF_BITS(x) as_float(x)
#define BITS_OF_F64(x) as_ulong(x)
#define F64_OF_BITS(x) as_double(x)
#define LEADING_ZEROS_64(x) ((uint)clz(x))
#define MUL_HIGH(a, b) mul_hi((uint)(a), (uint)(b))

typedef ushort storage_f16;

FUNCTION float f16_to_f32(ushort x) {
    ushort bits = x;
    return vload_half(0, (const __private half*)&bits);
}

FUNCTION ushort f32_to_f16(float x) {
    ushort bits;
    vstore_half_rte(x, 0, (__private half*)&bits);
    return bits;
}

#define load_f16(p, i) vload_half(i, (const __global half*)(p))
#define store_f16(p, i, v) vstore_half_rte(v, i, (__global half*)(p))

// The dot product of four signed bytes each, added to `sum`.
FUNCTION int dot4(int a, int b, int sum) {
#if defined(__NV_CL_C_VERSION)
    // An instruction since compute capability 6.1; NVIDIA's OpenCL has no other name for it.
    int result;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#elif defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
    return sum + dot_4x8packed_ss_int((uint)a, (uint)b);
#else
    // In words, of which compilers for processors make vectors.
    return sum + (a << 24 >> 24) * (b << 24 >> 24) + (a << 16 >> 24) * (b << 16 >> 24)
        + (a << 8 >> 24) * (b << 8 >> 24) + (a >> 24) * (b >> 24);
#endif
}

// A little-endian word at an address that is a multiple of 2.
typedef struct __attribute__((packed, aligned(2))) { uint word; } half_aligned;
FUNCTION uint word_at_2(GLOBAL const uchar* p) { return ((GLOBAL const half_aligned*)p)->word; }
