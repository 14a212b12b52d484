// Attention without scores in memory (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al.
// 2022, arXiv 2205.14135): a group goes with ROWS rows of queries through the keys, KEYS at a
// time, and keeps their sums of values, rescaled where a larger score comes up.
//
// The heads that share keys are one matrix: row r is query r % t of head r / t. Scores and sums
// are tiles, see tile.h, with LANE_KEYS and LANE_VALUES columns of a block.
//
// X, C: dtypes of the queries and of the cache. WIDTH, VALUES: widths of keys and values at most.
// HAS_PAST, HAS_MASK, HAS_CAP: as the operation says. IS_SPLIT: do p.splits groups
// share the keys, each with a partial result for attention_combine?

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
    const uint rows = p.each * p.t, tiles = (rows + ROWS - 1) / ROWS;
    const uint first_row = GROUP_ID(0) % tiles * ROWS;
    const uint split = GROUP_ID(0) / tiles % p.splits;
    const uint head = GROUP_ID(0) / tiles / p.splits;

    const uint batch = head / p.heads, kv_head = head % p.heads;
    uint q_start = kv_head * p.each * p.q_strides[0];
    uint k_start = kv_head * p.k_strides[0], v_start = kv_head * p.v_strides[0];
    ADD_OFFSET(q_start, batch, LEAD_RANK, p.lead, p.q_lead);
    ADD_OFFSET(k_start, batch, LEAD_RANK, p.lead, p.k_lead);
    ADD_OFFSET(v_start, batch, LEAD_RANK, p.lead, p.v_lead);
#if HAS_MASK
    uint mask_start = kv_head * p.each * p.mask_strides[0];
    ADD_OFFSET(mask_start, batch, LEAD_RANK, p.lead, p.mask_lead);
#endif

    // Keys before the first query's own; then, from which to which key this group goes.
    uint before = 0;
#if HAS_PAST
    const int given = past[0];
    if (given < 0 || p.t > p.s || (uint)given > p.s - p.t) {
        REPORT(status, p.status_code);
    } else {
        before = (uint)given;
    }
#endif
    uint from = 0, to = p.s;
    if (p.is_causal) {
        const uint last_row = min(first_row + ROWS, rows) - 1;
        const bool one_head = first_row / p.t == last_row / p.t;
        to = min(before + (one_head ? last_row % p.t : p.t - 1) + 1, p.s);
    }
    if (IS_SPLIT) {
        const uint part = ((to + p.splits - 1) / p.splits + KEYS - 1) / KEYS * KEYS;
        from = min(split * part, to);
        to = min(from + part, to);
    }

    EACH_OF(line, ROWS, d, WIDTH) {
        const uint row = first_row + line;
        ACCUMULATOR x = 0;
        if (d < p.d && row < rows) {
            const uint at = row / p.t * p.q_strides[0] + row % p.t * p.q_strides[1];
            x = LOAD(X, q, q_start + at + d * p.q_strides[2]) * SCALE;
        }
        Q_AT(d, line) = x;
    }

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
            ACCUMULATOR x = 0;
            if (d < p.d && key < count) {
                x = LOAD(C, k, k_start + (first + key) * p.k_strides[1] + d * p.k_strides[2]);
            }
            K_AT(d, key) = x;
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
                const uint end = p.is_causal ? min(before + row % p.t + 1, to) : to;
                ACCUMULATOR largest = -INFINITY;
                UNROLL_SMALL for (uint j = 0; j < LANE_KEYS; j++) {
                    const uint key = first + column + j * COLUMN_STEP;
                    ACCUMULATOR x = part[i * LANE_KEYS + j];
#if HAS_CAP
                    x = CAP * tanh(x / CAP);
#endif
#if HAS_MASK
                    if (key < end && row < rows) {
                        const uint query = row % p.t;
                        const uint at = row / p.t * p.mask_strides[0] + query * p.mask_strides[1];
                        x += LOAD(X, mask, mask_start + at + key * p.mask_strides[2]);
                    }
#endif
                    x = key < end ? x : -INFINITY;
                    largest = x > largest ? x : largest;
                    score[(block * LANE_ROWS + i) * LANE_KEYS + j] = x;
                }
                peaks[(line + i * ROW_STEP) * LANES_COLUMN + lane % LANES_COLUMN] = largest;
            }
        }
        BARRIER;

        // The keys are done with.
        EACH_OF(key, KEYS, d, VALUES) {
            ACCUMULATOR x = 0;
            if (d < p.dv && key < count) {
                x = LOAD(C, v, v_start + (first + key) * p.v_strides[1] + d * p.v_strides[2]);
            }
            V_AT(key, d) = x;
        }
        for (uint block = 0; block < BLOCKS; block++) {
            const uint lane = block * GROUP + LANE, column = COLUMN_OF(lane);
            UNROLL_SMALL for (uint i = 0; i < LANE_ROWS; i++) {
                const uint line = ROW_OF(lane) + i * ROW_STEP, at = block * LANE_ROWS + i;
                ACCUMULATOR largest = peak[at];
                for (uint c = 0; c < LANES_COLUMN; c++) {
                    largest = max(largest, peaks[line * LANES_COLUMN + c]);
                }
                // Nothing has a score of more than minus infinity yet.
                const ACCUMULATOR base = largest == -INFINITY ? 0 : largest;
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
            UNROLL for (uint i = 0; i < LANE_ROWS * LANE_VALUES; i++) part[i] = sum[start + i];
            for (uint key = 0; key < count; key++) {
                ACCUMULATOR values[LANE_VALUES];
                UNROLL for (uint j = 0; j < LANE_VALUES; j++) {
                    values[j] = V_AT(key, column + j * COLUMN_STEP);
                }
                UNROLL for (uint i = 0; i < LANE_ROWS; i++) {
                    const ACCUMULATOR x = WEIGHT_AT(key, line + i * ROW_STEP);
                    total[block * LANE_ROWS + i] += x;
                    UNROLL for (uint j = 0; j < LANE_VALUES; j++) {
                        const uint at = i * LANE_VALUES + j;
                        part[at] = MULTIPLY_ADD(x, values[j], part[at]);
                    }
                }
            }
            UNROLL for (uint i = 0; i < LANE_ROWS * LANE_VALUES; i++) sum[start + i] = part[i];
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
