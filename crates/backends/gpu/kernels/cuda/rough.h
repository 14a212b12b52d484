// Functions of numbers that were halves and become halves again: less precise than single precision, and more than these.

FUNCTION float rough_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

FUNCTION float rough_tanh(float x) {
    // e²ˣ; where that is infinite, its inverse is 0.
    const float power = rough_exp2(x * 2.88539008f);
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(power + 1));
    const float far = fma(-2.0f, inverse, 1.0f), near = x * fma(x * x, -1 / 3.0f, 1.0f);
    return fabs(x) < 0.03125f ? near : far;
}

#define tanh_f32(x) rough_tanh(x)
#define exp(x) rough_exp2((x) * 1.44269504f)
#define QUOTIENT(a, b) __fdividef(a, b)
