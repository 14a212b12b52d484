// Rows of activations of dtype X as a product reads them, normalised if HAS_NORM.

#define WARPS (GROUP / 32)

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

// 256 values that a warp has, each lane 4 of one half and 4 of the other.
struct Slab {
    static constexpr uint LENGTH = 256;

    float values[2][4];

    // Where a lane's values of a half are in the row, whose slab begins at `first`.
    FUNCTION static uint at(uint first, uint half) {
        return first + half * 128 + SIMD_LANE * 4;
    }

    // Of a row of `k` values; what is behind them is zero.
    FUNCTION void load(const STORAGE(X)* row, uint first, uint k) {
        UNROLL
        for (uint half = 0; half < 2; half++) {
            UNROLL
            for (uint i = 0; i < 4; i++) values[half][i] = 0;
            if (at(first, half) < k) load_four(values[half], row + at(first, half));
        }
    }

    FUNCTION float add_squares(float sum) const {
        UNROLL
        for (uint i = 0; i < 8; i++) {
            sum = fma(values[i / 4][i % 4], values[i / 4][i % 4], sum);
        }
        return sum;
    }

    FUNCTION void normalize(float scale, const Slab& weights) {
        UNROLL
        for (uint i = 0; i < 8; i++) {
            float v = values[i / 4][i % 4] * scale;
#if HAS_NORM_WEIGHT
            v *= weights.values[i / 4][i % 4];
#endif
            values[i / 4][i % 4] = ROUND(X, v);
        }
    }
};

#if HAS_NORM
// The sum of squares of a warp's slabs of a row.
FUNCTION float sum_squares(const STORAGE(X)* row, uint k) {
    float sum = 0;
    for (uint first = SIMD_GROUP * Slab::LENGTH; first < k; first += WARPS * Slab::LENGTH) {
        Slab slab;
        slab.load(row, first, k);
        sum = slab.add_squares(sum);
    }
    UNROLL
    for (uint mask = 16; mask > 0; mask /= 2) sum += simd_xor(sum, mask);
    return sum;
}

// What a row is multiplied by: one over the root of the mean square, from the warps' `sums`.
FUNCTION float norm_scale(const float* sums, uint k, float eps) {
    float sum[4] = {0, 0, 0, 0};
    UNROLL
    for (uint i = 0; i < WARPS; i++) sum[i % 4] += sums[i];
    return 1 / sqrt(((sum[0] + sum[1]) + (sum[2] + sum[3])) / (float)k + eps);
}
#endif

// Adds up `COUNT` values of all lanes: lane 32 / COUNT · i gets the sum of value i.
template <uint COUNT, uint MASK = 16> FUNCTION float add_lanes(float* values) {
    if constexpr (COUNT == 1) {
        UNROLL
        for (uint mask = MASK; mask > 0; mask /= 2) values[0] += simd_xor(values[0], mask);
        return values[0];
    } else {
        const bool is_upper = (SIMD_LANE & MASK) != 0;
        UNROLL
        for (uint i = 0; i < COUNT / 2; i++) {
            const float kept = is_upper ? values[i + COUNT / 2] : values[i];
            const float sent = is_upper ? values[i] : values[i + COUNT / 2];
            values[i] = kept + simd_xor(sent, MASK);
        }
        return add_lanes<COUNT / 2, MASK / 2>(values);
    }
}
