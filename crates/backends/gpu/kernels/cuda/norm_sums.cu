// The sums of columns of `of_weight`, and of those of `of_bias` if HAS_BIAS, both of p.rows rows of p.len: a warp for each
// of several rows of 32 columns.

#define WARPS (GROUP / 32)
// Rows of a warp that are on their way together.
#define EACH 8

KERNEL_BEGIN
    LOCAL_ARRAY(float, shared, GROUP);
    const uint column = GROUP_ID(0) * 32 + SIMD_LANE;
    const uint own = min(column, p.len - 1);
#if HAS_BIAS
    const float* from = (GROUP_ID(1) == 0 ? of_weight : of_bias) + own;
    STORAGE(X)* to = GROUP_ID(1) == 0 ? weight : bias;
#else
    const float* from = of_weight + own;
    STORAGE(X)* to = weight;
#endif
    float sum = 0;
    for (uint row = SIMD_GROUP; row < p.rows; row += WARPS * EACH) {
        float values[EACH];
        UNROLL for (uint k = 0; k < EACH; k++) {
            values[k] = from[min(row + k * WARPS, p.rows - 1) * p.len];
        }
        UNROLL for (uint k = 0; k < EACH; k++) sum += row + k * WARPS < p.rows ? values[k] : 0;
    }
    shared[LANE] = sum;
    BARRIER;
    if (LANE < 32 && column < p.len) {
        UNROLL for (uint k = 1; k < WARPS; k++) sum += shared[LANE + k * 32];
        STORE(X, to, column, sum);
    }
KERNEL_END
