// Two bf16 numbers at once, where there is an instruction for it. Behind vectors.h.
#if __CUDA_ARCH__ >= 800
FUNCTION uint two_bf16(float low, float high) {
    uint pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#undef word_bf16
#define word_bf16(v, k) two_bf16((v)[(k) * 2], (v)[(k) * 2 + 1])
#endif
