// Attention for few rows of queries, see attention.h: a SIMD-group goes through its keys, KEYS at
// a time, one for each lane. Eight lanes share a key to make its products with the queries; for
// the values, each lane has every 32nd of them, LANE_VALUES in all.

KERNEL_BEGIN
    LOCAL_ARRAY(float, q_tile, ROWS * WIDTH);
    ATTENTION_START;
    for (uint i = LANE; i < ROWS * WIDTH; i += GROUP) {
        q_tile[i] = LOAD_Q(first_row + i / WIDTH, i % WIDTH);
    }
    BARRIER;

    float sum[ROWS * LANE_VALUES], total[ROWS], peak[ROWS];
    UNROLL for (uint i = 0; i < ROWS * LANE_VALUES; i++) sum[i] = 0;
    UNROLL for (uint i = 0; i < ROWS; i++) {
        total[i] = 0;
        peak[i] = -INFINITY;
    }

    for (uint first = from; first < to; first += KEYS) {
        const uint count = min(to - first, (uint)KEYS);
        float weights[ROWS];
        UNROLL for (uint i = 0; i < ROWS; i++) weights[i] = 0;
        for (uint step = 0; step < KEYS / 4; step++) {
            const uint key = first + min(step * 4 + SIMD_LANE / 8, count - 1);
            float part[ROWS];
            UNROLL for (uint i = 0; i < ROWS; i++) part[i] = 0;
            for (uint start = SIMD_LANE % 8 * 4; start < p.d; start += 32) {
                UNROLL for (uint d = start; d < start + 4; d++) {
                    // Queries are 0 beyond their width.
                    const float x = LOAD_K(key, min(d, p.d - 1));
                    UNROLL for (uint i = 0; i < ROWS; i++) {
                        part[i] = fma(q_tile[i * WIDTH + d], x, part[i]);
                    }
                }
            }
            UNROLL for (uint i = 0; i < ROWS; i++) {
                part[i] += simd_xor(part[i], 1);
                part[i] += simd_xor(part[i], 2);
                part[i] += simd_xor(part[i], 4);
                // From the lanes of a key to the one whose own it is.
                const float own = simd_shuffle(part[i], (ushort)(SIMD_LANE % 4 * 8));
                if (SIMD_LANE / 4 == step) weights[i] = own;
            }
        }
        UNROLL for (uint i = 0; i < ROWS; i++) {
            const uint row = first_row + i;
            const float score = SCORE(weights[i], row, first + SIMD_LANE, END_OF(row));
            const float largest = max(peak[i], simd_max(score));
            const float factor = exp(peak[i] - BASE_OF(largest));
            weights[i] = exp(score - BASE_OF(largest));
            peak[i] = largest;
            total[i] = fma(total[i], factor, simd_sum(weights[i]));
            UNROLL for (uint j = 0; j < LANE_VALUES; j++) sum[i * LANE_VALUES + j] *= factor;
        }
        // Sums of their own, lest a long chain of roundings lose digits.
        float part[ROWS * LANE_VALUES];
        UNROLL for (uint i = 0; i < ROWS * LANE_VALUES; i++) part[i] = 0;
        for (uint key = 0; key < count; key++) {
            float values[LANE_VALUES];
            UNROLL for (uint j = 0; j < LANE_VALUES; j++) {
                values[j] = LOAD_V(first + key, min(SIMD_LANE + j * SIMD_WIDTH, p.dv - 1));
            }
            UNROLL for (uint i = 0; i < ROWS; i++) {
                const float weight = simd_shuffle(weights[i], (ushort)key);
                UNROLL for (uint j = 0; j < LANE_VALUES; j++) {
                    const uint at = i * LANE_VALUES + j;
                    part[at] = fma(weight, values[j], part[at]);
                }
            }
        }
        UNROLL for (uint i = 0; i < ROWS * LANE_VALUES; i++) sum[i] += part[i];
    }

    UNROLL for (uint i = 0; i < ROWS; i++) {
        const uint row = first_row + i, at = head * rows + row;
        if (row < rows) {
#if IS_SPLIT
            if (SIMD_LANE == 0) {
                partial_peaks[at * p.splits + split] = peak[i];
                partial_totals[at * p.splits + split] = total[i];
            }
#elif HAS_TOTALS
            if (SIMD_LANE == 0) totals[at] = LOG_OF_TOTAL(peak[i], total[i]);
#endif
            UNROLL for (uint j = 0; j < LANE_VALUES; j++) {
                const uint d = SIMD_LANE + j * SIMD_WIDTH;
                if (d < p.dv) {
#if IS_SPLIT
                    partial_sums[(at * p.splits + split) * p.dv + d] = sum[i * LANE_VALUES + j];
#else
                    STORE(X, y, at * p.dv + d, sum[i * LANE_VALUES + j] / total[i]);
#endif
                }
            }
        }
    }
KERNEL_END
