// The product of few rows of activations, the tokens, with rows of weights on tensor cores by `mma.sync`, at the speed
// of memory. Weights stream through local memory once, as they are in memory. A cluster of CLUSTER groups takes ROWS
// rows of weights at a time, of which each group multiplies a part along k. Two halves of a group's warps take the two
// halves of each STAGE values along k. All parts are added up in one order: the bits of a token's results do not depend
// on the number of tokens.
//
// x are pieces of rounded_rows.cu, of STAGE_BYTES each. TOKENS: rows of them, a multiple of 8, of which p.m exist. X:
// dtype of results. MATRICES: the matrices w0, w1 … of p.n[0], p.n[1] … rows have results y0, y1 …, unless IS_GATED: then
// there is one result, silu(x · w0ᵀ) · (x · w1ᵀ). HAS_BIAS, HAS_RESIDUAL: what else there is. OF_HALVES: are weights
// numbers of dtype OPERAND, not blocks? STAGES stages of STAGE values are in local memory. W_BYTES: of a stage of a row
// of weights, for which PIECES times 16 bytes are copied. IS_ALIGNED: do they begin at multiples of 16? IS_BYTES: are
// codes signed bytes? p.row_bytes: of a row of weights. p.tiles[i]: tiles of ROWS rows up to the end of matrix i.

#define ROWS 64
#define WARPS 8
#define ROUND(t, v) PASTE(round_, t)(v)
#define round_f32(v) (v)
#define SUBTILES (TOKENS / 8)
// Results of a tile, and those that a group of the cluster puts together.
#define OUT_ROWS (IS_GATED ? ROWS / 2 : ROWS)
#define OWN_ROWS (OUT_ROWS / CLUSTER)
// Numbers from one row of parts to the next, so that they begin in different banks.
#define PART_STEP (TOKENS + 1)
#define RECEIVED_STEP (TOKENS + 2)
#define WEIGHT_STEP (PIECES * 16)
// Copies of 16 bytes for a stage of a row of weights. There is room for one more, where it makes an odd number.
#define NEEDED ((W_BYTES + (IS_ALIGNED ? 0 : 14) + 15) / 16)
#define STAGE_LOCAL (ROWS * WEIGHT_STEP + STAGE_BYTES)
// Work-items that copy a row of weights.
#define COPIERS (GROUP / ROWS)

// Copies 16 bytes, or the first `bytes` of them with zeros behind.
FUNCTION void copy_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(local_address(to)), "l"(from) : "memory");
}
FUNCTION void copy_some(void* to, const void* from, uint bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(local_address(to)), "l"(from), "r"(bytes) : "memory");
}

// Puts two numbers into the memory of the cluster's group `rank`, where others have theirs at `p`, whose barrier of
// bytes counts them.
FUNCTION void put_in(float* p, uint rank, float2 x, const ulong* barrier) {
    asm volatile("{\n"
                 ".reg .b32 there, counter;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mapa.shared::cluster.u32 counter, %2, %1;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [there], {%3, %4}, [counter];\n"
                 "}"
                 :: "r"(local_address(p)), "r"(rank), "r"(local_address(barrier)),
                    "r"(BITS_OF_F32(x.x)), "r"(BITS_OF_F32(x.y)) : "memory");
}

#if OF_HALVES
// Adds the product of 16 x 16 and 16 x 8 to 16 x 8.
FUNCTION void multiply_add(float (&sum)[4], const uint (&a)[4], uint2 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA "." MMA ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}
#else
// Sums of products begin with the bits of 1.5 · 2²³: then they are this number plus the sum, in single precision.
#define BITS 0x4b400000
#define OFFSET 12582912.0f

FUNCTION void to_floats(float (&y)[4], const int (&x)[4]) {
    UNROLL for (uint i = 0; i < 4; i++) y[i] = __int_as_float(x[i]) - OFFSET;
}

#if SPAN == 32
FUNCTION void multiply(float (&y)[4], const uint (&a)[4], uint2 b) {
    int x[4];
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(BITS));
    to_floats(y, x);
}
#else
FUNCTION void multiply(float (&y)[4], uint a0, uint a1, uint b) {
    int x[4];
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(BITS));
    to_floats(y, x);
}
#endif

// Four codes less the zero point, as signed bytes.
FUNCTION uint signed_codes(uint codes) {
    if (IS_BYTES || ZERO_POINT == 0) return codes;
    return ((codes | 0x80808080u) - ZERO_POINT * 0x01010101u) ^ 0x80808080u;
}
#endif

struct Matrices {
    const uchar* w[MATRICES];
    STORAGE(X)* y[MATRICES];
    const STORAGE(X)* bias[MATRICES];
};

// An element of an array that is in registers.
template <class T> FUNCTION T pick(const T (&values)[MATRICES], uint matrix) {
    T value = values[0];
    UNROLL for (uint i = 1; i < MATRICES; i++) {
        if (matrix == i) value = values[i];
    }
    return value;
}

// The matrix of row `r` of a tile, and `row` in it, which may be none of it.
FUNCTION uint find(const Params& p, uint tile, uint r, uint& row) {
    if (IS_GATED) {
        row = tile * OUT_ROWS + r % OUT_ROWS;
        return r / OUT_ROWS;
    }
    uint matrix = 0, first = 0;
    UNROLL for (uint i = 0; i + 1 < MATRICES; i++) {
        if (tile >= p.tiles[i]) {
            matrix = i + 1;
            first = p.tiles[i];
        }
    }
    row = (tile - first) * ROWS + r;
    return matrix;
}

KERNEL_BEGIN
    LAUNCH_NEXT;
    Matrices all;
    all.w[0] = (const uchar*)w0;
    all.y[0] = y0;
#if MATRICES > 1
    all.w[1] = (const uchar*)w1;
#if !IS_GATED
    all.y[1] = y1;
#endif
#endif
#if MATRICES > 2
    all.w[2] = (const uchar*)w2;
    all.y[2] = y2;
#endif
#if HAS_BIAS
    all.bias[0] = bias0;
#if MATRICES > 1
    all.bias[1] = bias1;
#endif
#if MATRICES > 2
    all.bias[2] = bias2;
#endif
#endif
    // Parts of all groups of the cluster for the rows that this one puts together, of two tiles.
    float* const received = (float*)(DYNAMIC_LOCAL + STAGES * STAGE_LOCAL);
    float* const part = received + 2 * ROWS * RECEIVED_STEP;
    LOCAL_ARRAY(ulong, full, 2);
    if (LANE == 0) {
        barrier_init(full, 1);
        barrier_init(full + 1, 1);
        barrier_fence();
    }
    __syncthreads();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    uint buffer = 0, parity = 0;
    const uint rank = GROUP_ID(0) % CLUSTER, cluster = GROUP_ID(0) / CLUSTER;
    const uint first_stage = rank * p.stages / CLUSTER, own = (rank + 1) * p.stages / CLUSTER - first_stage;
    const uint turns = (p.all_tiles - cluster + p.clusters - 1) / p.clusters, total = turns * own;

    // What is copied next, and from where.
    const uint copied_row = LANE / COPIERS;
    uint next = 0, next_tile = cluster, next_stage = 0, left = 0;
    const uchar* from = all.w[0];
    bool is_last = false;
    const auto copy_weights = [&](uint slot) {
        if (next >= total) return;
        if (next_stage == 0) {
            uint row;
            const uint matrix = find(p, next_tile, copied_row, row);
            const bool exists = row < p.n[matrix];
            from = pick(all.w, matrix) + (exists ? (ulong)row * p.row_bytes + first_stage * W_BYTES : 0);
            left = exists ? p.row_bytes - first_stage * W_BYTES : 0;
            is_last = row + 1 == p.n[matrix];
        }
        const uint before = IS_ALIGNED ? 0 : (uint)(ulong)from & 15u;
        const uint end = left == 0 ? 0 : before + min(left, (uint)W_BYTES);
        uchar* const to = DYNAMIC_LOCAL + slot * STAGE_LOCAL + copied_row * WEIGHT_STEP;
        // Whatever follows a row's bytes may be read, but nothing behind the matrix.
        const bool is_inside = left >= W_BYTES && !is_last;
        UNROLL for (uint i = 0; i < (NEEDED + COPIERS - 1) / COPIERS; i++) {
            const uint at = i * COPIERS * 16 + LANE % COPIERS * 16;
            if (NEEDED % COPIERS != 0 && at >= NEEDED * 16) continue;
            if (is_inside) {
                copy_16(to + at, from - before + at);
            } else {
                const uint bytes = at < end ? min(end - at, 16u) : 0;
                copy_some(to + at, bytes > 0 ? from - before + at : all.w[0], bytes);
            }
        }
        from += W_BYTES;
        left -= min(left, (uint)W_BYTES);
    };
    const auto copy_tokens = [&](uint slot) {
        if (next < total) {
            const uchar* const piece = (const uchar*)x + (ulong)(first_stage + next_stage) * STAGE_BYTES;
            uchar* const to = DYNAMIC_LOCAL + slot * STAGE_LOCAL + ROWS * WEIGHT_STEP;
            UNROLL for (uint i = 0; i < (STAGE_BYTES + GROUP * 16 - 1) / (GROUP * 16); i++) {
                const uint at = (i * GROUP + LANE) * 16;
                if (STAGE_BYTES % (GROUP * 16) == 0 || at < STAGE_BYTES) copy_16(to + at, piece + at);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    const auto advance = [&]() {
        next++;
        if (++next_stage == own) {
            next_stage = 0;
            next_tile += p.clusters;
        }
    };
    for (uint slot = 0; slot + 1 < STAGES; slot++) {
        copy_weights(slot);
        advance();
    }
    next = next_stage = 0;
    next_tile = cluster;
    WAIT_FOR_INPUTS;
    for (uint slot = 0; slot + 1 < STAGES; slot++) {
        copy_tokens(slot);
        advance();
    }

    const uint g = SIMD_LANE / 4, c = SIMD_LANE % 4, half = SIMD_GROUP / 4;
    const uint row_0 = SIMD_GROUP % 4 * 16 + g, row_8 = row_0 + 8;
    uint slot = 0;
    for (uint tile = cluster; tile < p.all_tiles; tile += p.clusters) {
        float sums[SUBTILES][4];
        UNROLL for (uint t = 0; t < SUBTILES; t++) {
            UNROLL for (uint i = 0; i < 4; i++) sums[t][i] = 0;
        }
        // Bytes in front of the rows.
        uint at_0 = 0, at_8 = 0;
        if (!IS_ALIGNED) {
            uint row;
            find(p, tile, row_0, row);
            at_0 = row * p.row_bytes + first_stage * W_BYTES;
            find(p, tile, row_8, row);
            at_8 = row * p.row_bytes + first_stage * W_BYTES;
        }
        for (uint stage = 0; stage < own; stage++) {
            asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
            __syncthreads();
            const uint to = slot == 0 ? STAGES - 1 : slot - 1;
            copy_weights(to);
            copy_tokens(to);
            advance();
            const uchar* const local = DYNAMIC_LOCAL + slot * STAGE_LOCAL;
            const uchar* const w_0 = local + row_0 * WEIGHT_STEP + (IS_ALIGNED ? 0 : at_0 & 15u);
            const uchar* const w_8 = local + row_8 * WEIGHT_STEP + (IS_ALIGNED ? 0 : at_8 & 15u);
            at_0 += W_BYTES;
            at_8 += W_BYTES;
            const uchar* const tokens = local + ROWS * WEIGHT_STEP;
            const uint2* const codes = (const uint2*)tokens + g * 4 + c;
#if OF_HALVES
            UNROLL for (uint s = 0; s < 4; s++) {
                const uint step = half * 4 + s;
                uint a[4];
                a[0] = ((const uint*)w_0)[step * 8 + c];
                a[1] = ((const uint*)w_8)[step * 8 + c];
                a[2] = ((const uint*)w_0)[step * 8 + 4 + c];
                a[3] = ((const uint*)w_8)[step * 8 + 4 + c];
                UNROLL for (uint t = 0; t < SUBTILES; t++) {
                    multiply_add(sums[t], a, codes[(step * TOKENS + t * 8) * 4]);
                }
            }
#else
            const float* const scales = (const float*)(tokens + STAGE * TOKENS) + 2 * c;
            const float* const code_sums = scales + STAGE / SCALED * TOKENS;
            // Lane 4 g + c reads the scales of the c-th 32 values.
            float own_scales[2][32 / SPAN], own_minima[2][32 / SPAN];
            UNROLL for (uint r = 0; r < 2; r++) {
                UNROLL for (uint i = 0; i < 32 / SPAN; i++) {
                    const uint at = (half * 4 + c) * 32 + i * SPAN;
                    const uchar* const block = (r == 0 ? w_0 : w_8) + at / BLOCK_LENGTH * BLOCK_BYTES;
                    own_scales[r][i] = scale_of(block, at % BLOCK_LENGTH / SPAN);
#if HAS_MINIMUM
                    own_minima[r][i] = minimum_of(block, at % BLOCK_LENGTH / SPAN);
#endif
                }
            }
#if SCALED == 256
            float parts[SUBTILES][4];
            UNROLL for (uint t = 0; t < SUBTILES; t++) {
                UNROLL for (uint i = 0; i < 4; i++) parts[t][i] = 0;
            }
#endif
            UNROLL for (uint s = 0; s < 4; s++) {
                const uint at = (half * 4 + s) * 32, in_block = at % BLOCK_LENGTH / 4;
                const uchar* const block_0 = w_0 + at / BLOCK_LENGTH * BLOCK_BYTES;
                const uchar* const block_8 = w_8 + at / BLOCK_LENGTH * BLOCK_BYTES;
                uint a[4];
                a[0] = signed_codes(codes_at(block_0, in_block + c));
                a[1] = signed_codes(codes_at(block_8, in_block + c));
                a[2] = signed_codes(codes_at(block_0, in_block + 4 + c));
                a[3] = signed_codes(codes_at(block_8, in_block + 4 + c));
                float scale[2][32 / SPAN], minimum[2][32 / SPAN];
                UNROLL for (uint r = 0; r < 2; r++) {
                    UNROLL for (uint i = 0; i < 32 / SPAN; i++) {
                        scale[r][i] = __shfl_sync(~0u, own_scales[r][i], g * 4 + s);
#if HAS_MINIMUM
                        minimum[r][i] = __shfl_sync(~0u, own_minima[r][i], g * 4 + s);
#endif
                    }
                }
                UNROLL for (uint t = 0; t < SUBTILES; t++) {
                    const uint2 b = codes[(at / 32 * TOKENS + t * 8) * 4];
#if SCALED == 256
                    float (&into)[4] = parts[t];
                    const float factor[2] = {1, 1};
#else
                    float (&into)[4] = sums[t];
                    const float2 two = *(const float2*)(scales + at / 32 * TOKENS + t * 8);
                    const float factor[2] = {two.x, two.y};
#endif
                    UNROLL for (uint i = 0; i < 32 / SPAN; i++) {
                        float product[4];
#if SPAN == 32
                        multiply(product, a, b);
#else
                        multiply(product, a[2 * i], a[2 * i + 1], i == 0 ? b.x : b.y);
#endif
                        UNROLL for (uint j = 0; j < 4; j++) {
                            const float x = SCALED == 256 ? product[j] : product[j] * factor[j % 2];
                            into[j] = fma(scale[j / 2][i], x, into[j]);
                        }
#if HAS_MINIMUM
                        const uint span = (at + i * SPAN) / SPAN;
                        const float2 both = *(const float2*)(code_sums + span * TOKENS + t * 8);
                        const float sum[2] = {both.x, both.y};
                        UNROLL for (uint j = 0; j < 4; j++) {
                            const float x = SCALED == 256 ? sum[j % 2] : sum[j % 2] * factor[j % 2];
                            into[j] = fma(-minimum[j / 2][i], x, into[j]);
                        }
#endif
                    }
                }
            }
#if SCALED == 256
            UNROLL for (uint t = 0; t < SUBTILES; t++) {
                const float2 two = *(const float2*)(scales + t * 8);
                UNROLL for (uint i = 0; i < 4; i++) {
                    sums[t][i] = fma(i % 2 == 0 ? two.x : two.y, parts[t][i], sums[t][i]);
                }
            }
#endif
#endif
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }

        // The sums of the second half are added to the first's, and sent to the group that puts them together. Nobody
        // reads its memory of the tile before the last any more: it has sent its part of the last one since.
        if (own == 0) __syncthreads();
        if (half == 1) {
            UNROLL for (uint t = 0; t < SUBTILES; t++) {
                UNROLL for (uint i = 0; i < 4; i++) {
                    part[(i < 2 ? row_0 : row_8) * PART_STEP + t * 8 + 2 * c + i % 2] = sums[t][i];
                }
            }
        }
        __syncthreads();
        // All of the cluster have begun.
        if (tile == cluster) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        float* const all_parts = received + buffer * (ROWS * RECEIVED_STEP);
        if (half == 0) {
            UNROLL for (uint n = 0; n < 2; n++) {
                const uint row = n == 0 ? row_0 : row_8, owner = row % OUT_ROWS / OWN_ROWS;
                const uint line = rank * (ROWS / CLUSTER) + row / OUT_ROWS * OWN_ROWS + row % OWN_ROWS;
                UNROLL for (uint t = 0; t < SUBTILES; t++) {
                    const float* const other = part + row * PART_STEP + t * 8 + 2 * c;
                    const float2 both = make_float2(sums[t][2 * n] + other[0], sums[t][2 * n + 1] + other[1]);
                    put_in(all_parts + line * RECEIVED_STEP + t * 8 + 2 * c, owner, both, full + buffer);
                }
            }
        }
        if (LANE == 0) barrier_arrive(full + buffer, ROWS * TOKENS * sizeof(float));
        barrier_wait(full + buffer, parity);
        buffer ^= 1;
        if (buffer == 0) parity ^= 1;
        for (uint i = LANE; i < OWN_ROWS * TOKENS; i += GROUP) {
            const uint token = i / OWN_ROWS, own_row = i % OWN_ROWS;
            uint row;
            const uint matrix = find(p, tile, rank * OWN_ROWS + own_row, row), n = p.n[matrix];
            float value = 0, other = 0;
            UNROLL for (uint from_rank = 0; from_rank < CLUSTER; from_rank++) {
                const float* const line = all_parts + (from_rank * (ROWS / CLUSTER) + own_row) * RECEIVED_STEP + token;
                value += line[0];
#if IS_GATED
                other += line[OWN_ROWS * RECEIVED_STEP];
#endif
            }
            if (row < n && token < p.m) {
                const uint at = token * n + row;
#if HAS_BIAS
                value += LOAD(X, pick(all.bias, matrix), row);
#if IS_GATED
                other += LOAD(X, all.bias[1], row);
#endif
#endif
#if IS_GATED
                const float factor = ROUND(X, other), gate = ROUND(X, value);
                value = ROUND(X, gate * (1 / (1 + exp(-gate)))) * factor;
#endif
#if HAS_RESIDUAL
                value = LOAD(X, residual, at) + ROUND(X, value);
#endif
                STORE(X, pick(all.y, matrix), at, value);
            }
        }
    }
KERNEL_END
