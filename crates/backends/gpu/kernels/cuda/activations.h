// Rows of activations of dtype X as a product reads them, normalised if HAS_NORM.

// A number as it is when it was stored as dtype `t`.
#define ROUND(t, v) PASTE(round_, t)(v)
#define round_f32(v) (v)

// Four neighbours, read at once where they are aligned.
template <class T> struct __align__(sizeof(T) * 4) Four { T each[4]; };

FUNCTION void load_four(float (&values)[4], const STORAGE(X)* from) {
    Four<STORAGE(X)> four;
    if ((ulong)from % sizeof(four) == 0) {
        four = *(const Four<STORAGE(X)>*)from;
    } else {
        UNROLL
        for (uint e = 0; e < 4; e++) four.each[e] = from[e];
    }
    UNROLL
    for (uint e = 0; e < 4; e++) values[e] = LOAD(X, four.each, e);
}

#if HAS_NORM
// The sums of squares of the parts of a row that each warp has, in `sums`.
FUNCTION void sum_squares(float* sums, const STORAGE(X)* x, uint k) {
    float sum = 0;
    for (uint e = LANE * 4; e < k; e += GROUP * 4) {
        float values[4];
        load_four(values, x + e);
        UNROLL
        for (uint i = 0; i < 4; i++) sum = fma(values[i], values[i], sum);
    }
    UNROLL
    for (uint mask = 16; mask > 0; mask /= 2) sum += simd_xor(sum, mask);
    if (SIMD_LANE == 0) sums[SIMD_GROUP] = sum;
}

// What the row is multiplied by: one over the root of its mean square.
FUNCTION float norm_scale(const float* sums, uint k, float eps) {
    float sum = 0;
    UNROLL
    for (uint i = 0; i < GROUP / 32; i++) sum += sums[i];
    return 1 / sqrt(sum / (float)k + eps);
}
#endif

// Four values of a row from `x` on, whose weights in the norm are those from `norm` on.
FUNCTION void load_activations(float (&values)[4], const STORAGE(X)* x, const STORAGE(X)* norm,
                               float scale) {
    load_four(values, x);
#if HAS_NORM
    float weights[4] = {1, 1, 1, 1};
#if HAS_NORM_WEIGHT
    load_four(weights, norm);
#endif
    UNROLL
    for (uint e = 0; e < 4; e++) values[e] = ROUND(X, values[e] * scale * weights[e]);
#endif
}
