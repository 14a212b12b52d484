// Attention for many rows of queries, see attention.h: four SIMD-groups go with ROWS of them
// through the keys, KEYS at a time. Products are made of matrices of 8 x 8. Those of weights and
// values go through local memory to the lanes, each of which rescales and adds its part of a row:
// eight lanes have a row.

// Rows in local memory are longer by what puts their beginnings into different banks.
#define Q_STEP (WIDTH + 4)
#define OUT_STEP (VALUES + 4)
#define SCORE_STEP (KEYS + 4)

KERNEL_BEGIN
    LOCAL_ARRAY(float, q_tile, ROWS * Q_STEP);
    // Keys, then values.
    LOCAL_ARRAY(float, kv_tile, KV_TILE);
    LOCAL_ARRAY(float, scores, ROWS * SCORE_STEP);
    LOCAL_ARRAY(float, out, ROWS * OUT_STEP);
    ATTENTION_START;
    for (uint i = LANE; i < ROWS * WIDTH; i += GROUP) {
        q_tile[i / WIDTH * Q_STEP + i % WIDTH] = LOAD_Q(first_row + i / WIDTH, i % WIDTH);
    }

    const uint line = LANE / 8, member = LANE % 8;
    const uint row = first_row + line, end = END_OF(row);
    float peak = -INFINITY, total = 0, sums[VALUES / 8];
    UNROLL for (uint i = 0; i < VALUES / 8; i++) sums[i] = 0;

    for (uint first = from; first < to; first += KEYS) {
        const uint count = min(to - first, (uint)KEYS);
        for (uint i = LANE; i < KEYS * WIDTH; i += GROUP) {
            const uint key = i / WIDTH, d = i % WIDTH;
            kv_tile[key * Q_STEP + d] = d < p.d && key < count ? LOAD_K(first + key, d) : 0;
        }
        BARRIER;

        for (uint i = SIMD_GROUP; i < ROWS / 8 * (KEYS / 8); i += GROUP / SIMD_WIDTH) {
            const uint at_row = i / (KEYS / 8) * 8, at_key = i % (KEYS / 8) * 8;
            simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            for (uint d = 0; d < WIDTH; d += 8) {
                simdgroup_float8x8 q_part, k_part;
                simdgroup_load(q_part, &q_tile[at_row * Q_STEP + d], Q_STEP);
                simdgroup_load(k_part, &kv_tile[at_key * Q_STEP + d], Q_STEP, 0, true);
                simdgroup_multiply_accumulate(sum, q_part, k_part, sum);
            }
            simdgroup_store(sum, &scores[at_row * SCORE_STEP + at_key], SCORE_STEP);
        }
        BARRIER;

        // The keys are done with.
        for (uint i = LANE; i < KEYS * VALUES; i += GROUP) {
            const uint key = i / VALUES, d = i % VALUES;
            kv_tile[key * OUT_STEP + d] = d < p.dv && key < count ? LOAD_V(first + key, d) : 0;
        }
        float own[KEYS / 8], largest = peak;
        UNROLL for (uint i = 0; i < KEYS / 8; i++) {
            const uint key = member + i * 8;
            own[i] = SCORE(scores[line * SCORE_STEP + key], row, first + key, end);
            largest = LARGER(largest, own[i]);
        }
        for (uint mask = 1; mask < 8; mask *= 2) largest = max(largest, simd_xor(largest, mask));
        const float base = BASE_OF(largest), factor = exp(peak - base);
        float weights = 0;
        UNROLL for (uint i = 0; i < KEYS / 8; i++) {
            own[i] = exp(own[i] - base);
            scores[line * SCORE_STEP + member + i * 8] = own[i];
            weights += own[i];
        }
        for (uint mask = 1; mask < 8; mask *= 2) weights += simd_xor(weights, mask);
        total = fma(total, factor, weights);
        peak = largest;
        BARRIER;

        for (uint i = SIMD_GROUP; i < ROWS / 8 * (VALUES / 8); i += GROUP / SIMD_WIDTH) {
            const uint at_row = i / (VALUES / 8) * 8, at_value = i % (VALUES / 8) * 8;
            simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            UNROLL for (uint key = 0; key < KEYS; key += 8) {
                simdgroup_float8x8 weight_part, v_part;
                simdgroup_load(weight_part, &scores[at_row * SCORE_STEP + key], SCORE_STEP);
                simdgroup_load(v_part, &kv_tile[key * OUT_STEP + at_value], OUT_STEP);
                simdgroup_multiply_accumulate(sum, weight_part, v_part, sum);
            }
            simdgroup_store(sum, &out[at_row * OUT_STEP + at_value], OUT_STEP);
        }
        BARRIER;
        UNROLL for (uint i = 0; i < VALUES / 8; i++) {
            sums[i] = fma(sums[i], factor, out[line * OUT_STEP + member + i * 8]);
        }
    }

    if (row < rows) {
        const uint at = head * rows + row;
#if IS_SPLIT
        if (member == 0) {
            partial_peaks[at * p.splits + split] = peak;
            partial_totals[at * p.splits + split] = total;
        }
#elif HAS_TOTALS
        if (member == 0) totals[at] = LOG_OF_TOTAL(peak, total);
#endif
        UNROLL for (uint i = 0; i < VALUES / 8; i++) {
            const uint d = member + i * 8;
            if (d < p.dv) {
#if IS_SPLIT
                partial_sums[(at * p.splits + split) * p.dv + d] = sums[i];
#else
                STORE(X, y, at * p.dv + d, sums[i] / total);
#endif
            }
        }
    }
KERNEL_END
