// The gradients of attention on Hopper's tensor cores, without scores in memory and without
// atomics (Dao 2023, arXiv 2307.08691; Shah et al. 2024, arXiv 2407.08608): a group goes with 128
// rows through those of the other side, its columns, STEP at a time. By rows and columns it makes
// scores and their gradients once more, and adds columns as often as the latter say. One warpgroup brings
// rows and columns to local memory; two others have 64 rows each.
//
// OF_KEYS: are rows keys with their values, and columns queries with the gradients of their results?
// Then the results are the gradients of keys and values. Else the other way round: the result is
// that of the queries. X: the dtype of all of them. D: their width, 64 or 128. MMA: the dtype in
// PTX. STAGES: tiles of columns in local memory.

// Registers for all results, scores and their gradients there are only where rows are narrow: else
// the latter come after the weights are made.
#define LATE (OF_KEYS && D > 64)

#define ROWS 128
#define ROW_BYTES (ROWS * D * 2)
#define TILE_BYTES (STEP * D * 2)
// A tile of columns is two; behind those of queries are their totals and deltas.
#define STAGE_BYTES (2 * TILE_BYTES)
#define SCALARS (rows_b + ROW_BYTES + STAGES * STAGE_BYTES)

// Barriers of local memory: a tile of columns is there; nobody reads it any more; and so of rows.
#define FULL(stage) (barriers + (stage))
#define FREE(stage) (barriers + STAGES + (stage))
#define FULL_ROWS (barriers + 2 * STAGES)
#define FREE_ROWS (barriers + 2 * STAGES + 1)

// Brings one number.
FUNCTION void bring_scalar(uint to, const float* from, bool is_there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(to), "l"(from), "r"(is_there ? 4 : 0) : "memory");
}

FUNCTION float2 local_pair(uint address) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
    return x;
}

// A group's next rows, the longest first; of so many heads at a time that what they read stays in
// the cache.
#define ROWS_OF_ITEM \
    const uint section = item / (p.tiles * p.together) * p.together; \
    const uint place = item - section * p.tiles, width = min(p.together, p.all_heads - section); \
    const uint tile = OF_KEYS ? place / width : p.tiles - 1 - place / width; \
    const uint first_row = tile * ROWS, head = section + place % width; \
    /* Columns that rows see: tiles `from` to `to`. */ \
    const uint from = OF_KEYS && p.is_causal ? first_row / STEP : 0; \
    const uint seen = OF_KEYS ? p.t : p.is_causal ? min(first_row + ROWS, p.s) : p.s; \
    const uint count = max((seen + STEP - 1) / STEP, from) - from

// Where the rows of a head of queries, and of keys, begin.
#define HEADS(kv, q_head) \
    const uint batch = (kv) / p.heads, kv_head = (kv) % p.heads; \
    uint q_start = (kv_head * p.each + (q_head)) * p.q_strides[0]; \
    uint d_y_start = (kv_head * p.each + (q_head)) * p.d_y_strides[0]; \
    uint totals_start = (kv_head * p.each + (q_head)) * p.totals_strides[0]; \
    uint delta_start = (kv_head * p.each + (q_head)) * p.delta_strides[0]; \
    uint k_start = kv_head * p.k_strides[0], v_start = kv_head * p.v_strides[0]; \
    ADD_OFFSET(q_start, batch, LEAD_RANK, p.lead, p.q_lead); \
    ADD_OFFSET(d_y_start, batch, LEAD_RANK, p.lead, p.d_y_lead); \
    ADD_OFFSET(totals_start, batch, LEAD_RANK, p.lead, p.totals_lead); \
    ADD_OFFSET(delta_start, batch, LEAD_RANK, p.lead, p.delta_lead); \
    ADD_OFFSET(k_start, batch, LEAD_RANK, p.lead, p.k_lead); \
    ADD_OFFSET(v_start, batch, LEAD_RANK, p.lead, p.v_lead)

// The products of 64 rows with those of a tile of columns.
FUNCTION void multiply_rows(float* sum, uint rows, uint tile) {
    const ulong a = descriptor(rows, 0), b = descriptor(tile, 0);
    UNROLL for (uint j = 0; j < D / 16; j++) {
        multiply_tiles<STEP>(sum, a + (j / 4 * (ROWS * 128) + j % 4 * 32) / 16,
                             b + (j / 4 * (STEP * 128) + j % 4 * 32) / 16, j > 0);
    }
}

// Adds a tile of columns, each as often as `shares` says.
FUNCTION void add_columns(float* sum, const uint* shares, uint tile) {
    const ulong columns = descriptor(tile, STEP * 128);
    UNROLL for (uint j = 0; j < STEP / 16; j++) {
        multiply_columns<D>(sum, shares + 4 * j, columns + j * 2048 / 16, 1);
    }
}

// Writes a lane's part of 64 rows, each `stride` behind the one before.
FUNCTION void write_rows(STORAGE(X)* to, uint stride, const float* sum, float factor, uint row,
                         uint end) {
    UNROLL for (uint n = 0; n < 2; n++) {
        if (row + n * 8 >= end) continue;
        uint* line = (uint*)(to + (row + n * 8) * stride) + SIMD_LANE % 4;
        UNROLL for (uint j = 0; j < D / 8; j++) {
            line[4 * j] = packed(sum[4 * j + 2 * n] * factor, sum[4 * j + 2 * n + 1] * factor);
        }
    }
}

KERNEL_BEGIN
    LOCAL_ARRAY(ulong, barriers, 2 * STAGES + 2);
    const uint rows_a = (local_address(DYNAMIC_LOCAL) + 1023) / 1024 * 1024;
    const uint rows_b = rows_a + ROW_BYTES, columns = rows_b + ROW_BYTES;

    if (LANE == 0) {
        // Every lane that brings something arrives, and a lane of every warp that reads it.
        for (uint i = 0; i < 2 * STAGES + 2; i++) {
            barrier_init(barriers + i, i < STAGES || i == 2 * STAGES ? 128 : 8);
        }
        barrier_fence();
    }
    BARRIER;
    LAUNCH_NEXT;

    // All together have no more registers than the launch gave them, 168 to each lane: where
    // they ask for more, they wait for ever.
    uint stage = 0, phase = 0, row_phase = 0;
#define NEXT_STAGE \
    if (++stage == STAGES) { \
        stage = 0; \
        phase ^= 1; \
    }
    if (SIMD_GROUP < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (uint item = GROUP_ID(0); item < p.items; item += gridDim.x, row_phase ^= 1) {
            ROWS_OF_ITEM;
            const uint last = OF_KEYS ? p.each : 1;
            for (uint e = 0; e < last; e++) {
                HEADS(OF_KEYS ? head : head / p.each, OF_KEYS ? e : head % p.each);
                if (e == 0) {
                    barrier_wait(FREE_ROWS, row_phase ^ 1);
#if OF_KEYS
                    bring<ROWS>(rows_a, k + k_start, p.k_strides[1], first_row, p.s);
                    bring<ROWS>(rows_b, v + v_start, p.v_strides[1], first_row, p.s);
#else
                    bring<ROWS>(rows_a, q + q_start, p.q_strides[1], first_row, p.t);
                    bring<ROWS>(rows_b, d_y + d_y_start, p.d_y_strides[1], first_row, p.t);
#endif
                    arrive_after_copies(FULL_ROWS);
                }
                for (uint i = 0; i < count; i++) {
                    barrier_wait(FREE(stage), phase ^ 1);
                    const uint to = columns + stage * STAGE_BYTES;
#if OF_KEYS
                    const uint first = (from + i) * STEP;
                    bring<STEP>(to, q + q_start, p.q_strides[1], first, p.t);
                    bring<STEP>(to + TILE_BYTES, d_y + d_y_start, p.d_y_strides[1], first, p.t);
                    if (LANE < 2 * STEP) {
                        const uint query = first + LANE % STEP;
                        const bool is_there = query < p.t;
                        const float* x = LANE < STEP
                            ? totals + totals_start + (is_there ? query * p.totals_strides[1] : 0)
                            : delta + delta_start + (is_there ? query * p.delta_strides[1] : 0);
                        bring_scalar(SCALARS + (stage * 2 * STEP + LANE) * 4, x, is_there);
                    }
#else
                    const uint first = (count - 1 - i) * STEP;
                    bring<STEP>(to, k + k_start, p.k_strides[1], first, p.s);
                    bring<STEP>(to + TILE_BYTES, v + v_start, p.v_strides[1], first, p.s);
#endif
                    arrive_after_copies(FULL(stage));
                    NEXT_STAGE;
                }
            }
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const uint member = SIMD_GROUP / 4 - 1, thread = LANE % 128;
        const float factor = SCALE * LOG2_E;
        for (uint item = GROUP_ID(0); item < p.items; item += gridDim.x, row_phase ^= 1) {
            ROWS_OF_ITEM;
            const uint own_row = first_row + member * 64;
            // A lane has two rows, 8 apart, and of 8 columns the two from here on.
            const uint row = own_row + thread / 32 * 16 + SIMD_LANE / 4;
            const uint column = SIMD_LANE % 4 * 2;
            float grad_a[D / 2];
            UNROLL for (uint i = 0; i < D / 2; i++) grad_a[i] = 0;
#if OF_KEYS
            float grad_b[D / 2];
            UNROLL for (uint i = 0; i < D / 2; i++) grad_b[i] = 0;
            const uint last = p.each;
            // What only the other warpgroup sees.
            const uint skipped = p.is_causal ? min(member * (64 / STEP), count) : 0;
#else
            const uint last = 1;
            const uint own_seen = p.is_causal ? min(own_row + 64, p.s) : p.s;
            const uint skipped = count - min(count, (own_seen + STEP - 1) / STEP);
            float total[2], shift[2];
            {
                HEADS(head / p.each, head % p.each);
                UNROLL for (uint n = 0; n < 2; n++) {
                    const uint line = min(row + n * 8, p.t - 1);
                    total[n] = totals[totals_start + line * p.totals_strides[1]] * LOG2_E;
                    shift[n] = delta[delta_start + line * p.delta_strides[1]];
                }
            }
#endif
            barrier_wait(FULL_ROWS, row_phase);
            COPIES_TO_PRODUCTS;
            const uint own_a = rows_a + member * (64 * 128), own_b = own_a + ROW_BYTES;
            bool is_pending = false;
            uint pending = 0;
            for (uint e = 0; e < last; e++) {
                for (uint i = 0; i < skipped; i++) {
                    if (SIMD_LANE == 0) arrive(FREE(stage));
                    NEXT_STAGE;
                }
                for (uint i = skipped; i < count; i++) {
                    const uint first = (OF_KEYS ? from + i : count - 1 - i) * STEP;
                    const uint tile_a = columns + stage * STAGE_BYTES;
                    const uint tile_b = tile_a + TILE_BYTES;
                    float score[STEP / 2], slope[STEP / 2];
                    barrier_wait(FULL(stage), phase);
                    COPIES_TO_PRODUCTS;
                    renew(score, STEP / 2);
#if !LATE
                    renew(slope, STEP / 2);
#endif
                    BEGIN_PRODUCTS;
                    multiply_rows(score, own_a, tile_a);
                    END_PRODUCTS;
#if !LATE
                    multiply_rows(slope, own_b, tile_b);
                    END_PRODUCTS;
#endif
                    // Also all that was begun before.
#if LATE
                    WAIT_PRODUCTS(0);
#else
                    WAIT_PRODUCTS(1);
#endif
                    renew(score, STEP / 2);
                    if (is_pending && SIMD_LANE == 0) arrive(FREE(pending));
                    is_pending = true;
                    pending = stage;

#if OF_KEYS
                    if (p.is_causal && first < own_row + 63) {
                        UNROLL for (uint j = 0; j < STEP / 2; j++) {
                            const uint query = first + j / 4 * 8 + column + j % 2;
                            if (query < row + j / 2 % 2 * 8) score[j] = -INFINITY;
                        }
                    }
                    const uint scalars = SCALARS + (stage * 2 * STEP + column) * 4;
                    UNROLL for (uint j = 0; j < STEP / 2; j += 4) {
                        const float2 x = local_pair(scalars + j * 8);
                        const float shift_0 = -x.x * LOG2_E, shift_1 = -x.y * LOG2_E;
                        score[j] = exp_2(fma(score[j], factor, shift_0));
                        score[j + 1] = exp_2(fma(score[j + 1], factor, shift_1));
                        score[j + 2] = exp_2(fma(score[j + 2], factor, shift_0));
                        score[j + 3] = exp_2(fma(score[j + 3], factor, shift_1));
                    }
                    uint weight[STEP / 4];
                    UNROLL for (uint j = 0; j < STEP / 4; j++) {
                        weight[j] = packed(score[2 * j], score[2 * j + 1]);
                    }
#if LATE
                    renew(slope, STEP / 2);
#endif
                    renew(grad_b, D / 2);
                    BEGIN_PRODUCTS;
#if LATE
                    multiply_rows(slope, own_b, tile_b);
                    END_PRODUCTS;
#endif
                    add_columns(grad_b, weight, tile_b);
                    END_PRODUCTS;
                    WAIT_PRODUCTS(1);
                    renew(slope, STEP / 2);
                    UNROLL for (uint j = 0; j < STEP / 2; j += 4) {
                        const float2 x = local_pair(scalars + STEP * 4 + j * 8);
                        score[j] *= slope[j] - x.x;
                        score[j + 1] *= slope[j + 1] - x.y;
                        score[j + 2] *= slope[j + 2] - x.x;
                        score[j + 3] *= slope[j + 3] - x.y;
                    }
#else
                    if (first + STEP > (p.is_causal ? min(own_row + 1, p.s) : p.s)) {
                        UNROLL for (uint j = 0; j < STEP / 2; j++) {
                            const uint key = first + j / 4 * 8 + column + j % 2;
                            const uint line = row + j / 2 % 2 * 8;
                            if (key >= (p.is_causal ? min(line + 1, p.s) : p.s)) {
                                score[j] = -INFINITY;
                            }
                        }
                    }
                    UNROLL for (uint j = 0; j < STEP / 2; j++) {
                        score[j] = exp_2(fma(score[j], factor, -total[j / 2 % 2]));
                    }
                    WAIT_PRODUCTS(0);
                    renew(slope, STEP / 2);
                    UNROLL for (uint j = 0; j < STEP / 2; j++) {
                        score[j] *= slope[j] - shift[j / 2 % 2];
                    }
#endif
                    uint change[STEP / 4];
                    UNROLL for (uint j = 0; j < STEP / 4; j++) {
                        change[j] = packed(score[2 * j], score[2 * j + 1]);
                    }
                    renew(grad_a, D / 2);
                    BEGIN_PRODUCTS;
                    add_columns(grad_a, change, tile_a);
                    END_PRODUCTS;
                    NEXT_STAGE;
                }
            }
            WAIT_PRODUCTS(0);
            renew(grad_a, D / 2);
            if (SIMD_LANE == 0) {
                if (is_pending) arrive(FREE(pending));
                arrive(FREE_ROWS);
            }
#if OF_KEYS
            renew(grad_b, D / 2);
            const uint batch = head / p.heads, kv_head = head % p.heads;
            uint d_k_start = kv_head * p.d_k_strides[0], d_v_start = kv_head * p.d_v_strides[0];
            ADD_OFFSET(d_k_start, batch, LEAD_RANK, p.lead, p.d_k_lead);
            ADD_OFFSET(d_v_start, batch, LEAD_RANK, p.lead, p.d_v_lead);
            write_rows(d_k + d_k_start, p.d_k_strides[1], grad_a, SCALE, row, p.s);
            write_rows(d_v + d_v_start, p.d_v_strides[1], grad_b, 1, row, p.s);
#else
            const uint q_heads = p.heads * p.each, batch = head / q_heads;
            uint d_q_start = head % q_heads * p.d_q_strides[0];
            ADD_OFFSET(d_q_start, batch, LEAD_RANK, p.lead, p.d_q_lead);
            write_rows(d_q + d_q_start, p.d_q_strides[1], grad_a, SCALE, row, p.t);
#endif
        }
    }
KERNEL_END
