// Attention without scores in memory (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al.
// 2022, arXiv 2205.14135): a group goes with ROWS rows of queries through the keys, KEYS at a
// time, and keeps their sums of values, rescaled where a larger score comes up.
//
// The heads that share keys are one matrix: row r is query r % t of head r / t. A group has
// LANES_ROW x LANES_COLUMN work-items, each of which has LANE_ROWS rows, and of those LANE_KEYS
// scores and LANE_VALUES sums.
//
// X, C: dtypes of the queries and of the cache. WIDTH, VALUES: widths of keys and values at most.
// IS_CAUSAL, HAS_PAST, HAS_MASK, HAS_CAP: as the operation says. IS_SPLIT: do p.splits groups
// share the keys, each with a partial result for attention_combine?

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
    const uint lane_row = LANE / LANES_COLUMN, lane_column = LANE % LANES_COLUMN;

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
    if (IS_CAUSAL) {
        const uint last_row = min(first_row + ROWS, rows) - 1;
        const bool one_head = first_row / p.t == last_row / p.t;
        to = min(before + (one_head ? last_row % p.t : p.t - 1) + 1, p.s);
    }
    if (IS_SPLIT) {
        const uint part = ((to + p.splits - 1) / p.splits + KEYS - 1) / KEYS * KEYS;
        from = min(split * part, to);
        to = min(from + part, to);
    }

    for (uint e = LANE; e < WIDTH * ROWS; e += GROUP) {
        const uint d = e % WIDTH, row = first_row + e / WIDTH;
        ACCUMULATOR x = 0;
        if (d < p.d && row < rows) {
            const uint at = row / p.t * p.q_strides[0] + row % p.t * p.q_strides[1];
            x = LOAD(X, q, q_start + at + d * p.q_strides[2]) * SCALE;
        }
        q_tile[d * (ROWS + PAD) + e / WIDTH] = x;
    }

    ACCUMULATOR sum[LANE_ROWS * LANE_VALUES], total[LANE_ROWS], peak[LANE_ROWS];
    for (uint i = 0; i < LANE_ROWS; i++) {
        total[i] = 0;
        peak[i] = -INFINITY;
        for (uint j = 0; j < LANE_VALUES; j++) sum[i * LANE_VALUES + j] = 0;
    }

    for (uint first = from; first < to; first += KEYS) {
        for (uint e = LANE; e < WIDTH * KEYS; e += GROUP) {
            const uint d = e % WIDTH, key = first + e / WIDTH;
            ACCUMULATOR x = 0;
            if (d < p.d && key < to) {
                x = LOAD(C, k, k_start + key * p.k_strides[1] + d * p.k_strides[2]);
            }
            kv_tile[d * (KEYS + PAD) + e / WIDTH] = x;
        }
        BARRIER;

        ACCUMULATOR score[LANE_ROWS * LANE_KEYS];
        for (uint i = 0; i < LANE_ROWS * LANE_KEYS; i++) score[i] = 0;
        for (uint d = 0; d < p.d; d++) {
            for (uint i = 0; i < LANE_ROWS; i++) {
                const ACCUMULATOR x = q_tile[d * (ROWS + PAD) + lane_row + i * LANES_ROW];
                for (uint j = 0; j < LANE_KEYS; j++) {
                    const uint key = lane_column + j * LANES_COLUMN, at = i * LANE_KEYS + j;
                    score[at] = MULTIPLY_ADD(x, kv_tile[d * (KEYS + PAD) + key], score[at]);
                }
            }
        }
        for (uint i = 0; i < LANE_ROWS; i++) {
            const uint row = first_row + lane_row + i * LANES_ROW;
            const uint end = IS_CAUSAL ? min(before + row % p.t + 1, to) : to;
            ACCUMULATOR largest = -INFINITY;
            for (uint j = 0; j < LANE_KEYS; j++) {
                const uint key = first + lane_column + j * LANES_COLUMN;
                ACCUMULATOR x = score[i * LANE_KEYS + j];
#if HAS_CAP
                x = CAP * tanh(x / CAP);
#endif
#if HAS_MASK
                if (key < end && row < rows) {
                    const uint at = row / p.t * p.mask_strides[0] + row % p.t * p.mask_strides[1];
                    x += LOAD(X, mask, mask_start + at + key * p.mask_strides[2]);
                }
#endif
                x = key < end ? x : -INFINITY;
                largest = x > largest ? x : largest;
                score[i * LANE_KEYS + j] = x;
            }
            peaks[(lane_row + i * LANES_ROW) * LANES_COLUMN + lane_column] = largest;
        }
        BARRIER;

        // The keys are done with.
        for (uint e = LANE; e < VALUES * KEYS; e += GROUP) {
            const uint d = e % VALUES, key = first + e / VALUES;
            ACCUMULATOR x = 0;
            if (d < p.dv && key < to) {
                x = LOAD(C, v, v_start + key * p.v_strides[1] + d * p.v_strides[2]);
            }
            kv_tile[e] = x;
        }
        for (uint i = 0; i < LANE_ROWS; i++) {
            const uint row = lane_row + i * LANES_ROW;
            ACCUMULATOR largest = peak[i];
            for (uint c = 0; c < LANES_COLUMN; c++) {
                largest = max(largest, peaks[row * LANES_COLUMN + c]);
            }
            // Nothing has a score of more than minus infinity yet.
            const ACCUMULATOR base = largest == -INFINITY ? 0 : largest;
            const ACCUMULATOR factor = exp(peak[i] - base);
            peak[i] = largest;
            total[i] *= factor;
            for (uint j = 0; j < LANE_VALUES; j++) sum[i * LANE_VALUES + j] *= factor;
            for (uint j = 0; j < LANE_KEYS; j++) {
                const uint key = lane_column + j * LANES_COLUMN;
                weights[key * (ROWS + PAD) + row] = exp(score[i * LANE_KEYS + j] - base);
            }
        }
        BARRIER;

        for (uint key = 0; key < KEYS; key++) {
            for (uint i = 0; i < LANE_ROWS; i++) {
                const ACCUMULATOR x = weights[key * (ROWS + PAD) + lane_row + i * LANES_ROW];
                total[i] += x;
                for (uint j = 0; j < LANE_VALUES; j++) {
                    const uint d = lane_column + j * LANES_COLUMN, at = i * LANE_VALUES + j;
                    sum[at] = MULTIPLY_ADD(x, kv_tile[key * VALUES + d], sum[at]);
                }
            }
        }
        BARRIER;
    }

    for (uint i = 0; i < LANE_ROWS; i++) {
        const uint row = first_row + lane_row + i * LANES_ROW;
        if (row < rows) {
            const uint at = head * rows + row;
#if IS_SPLIT
            if (lane_column == 0) {
                partial_peaks[at * p.splits + split] = peak[i];
                partial_totals[at * p.splits + split] = total[i];
            }
#endif
            for (uint j = 0; j < LANE_VALUES; j++) {
                const uint d = lane_column + j * LANES_COLUMN;
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
