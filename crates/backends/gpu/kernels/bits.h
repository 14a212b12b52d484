// Functions of elementwise kernels that work on bits and whole numbers.

// By Euclid's algorithm.
FUNCTION ulong gcd_u64(ulong a, ulong b) {
    while (b != 0) {
        const ulong rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// The next number from `a` towards `b`.
FUNCTION float next_after_f32(float a, float b) {
    if (isnan(a) || isnan(b)) return a + b;
    if (a == b) return b;
    if (a == 0) return copysign(F32_OF_BITS(1u), b);
    const uint bits = BITS_OF_F32(a);
    return F32_OF_BITS((a < b) == (a > 0) ? bits + 1 : bits - 1);
}

#if HAS_F64
FUNCTION double next_after_f64(double a, double b) {
    if (isnan(a) || isnan(b)) return a + b;
    if (a == b) return b;
    if (a == 0) return copysign(F64_OF_BITS((ulong)1), b);
    const ulong bits = BITS_OF_F64(a);
    return F64_OF_BITS((a < b) == (a > 0) ? bits + 1 : bits - 1);
}
#endif
