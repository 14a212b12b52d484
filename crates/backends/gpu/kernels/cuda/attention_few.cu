// Attention for few rows of queries by tensor cores, see attention.h: 8 rows of them, of which
// ROWS are used. The warps of a group take turns at its keys, KEYS at a time: 8 rows by 16
// keys of scores, then D by 8 of sums (transposed, so that values are the left operand). Keys
// and values go from global memory to registers in pieces of 16 bytes, in an order of features
// that suits the tensor cores' operands: which feature a column stands for does not matter.
//
// Queries are the sum of two numbers of the cache's type, and so are weights, so that results
// are as good as in single precision. Queries' second numbers are in the rows 8 to 15 of the
// left operand, which are free.
//
// The SPLITS groups that share a head's keys are a cluster. Each puts together, in order, what
// all of them have made for its part of the result.
//
// D: width of keys and of values. MMA: the cache's type in PTX. NEW_TOKEN: is there one query
// for each head, which has yet to be turned by its position, as has a key, which is to be
// written to the cache with its value? With STARTS_EARLY, no launch of the graph writes the
// position, nor any but this one the cache.

#define WARPS (GROUP / 32)
#define KEYS 16
// Rows in local memory are longer by what puts their beginnings into different banks.
#define Q_STEP (D + 32)
#define SUM_STEP (D + 8)
#define PIECES (D / 32)
// Of the result, what each group of a cluster puts together.
#define OWN_SUMS (ROWS * D / SPLITS)

FUNCTION uint4 load_16(const STORAGE(C)* p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// From local memory every time: there are no registers to keep queries in.
FUNCTION uint4 load_local(const uint4* p) {
    uint4 v;
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(local_address(p)));
    return v;
}

// Puts a number into the local memory of the cluster's group `rank`, where others have theirs
// at `p`, whose barrier of bytes counts it.
FUNCTION void put_in(float* p, uint rank, float x, const ulong* barrier) {
    asm volatile("{\n"
                 ".reg .b32 there, counter;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mapa.shared::cluster.u32 counter, %2, %1;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %3, [counter];\n"
                 "}"
                 :: "r"(local_address(p)), "r"(rank), "r"(local_address(barrier)),
                    "r"(BITS_OF_F32(x)) : "memory");
}

FUNCTION float rounded(float x) { return PASTE(round_, C)(x); }

// Adds the product of 16 x 16 and 16 x 8 to 16 x 8.
FUNCTION void multiply_add(float* sum, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA "." MMA ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Lane 4 g + c has of keys g and g + 8 the features 8 c to 8 c + 7 of each 32.
FUNCTION void load_keys(uint4* tile, const STORAGE(C)* keys, uint stride, uint first, uint start, uint last) {
    const uint g = SIMD_LANE / 4, c = SIMD_LANE % 4;
    UNROLL for (uint n = 0; n < 2; n++) {
        const STORAGE(C)* row = keys + min(max(first + g + n * 8, start), last) * (ulong)stride + c * 8;
        UNROLL for (uint i = 0; i < PIECES; i++) tile[n * PIECES + i] = load_16(row + i * 32);
    }
}

// Lane 4 g + c has of keys 2 c, 2 c + 1, 2 c + 8 and 2 c + 9 the values 8 g to 8 g + 7 of each
// 64.
FUNCTION void load_values(uint4* tile, const STORAGE(C)* values, uint stride, uint first,
                          uint start, uint last) {
    const uint g = SIMD_LANE / 4, c = SIMD_LANE % 4;
    UNROLL for (uint n = 0; n < 4; n++) {
        const uint key = first + 2 * c + n % 2 + n / 2 * 8;
        const STORAGE(C)* row = values + min(max(key, start), last) * (ulong)stride + g * 8;
        UNROLL for (uint i = 0; i < D / 64; i++) tile[i * 4 + n] = load_16(row + i * 64);
    }
}

// The two numbers that a query is the sum of.
FUNCTION void put_query(uint4* q_tile, uint row, uint d, float x) {
    ushort* tile = (ushort*)q_tile + row * Q_STEP + d;
    STORE(C, tile, 0, x);
    STORE(C, tile, 8 * Q_STEP, x - rounded(x));
}

KERNEL_BEGIN
    LOCAL_ARRAY(uint4, q_tile, 2 * 8 * Q_STEP / 8);
    LOCAL_ARRAY(float, peaks, 8 * WARPS);
    LOCAL_ARRAY(float, warp_totals, 8 * WARPS);
    LOCAL_ARRAY(float, weights, 8 * WARPS);
    LOCAL_ARRAY(float, wholes, 8);
    // What the groups of the cluster have made: of all rows, and of this group's part of sums.
    LOCAL_ARRAY(float, all_peaks, 8 * SPLITS);
    LOCAL_ARRAY(float, all_wholes, 8 * SPLITS);
    LOCAL_ARRAY(float, all_sums, SPLITS * OWN_SUMS);
    float* const sums = (float*)DYNAMIC_LOCAL;
    ATTENTION_ROWS;
    const uint first_tile = start / KEYS, last_tile = (to + KEYS - 1) / KEYS;
    const uint tiles_of_keys = last_tile - first_tile;
    // A warp with one tile takes no longer than one with none.
    const uint part = max((tiles_of_keys + SPLITS - 1) / SPLITS, (uint)WARPS);
    const bool is_alone = part >= tiles_of_keys;
    if (is_alone && split > 0) return;
    // Others put into this group's memory what they have made of its part of the result.
    LOCAL_ARRAY(ulong, barrier, 1);
    if (!is_alone) {
        if (LANE == 0) {
            barrier_init(barrier, 1);
            barrier_fence();
            barrier_arrive(barrier, SPLITS * (OWN_SUMS + 2 * 8) * sizeof(float));
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
    const uint end_tile = min(first_tile + (split + 1) * part, last_tile);
    uint tile = first_tile + split * part + SIMD_GROUP;

    const STORAGE(C)* const keys = k + k_start;
    const STORAGE(C)* const values = v + v_start;
    const uint g = SIMD_LANE / 4, c = SIMD_LANE % 4;
#if NEW_TOKEN
    // The last key is not in the cache yet; where there is no other, what is read is not used.
    const uint last = max(to, 2u) - 2;
#else
    const uint last = to - 1;
#endif
    uint4 k_tile[2 * PIECES], v_tile[D / 16];
    if (tile < end_tile) {
        load_keys(k_tile, keys, p.k_strides[1], tile * KEYS, start, last);
        load_values(v_tile, values, p.v_strides[1], tile * KEYS, start, last);
    }

#if NEW_TOKEN
    LOCAL_ARRAY(uint4, new_key, D / 8);
    LOCAL_ARRAY(uint4, new_value, D / 8);
    // A lane turns one pair of all vectors.
    const uint unit = LANE % (D / 2);
    uint first_of_pair = 2 * unit, second_of_pair = first_of_pair + 1;
    float cosine = 1, sine = 0;
    if (unit < p.dims / 2) {
        if (!INTERLEAVED) {
            first_of_pair = unit;
            second_of_pair = unit + p.dims / 2;
        }
        const float high = F32_OF_BITS(p.frequencies[2 * unit]);
        const float low = F32_OF_BITS(p.frequencies[2 * unit + 1]);
#if HAS_FACTORS
        const float factor = factors[unit * p.factor_stride];
        const float angle = rope_angle_divided(positions[0], high, low, factor);
#else
        const float angle = rope_angle(positions[0], high, low);
#endif
        cosine = cos(angle) * MAGNITUDE;
        sine = sin(angle) * MAGNITUDE;
    }
    // The next launch may not begin before the end: its groups, one for each unit, would gather
    // where these are not, two or three to a unit.
    WAIT_FOR_INPUTS;
    const bool has_new = split * part < tiles_of_keys && end_tile == last_tile;
    const uint vectors = ROWS + (has_new ? 1 : 0);
    for (uint row = LANE / (D / 2); row < vectors; row += GROUP / (D / 2)) {
        const bool is_key = row == ROWS;
        float a = 0, b = 0;
        if (is_key || first_row + row < rows) {
            const storage_f32* x = is_key ? new_k + kv_head * p.new_k_stride
                                          : q + (kv_head * p.each + first_row + row) * p.q_strides[0];
            a = x[first_of_pair];
            b = x[second_of_pair];
        }
        const float turned = a * cosine - b * sine, other = a * sine + b * cosine;
        if (is_key) {
            STORE(C, (ushort*)new_key, first_of_pair, turned);
            STORE(C, (ushort*)new_key, second_of_pair, other);
        } else {
            put_query(q_tile, row, first_of_pair, turned * SCALE * LOG2_E);
            put_query(q_tile, row, second_of_pair, other * SCALE * LOG2_E);
        }
    }
    if (has_new && LANE >= GROUP - D) {
        const uint d = LANE - (GROUP - D);
        STORE(C, (ushort*)new_value, d, new_v[kv_head * p.new_v_stride + d]);
    }
#else
    LAUNCH_NEXT;
    for (uint i = LANE; i < ROWS * D; i += GROUP) {
        const uint row = first_row + i / D;
        put_query(q_tile, i / D, i % D, LOAD_Q(row, i % D) * LOG2_E);
    }
#endif
    for (uint i = ROWS * Q_STEP / 8 + LANE; i < 8 * Q_STEP / 8; i += GROUP) {
        q_tile[i] = q_tile[i + 8 * Q_STEP / 8] = make_uint4(0, 0, 0, 0);
    }
    BARRIER;
#if NEW_TOKEN
    // Unless the position was a mistake.
    if (has_new && first_row == 0 && LANE < D / 4 && given == (int)before) {
        STORAGE(C)* const to_k = k + k_start + before * p.k_strides[1];
        STORAGE(C)* const to_v = v + v_start + before * p.v_strides[1];
        const uint i = LANE % (D / 8);
        if (LANE < D / 8) ((uint4*)to_k)[i] = new_key[i];
        else ((uint4*)to_v)[i] = new_value[i];
    }
#endif

    float sum[D / 16][4], peak = -INFINITY, total = 0;
    UNROLL for (uint i = 0; i < D / 16; i++) {
        UNROLL for (uint j = 0; j < 4; j++) sum[i][j] = 0;
    }
    // Lane 4 g + c has row g of scores, and rows 2 c and 2 c + 1 of sums.
    const uint end = END_OF(first_row + g);

    for (; tile < end_tile; tile += WARPS) {
        const uint first = tile * KEYS, next = tile + WARPS;
#if NEW_TOKEN
        if (first + KEYS > before) {
            UNROLL for (uint n = 0; n < 2; n++) {
                UNROLL for (uint i = 0; i < PIECES; i++) {
                    if (first + g + n * 8 >= before) k_tile[n * PIECES + i] = new_key[i * 4 + c];
                }
            }
            UNROLL for (uint n = 0; n < 4; n++) {
                UNROLL for (uint i = 0; i < D / 64; i++) {
                    const uint key = first + 2 * c + n % 2 + n / 2 * 8;
                    if (key >= before) v_tile[i * 4 + n] = new_value[i * 8 + g];
                }
            }
        }
#endif
        // Keys 2 c, 2 c + 1, and the same of the second 8; then for the second numbers.
        float score[2][4] = {};
        UNROLL for (uint i = 0; i < PIECES; i++) {
            const uint4 high = load_local(q_tile + (g * Q_STEP + i * 32) / 8 + c);
            const uint4 low = load_local(q_tile + ((8 + g) * Q_STEP + i * 32) / 8 + c);
            UNROLL for (uint n = 0; n < 2; n++) {
                const uint4 x = k_tile[n * PIECES + i];
                multiply_add(score[n], high.x, low.x, high.y, low.y, x.x, x.y);
                multiply_add(score[n], high.z, low.z, high.w, low.w, x.z, x.w);
            }
        }
        if (next < end_tile) load_keys(k_tile, keys, p.k_strides[1], next * KEYS, start, last);

        float own[4], largest = peak;
        UNROLL for (uint i = 0; i < 4; i++) {
            const uint key = first + i / 2 * 8 + 2 * c + i % 2;
            const float x = score[i / 2][i % 2] + score[i / 2][2 + i % 2];
            own[i] = key < end && IS_NEAR(first_row + g, key) ? x : -INFINITY;
            largest = LARGER(own[i], largest);
        }
        largest = max(largest, simd_xor(largest, 1));
        largest = max(largest, simd_xor(largest, 2));
        const float base = BASE_OF(largest), factor = exp_2(peak - base);
        peak = largest;
        total *= factor;
        uint weight[2], rest[2];
        UNROLL for (uint n = 0; n < 2; n++) {
            const float a = exp_2(own[2 * n] - base), b = exp_2(own[2 * n + 1] - base);
            total += a + b;
            weight[n] = packed(a, b);
            rest[n] = packed(a - rounded(a), b - rounded(b));
        }
        if (__any_sync(~0u, factor != 1)) {
            const float even = __shfl_sync(~0u, factor, 8 * c);
            const float odd = __shfl_sync(~0u, factor, 8 * c + 4);
            UNROLL for (uint i = 0; i < D / 16; i++) {
                UNROLL for (uint j = 0; j < 4; j++) sum[i][j] *= j % 2 == 0 ? even : odd;
            }
        }
        // Values 8 g + 2 i and 8 g + 2 i + 1 of each 64, as rows g and g + 8.
        UNROLL for (uint i = 0; i < D / 16; i++) {
            uint x[4];
            UNROLL for (uint n = 0; n < 4; n++) {
                const uint4 piece = v_tile[i / 4 * 4 + n];
                x[n] = i % 4 == 0 ? piece.x : i % 4 == 1 ? piece.y : i % 4 == 2 ? piece.z : piece.w;
            }
            const uint a0 = __byte_perm(x[0], x[1], 0x5410), a1 = __byte_perm(x[0], x[1], 0x7632);
            const uint a2 = __byte_perm(x[2], x[3], 0x5410), a3 = __byte_perm(x[2], x[3], 0x7632);
            multiply_add(sum[i], a0, a1, a2, a3, weight[0], weight[1]);
            multiply_add(sum[i], a0, a1, a2, a3, rest[0], rest[1]);
        }
        if (next < end_tile) load_values(v_tile, values, p.v_strides[1], next * KEYS, start, last);
    }

    // The warps' results are put together.
    total += simd_xor(total, 1);
    total += simd_xor(total, 2);
    if (c == 0) {
        peaks[g * WARPS + SIMD_GROUP] = peak;
        warp_totals[g * WARPS + SIMD_GROUP] = total;
    }
    UNROLL for (uint n = 0; n < 2; n++) {
        if (2 * c + n < ROWS) {
            float* const line = sums + (SIMD_GROUP * ROWS + 2 * c + n) * SUM_STEP + 8 * g;
            UNROLL for (uint i = 0; i < D / 16; i++) {
                ((float2*)line)[i / 4 * 32 + i % 4] = make_float2(sum[i][n], sum[i][2 + n]);
            }
        }
    }
    BARRIER;
    if (LANE < 8 * WARPS) {
        const float own = peaks[LANE];
        float largest = own;
        for (uint mask = 1; mask < WARPS; mask *= 2) largest = max(largest, simd_xor(largest, mask));
        const float weight = exp_2(own - BASE_OF(largest));
        weights[LANE] = weight;
        float whole = weight * warp_totals[LANE];
        for (uint mask = 1; mask < WARPS; mask *= 2) whole += simd_xor(whole, mask);
        if (LANE % WARPS == 0) {
            peaks[LANE] = largest;
            wholes[LANE / WARPS] = whole;
        }
    }
    BARRIER;
    // All of the cluster have begun.
    if (!is_alone) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    for (uint i = LANE; i < ROWS * D; i += GROUP) {
        const uint line = i / D, row = first_row + line;
        float out = 0;
        UNROLL for (uint w = 0; w < WARPS; w++) {
            const float x = sums[(w * ROWS + line) * SUM_STEP + i % D];
            out = fma(weights[line * WARPS + w], x, out);
        }
        if (!is_alone) {
            put_in(&all_sums[split * OWN_SUMS + i % OWN_SUMS], i / OWN_SUMS, out, barrier);
        } else if (row < rows) {
            STORE(X, y, (head * rows + row) * D + i % D, out / wholes[line]);
#if HAS_TOTALS
            if (i % D == 0) totals[head * rows + row] = LOG_OF_TOTAL(peaks[line * WARPS] * LN_2, wholes[line]);
#endif
        }
    }
    if (is_alone) return;
    if (LANE < 8 * SPLITS) {
        const uint line = LANE % 8, rank = LANE / 8;
        put_in(&all_peaks[line * SPLITS + split], rank, peaks[line * WARPS], barrier);
        put_in(&all_wholes[line * SPLITS + split], rank, wholes[line], barrier);
    }
    barrier_wait(barrier, 0);
    if (LANE < OWN_SUMS) {
        const uint i = split * OWN_SUMS + LANE, line = i / D, row = first_row + line;
        float largest = -INFINITY, out = 0, whole = 0;
        UNROLL for (uint n = 0; n < SPLITS; n++) {
            largest = max(largest, all_peaks[line * SPLITS + n]);
        }
        UNROLL for (uint n = 0; n < SPLITS; n++) {
            const float weight = exp_2(all_peaks[line * SPLITS + n] - BASE_OF(largest));
            whole = fma(weight, all_wholes[line * SPLITS + n], whole);
            out = fma(weight, all_sums[n * OWN_SUMS + LANE], out);
        }
        if (row < rows) {
            STORE(X, y, (head * rows + row) * D + i % D, out / whole);
#if HAS_TOTALS
            if (i % D == 0) totals[head * rows + row] = LOG_OF_TOTAL(largest * LN_2, whole);
#endif
        }
    }
KERNEL_END
