// What attention on tensor cores shares. MMA: the cache's type in PTX.

#define LOG2_E 1.44269504088896341f
#define LN_2 0.693147180559945309f

FUNCTION float exp_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two numbers of the cache's type, the first in the low half.
FUNCTION uint packed(float first, float second) {
    uint pair;
    asm("cvt.rn." MMA "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
