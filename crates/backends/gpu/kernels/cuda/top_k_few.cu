// The p.kept largest elements of lines of p.len, at most EACH for each lane of the warp that has a line. They are in
// order, the earlier first of those that are equal; NaN counts as the largest.
//
// X: dtype. IS_SOFTMAX: are the elements replaced by their softmax?

// Unsigned numbers in the order of floats, above 0: both zeros are equal.
FUNCTION uint order_of(float v) {
    if (v != v) return ~0u;
    const uint bits = v == 0 ? 0 : BITS_OF_F32(v);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint line = GROUP_ID(0), lane = SIMD_LANE;
    const STORAGE(X)* const from = x + (ulong)line * p.len;
    // Of elements 32 apart. 0 stands for none.
    uint orders[EACH];
    UNROLL
    for (uint i = 0; i < EACH; i++) {
        const uint index = i * 32 + lane;
        orders[i] = index < p.len ? order_of(LOAD(X, from, index)) : 0;
    }
    // The lane `j` has the best but `j`.
    uint own = 0;
    for (uint j = 0; j < p.kept; j++) {
        uint best = 0;
        UNROLL
        for (uint i = 0; i < EACH; i++) best = max(best, orders[i]);
        const uint all = __reduce_max_sync(~0u, best);
        uint index = ~0u;
        UNROLL
        for (uint i = EACH; i-- > 0;) {
            if (orders[i] == all) index = i * 32 + lane;
        }
        index = __reduce_min_sync(~0u, index);
        UNROLL
        for (uint i = 0; i < EACH; i++) {
            if (i * 32 + lane == index) orders[i] = 0;
        }
        if (lane == j) own = index;
    }
    const bool is_kept = lane < p.kept;
    float value = is_kept ? LOAD(X, from, own) : -INFINITY;
#if IS_SOFTMAX
    // Of numbers in order the first is the largest.
    const float most = __shfl_sync(~0u, value, 0);
    const float part = is_kept ? exp(value - most) : 0;
    float sum = part;
    UNROLL
    for (uint mask = 16; mask > 0; mask /= 2) sum += simd_xor(sum, mask);
    value = part / sum;
#endif
    if (is_kept) {
        STORE(X, values, line * p.kept + lane, value);
        STORE(i64, y, line * p.kept + lane, own);
    }
KERNEL_END
