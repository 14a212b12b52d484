// Attention without scores in memory (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al.
// 2022, arXiv 2205.14135): a group goes with ROWS rows of queries through the keys, KEYS at a
// time, and keeps their sums of values, rescaled where a larger score comes up. See attention.h.
// Scores and sums are tiles, see tile.h, with LANE_KEYS and LANE_VALUES columns of a block.

#define Q_AT(d, row) q_tile[(d) * (ROWS + PAD) + (row)]
#define K_AT(d, key) kv_tile[(d) * (KEYS + PAD) + (key)]
#define V_AT(key, d) kv_tile[(key) * VALUES + (d)]
#define WEIGHT_AT(key, row) weights[(key) * (ROWS + PAD) + (row)]

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, q_tile, WIDTH * (ROWS + PAD));
    // Keys, then values.
    LOCAL_ARRAY(ACCUMULATOR, kv_tile, KV_TILE);
    LOCAL_ARRAY(ACCUMULATOR, weights, KEYS * (ROWS + PAD));
    LOCAL_ARRAY(ACCUMULATOR, peaks, ROWS * LANES_COLUMN);
    ATTENTION_START;

    EACH_OF(line, ROWS, d, WIDTH) Q_AT(d, line) = LOAD_Q(first_row + line, d);

    ACCUMULATOR score[BLOCKS * LANE_ROWS * LANE_KEYS], sum[BLOCKS * LANE_ROWS * LANE_VALUES];
    ACCUMULATOR total[BLOCKS * LANE_ROWS], peak[BLOCKS * LANE_ROWS];
    for (uint i = 0; i < BLOCKS * LANE_ROWS * LANE_VALUES; i++) sum[i] = 0;
    for (uint i = 0; i < BLOCKS * LANE_ROWS; i++) {
        total[i] = 0;
        peak[i] = -INFINITY;
    }

    for (uint first = from; first < to; first += KEYS) {
        const uint count = min(to - first, (uint)KEYS);
        EACH_OF(key, KEYS, d, WIDTH) {
            K_AT(d, key) = d < p.d && key < count ? LOAD_K(first + key, d) : 0;
        }
        BARRIER;

        for (uint block = 0; block < BLOCKS; block++) {
            const uint lane = block * GROUP + LANE, line = ROW_OF(lane), column = COLUMN_OF(lane);
            ACCUMULATOR part[LANE_ROWS * LANE_KEYS];
            UNROLL for (uint i = 0; i < LANE_ROWS * LANE_KEYS; i++) part[i] = 0;
            for (uint d = 0; d < p.d; d++) {
                ACCUMULATOR keys[LANE_KEYS];
                UNROLL for (uint j = 0; j < LANE_KEYS; j++) {
                    keys[j] = K_AT(d, column + j * COLUMN_STEP);
                }
                UNROLL for (uint i = 0; i < LANE_ROWS; i++) {
                    const ACCUMULATOR x = Q_AT(d, line + i * ROW_STEP);
                    UNROLL for (uint j = 0; j < LANE_KEYS; j++) {
                        const uint at = i * LANE_KEYS + j;
                        part[at] = MULTIPLY_ADD(x, keys[j], part[at]);
                    }
                }
            }
            UNROLL_SMALL for (uint i = 0; i < LANE_ROWS; i++) {
                const uint row = first_row + line + i * ROW_STEP;
                const uint end = END_OF(row);
                ACCUMULATOR largest = -INFINITY;
                UNROLL_SMALL for (uint j = 0; j < LANE_KEYS; j++) {
                    const uint key = first + column + j * COLUMN_STEP;
                    const ACCUMULATOR x = SCORE(part[i * LANE_KEYS + j], row, key, end);
                    largest = LARGER(largest, x);
                    score[(block * LANE_ROWS + i) * LANE_KEYS + j] = x;
                }
                peaks[(line + i * ROW_STEP) * LANES_COLUMN + lane % LANES_COLUMN] = largest;
            }
        }
        BARRIER;

        // The keys are done with.
        EACH_OF(key, KEYS, d, VALUES) {
            V_AT(key, d) = d < p.dv && key < count ? LOAD_V(first + key, d) : 0;
        }
        for (uint block = 0; block < BLOCKS; block++) {
            const uint lane = block * GROUP + LANE, column = COLUMN_OF(lane);
            UNROLL_SMALL for (uint i = 0; i < LANE_ROWS; i++) {
                const uint line = ROW_OF(lane) + i * ROW_STEP, at = block * LANE_ROWS + i;
                ACCUMULATOR largest = peak[at];
                for (uint c = 0; c < LANES_COLUMN; c++) {
                    largest = max(largest, peaks[line * LANES_COLUMN + c]);
                }
                const ACCUMULATOR base = BASE_OF(largest);
                const ACCUMULATOR factor = exp(peak[at] - base);
                peak[at] = largest;
                total[at] *= factor;
                UNROLL_SMALL for (uint j = 0; j < LANE_VALUES; j++) {
                    sum[at * LANE_VALUES + j] *= factor;
                }
                UNROLL_SMALL for (uint j = 0; j < LANE_KEYS; j++) {
                    const ACCUMULATOR x = exp(score[at * LANE_KEYS + j] - base);
                    WEIGHT_AT(column + j * COLUMN_STEP, line) = x;
                }
            }
        }
        BARRIER;

        for (uint block = 0; block < BLOCKS; block++) {
            const uint lane = block * GROUP + LANE, line = ROW_OF(lane), column = COLUMN_OF(lane);
            const uint start = block * LANE_ROWS * LANE_VALUES;
            ACCUMULATOR part[LANE_ROWS * LANE_VALUES];
            UNROLL for (uint i = 0; i < LANE_ROWS * LANE_VALUES; i++) part[i] = 0;
            ACCUMULATOR weight[LANE_ROWS];
            UNROLL for (uint i = 0; i < LANE_ROWS; i++) weight[i] = 0;
            // Sums of their own, lest a long chain of roundings lose digits.
            for (uint key = 0; key < count; key++) {
                ACCUMULATOR values[LANE_VALUES];
                UNROLL for (uint j = 0; j < LANE_VALUES; j++) {
                    values[j] = V_AT(key, column + j * COLUMN_STEP);
                }
                UNROLL for (uint i = 0; i < LANE_ROWS; i++) {
                    const ACCUMULATOR x = WEIGHT_AT(key, line + i * ROW_STEP);
                    weight[i] += x;
                    UNROLL for (uint j = 0; j < LANE_VALUES; j++) {
                        const uint at = i * LANE_VALUES + j;
                        part[at] = MULTIPLY_ADD(x, values[j], part[at]);
                    }
                }
            }
            UNROLL for (uint i = 0; i < LANE_ROWS; i++) total[block * LANE_ROWS + i] += weight[i];
            UNROLL for (uint i = 0; i < LANE_ROWS * LANE_VALUES; i++) sum[start + i] += part[i];
        }
        BARRIER;
    }

    for (uint i = 0; i < BLOCKS * LANE_ROWS; i++) {
        const uint lane = i / LANE_ROWS * GROUP + LANE;
        const uint row = first_row + ROW_OF(lane) + i % LANE_ROWS * ROW_STEP;
        if (row < rows) {
            const uint at = head * rows + row;
#if IS_SPLIT
            if (COLUMN_OF(lane) == 0) {
                partial_peaks[at * p.splits + split] = peak[i];
                partial_totals[at * p.splits + split] = total[i];
            }
#elif HAS_TOTALS
            if (COLUMN_OF(lane) == 0) totals[at] = LOG_OF_TOTAL(peak[i], total[i]);
#endif
            for (uint j = 0; j < LANE_VALUES; j++) {
                const uint d = COLUMN_OF(lane) + j * COLUMN_STEP;
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
