// Attention in single precision for many rows of queries on Hopper's tensor cores (Shah et al. 2024,
// arXiv 2407.08608), all of it as sums of TERMS bf16 numbers, see gemm.cu: a group goes with 128 rows
// of one head's queries through the keys, KEYS at a time from the last that they see. One warpgroup
// brings rows to local memory; two others have 64 queries each, and one makes products while the other
// makes weights of its scores. Rows that become no numbers are computed again as by definition.
//
// Tensor cores cut off what they add. So they add the products of first terms, see terms.h, which leave next to nothing to
// cut off, apart from the much smaller products of other terms. All else is added in single precision. Sums of FOLD
// tiles of keys are added to those of earlier keys, which are in y meanwhile: one long chain of additions would lose
// digits.
//
// C: bf16; keys and values are what terms.cu makes of them. D: width of keys and values, 64 or 128.
// MMA: C in PTX. HAS_PAST: as the operation says. KEYS; STAGES: tiles of keys and of values in local
// memory.

#define Q_TERM_BYTES (128 * D * 2)
#define KV_TERM_BYTES (KEYS * D * 2)
#define KV_BYTES (TERMS * KV_TERM_BYTES)
#define FOLD 64

// Barriers of local memory: a tile is there; nobody reads it any more.
#define FULL_K(stage) (barriers + (stage))
#define FULL_V(stage) (barriers + STAGES + (stage))
#define FREE_K(stage) (barriers + 2 * STAGES + (stage))
#define FREE_V(stage) (barriers + 3 * STAGES + (stage))

// Two numbers as bf16, the first in the low half; of them is left what bf16 has not.
FUNCTION uint packed_term(float& first, float& second, uint term) {
    const uint pair = term == 0 ? first_terms(first, second) : packed(first, second);
    first -= F32_OF_BITS(pair << 16);
    second -= F32_OF_BITS(pair & 0xffff0000u);
    return pair;
}

// The terms n of one factor and m of the other whose products matter, the smallest first, but for those of first terms.
#define EACH_SMALL_PRODUCT \
    UNROLL for (uint of_both = TERMS; of_both-- > 1;) \
        UNROLL for (uint n = 0, m = of_both; n <= of_both; n++, m--)

// Terms of step j of 16 along a row of queries and of keys, and of step j of 16 keys' values.
#define Q_STEP(n, j) (q_descriptor + ((n) * Q_TERM_BYTES + (j) / 4 * 16384 + (j) % 4 * 32) / 16)
#define K_STEP(m, j) (k_descriptor + ((m) * KV_TERM_BYTES + (j) / 4 * (KEYS * 128) + (j) % 4 * 32) / 16)
#define V_STEP(m, j) (v_descriptor + ((m) * KV_TERM_BYTES + (j) * 2048) / 16)

// What an item is, of all heads' tiles of rows: the longest first; of so many heads at a time that
// their keys stay in the cache.
#define ROWS_OF_ITEM \
    const uint section = item / (tiles * p.together) * p.together; \
    const uint place = item - section * tiles, width = min(p.together, p.all_heads - section); \
    const uint first_row = (tiles - 1 - place / width) * 128, head = section + place % width; \
    const uint batch = head / q_heads, q_head = head % q_heads, kv_head = q_head / p.each; \
    const uint to = p.is_causal ? min(before + min(first_row + 128, p.t), p.s) : p.s; \
    const uint count = (to + KEYS - 1) / KEYS

// A group's items, from the front and from the end of what all groups take at a time by turns, so
// that they have about as much to do.
#define EACH_ITEM \
    uint item = GROUP_ID(0), step = 2 * (gridDim.x - GROUP_ID(0)) - 1; item < p.items; \
    item += step, step = 2 * gridDim.x - step

// Adds what is in y of earlier keys.
#define ADD_EARLIER \
    UNROLL for (uint n = 0; n < 2; n++) { \
        const float older = exp_2(earlier_peak[n] * factor - BASE_OF(peak[n]) * factor); \
        total[n] = fma(earlier_total[n], older, total[n]); \
        if (row + n * 8 < p.t) { \
            const float* line = y + (y_start + (row + n * 8) * p.y_strides[1] + column); \
            UNROLL for (uint j = 0; j < D / 8; j++) { \
                sum[4 * j + 2 * n] = fma(line[8 * j], older, sum[4 * j + 2 * n]); \
                sum[4 * j + 2 * n + 1] = fma(line[8 * j + 1], older, sum[4 * j + 2 * n + 1]); \
            } \
        } \
    }

#define NEXT_STAGE \
    if (++stage == STAGES) { \
        stage = 0; \
        phase ^= 1; \
    }

KERNEL_BEGIN
    LOCAL_ARRAY(ulong, barriers, 4 * STAGES);
    const uint local = (local_address(DYNAMIC_LOCAL) + 1023) / 1024 * 1024;
    const uint k_tiles = local + TERMS * Q_TERM_BYTES, v_tiles = k_tiles + STAGES * KV_BYTES;
    const uint tiles = (p.t + 127) / 128, q_heads = p.heads * p.each;
    uint before = 0;
    READ_PAST;

    if (LANE == 0) {
        // Every lane that brings something arrives, and a lane of every warp that reads it.
        for (uint i = 0; i < 4 * STAGES; i++) barrier_init(barriers + i, i < 2 * STAGES ? 128 : 8);
        barrier_fence();
    }
    BARRIER;
    LAUNCH_NEXT;

    // All together have no more registers than the launch gave them, 168 to each lane: where
    // they ask for more, they wait for ever.
    uint stage = 0, phase = 0;
    if (SIMD_GROUP < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (EACH_ITEM) {
            ROWS_OF_ITEM;
            uint q_start = q_head * p.q_strides[0];
            uint k_start = kv_head * p.k_strides[0], v_start = kv_head * p.v_strides[0];
            ADD_OFFSET(q_start, batch, LEAD_RANK, p.lead, p.q_lead);
            ADD_OFFSET(k_start, batch, LEAD_RANK, p.lead, p.k_lead);
            ADD_OFFSET(v_start, batch, LEAD_RANK, p.lead, p.v_lead);
            for (uint i = 0; i < count; i++) {
                const uint first = (count - 1 - i) * KEYS;
                barrier_wait(FREE_K(stage), phase ^ 1);
                bring<KEYS, TERMS>(k_tiles + stage * KV_BYTES, k + k_start, p.k_strides[1], first,
                                   to, p.k_term);
                arrive_after_copies(FULL_K(stage));
                barrier_wait(FREE_V(stage), phase ^ 1);
                bring<KEYS, TERMS>(v_tiles + stage * KV_BYTES, v + v_start, p.v_strides[1], first,
                                   to, p.v_term);
                arrive_after_copies(FULL_V(stage));
                NEXT_STAGE;
            }
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const uint member = SIMD_GROUP / 4 - 1, thread = LANE % 128;
        const uint q_tile = local + member * (64 * 128);
        for (EACH_ITEM) {
            ROWS_OF_ITEM;
            const uint own_row = first_row + member * 64;
            uint q_start = q_head * p.q_strides[0];
            ADD_OFFSET(q_start, batch, LEAD_RANK, p.lead, p.q_lead);
            float given[D / 16][8];
            UNROLL for (uint i = 0; i < D / 16; i++) {
                const uint at = i * 128 + thread, line = at / (D / 8), piece = at % (D / 8);
                const float* from = q + q_start + (own_row + line) * p.q_strides[1] + piece * 8;
                UNROLL for (uint j = 0; j < 8; j++) {
                    given[i][j] = own_row + line < p.t ? from[j] : 0;
                }
            }
            // The last item's rows are read.
            asm volatile("bar.sync %0, 128;" :: "r"(1 + member) : "memory");
            UNROLL for (uint i = 0; i < D / 16; i++) {
                const uint at = i * 128 + thread, line = at / (D / 8), piece = at % (D / 8);
                UNROLL for (uint term = 0; term < TERMS; term++) {
                    uint x[4];
                    UNROLL for (uint j = 0; j < 4; j++) {
                        x[j] = packed_term(given[i][2 * j], given[i][2 * j + 1], term);
                    }
                    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                                 :: "r"(q_tile + term * Q_TERM_BYTES + piece / 8 * 16384 + line * 128
                                        + (piece % 8 ^ line % 8) * 16),
                                    "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
                }
            }
            asm volatile("fence.proxy.async.shared::cta;\nbar.sync %0, 128;" :: "r"(1 + member)
                         : "memory");

            const ulong q_descriptor = descriptor(q_tile, 0);
            const float factor = SCALE * LOG2_E;
            // A lane has two rows, 8 apart, and of 8 columns the two from here on.
            const uint row = own_row + thread / 32 * 16 + SIMD_LANE / 4, column = SIMD_LANE % 4 * 2;
            float score[KEYS / 2], sum[D / 2], peak[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
            UNROLL for (uint i = 0; i < D / 2; i++) sum[i] = 0;
            uint y_start = q_head * p.y_strides[0];
            ADD_OFFSET(y_start, batch, LEAD_RANK, p.lead, p.y_lead);
            // Those of keys whose sums are in y.
            float earlier_peak[2], earlier_total[2];

            for (uint i = 0; i < count; i++) {
                barrier_wait(FULL_K(stage), phase);
                COPIES_TO_PRODUCTS;
                const ulong k_descriptor = descriptor(k_tiles + stage * KV_BYTES, 0);
                // Of the first and of the second half of a row: shorter sums have less cut off.
                float halves[2][KEYS / 2];
                renew(score, KEYS / 2);
                renew(halves[0], KEYS / 2);
                renew(halves[1], KEYS / 2);
                BEGIN_PRODUCTS;
                EACH_SMALL_PRODUCT {
                    UNROLL for (uint j = 0; j < D / 16; j++) {
                        multiply_tiles<KEYS>(score, Q_STEP(n, j), K_STEP(m, j), of_both + 1 < TERMS || n + j > 0);
                    }
                }
                UNROLL for (uint j = 0; j < D / 16; j++) {
                    multiply_tiles<KEYS>(halves[j / (D / 32)], Q_STEP(0, j), K_STEP(0, j), j % (D / 32) > 0);
                }
                END_PRODUCTS;
                WAIT_PRODUCTS(0);
                renew(score, KEYS / 2);
                renew(halves[0], KEYS / 2);
                renew(halves[1], KEYS / 2);
                UNROLL for (uint j = 0; j < KEYS / 2; j++) score[j] += halves[0][j] + halves[1][j];
                if (SIMD_LANE == 0) arrive(FREE_K(stage));

                const uint first = (count - 1 - i) * KEYS;
                if (first + KEYS > (p.is_causal ? min(before + own_row + 1, p.s) : p.s)) {
                    UNROLL for (uint j = 0; j < KEYS / 2; j++) {
                        const uint key = first + j / 4 * 8 + column + j % 2;
                        const uint line = row + j / 2 % 2 * 8;
                        if (key >= (p.is_causal ? min(before + line + 1, p.s) : p.s)) {
                            score[j] = -INFINITY;
                        }
                    }
                }
                float rescale[2];
                UNROLL for (uint n = 0; n < 2; n++) {
                    float largest = peak[n];
                    UNROLL for (uint j = 2 * n; j < KEYS / 2; j += 4) {
                        largest = max(largest, max(score[j], score[j + 1]));
                    }
                    largest = max(largest, simd_xor(largest, 1));
                    largest = max(largest, simd_xor(largest, 2));
                    const float base = BASE_OF(largest) * factor;
                    // Exactly 1 for a peak that stays: no sum grows or shrinks with each tile.
                    rescale[n] = exp_2(peak[n] * factor - base);
                    peak[n] = largest;
                    float added = 0;
                    UNROLL for (uint j = 2 * n; j < KEYS / 2; j += 4) {
                        score[j] = exp_2(fma(score[j], factor, -base));
                        score[j + 1] = exp_2(fma(score[j + 1], factor, -base));
                        added += score[j] + score[j + 1];
                    }
                    total[n] = fma(total[n], rescale[n], added);
                }
                uint weight[TERMS][KEYS / 4];
#define MAKE_WEIGHTS(n) \
    UNROLL for (uint j = 0; j < KEYS / 4; j++) { \
        weight[n][j] = packed_term(score[2 * j], score[2 * j + 1], n); \
    }
                MAKE_WEIGHTS(0);

                barrier_wait(FULL_V(stage), phase);
                COPIES_TO_PRODUCTS;
                const ulong v_descriptor = descriptor(v_tiles + stage * KV_BYTES, KEYS * 128);
                float of_first[D / 2];
                renew(of_first, D / 2);
                BEGIN_PRODUCTS;
                UNROLL for (uint j = 0; j < KEYS / 16; j++) {
                    multiply_columns<D>(of_first, weight[0] + 4 * j, V_STEP(0, j), j > 0);
                }
                END_PRODUCTS;
                UNROLL for (uint n = 1; n < TERMS; n++) MAKE_WEIGHTS(n);
#define ADD_OF_FIRST \
    WAIT_PRODUCTS(0); \
    renew(of_first, D / 2); \
    UNROLL for (uint j = 0; j < D / 2; j++) { \
        sum[j] = fma(sum[j], rescale[j / 2 % 2], of_first[j]); \
    }
                // Wide sums leave no registers for both at a time.
                float others[D / 2];
                float* const of_others = D > 64 ? of_first : others;
                if (D > 64) {
                    ADD_OF_FIRST;
                }
                renew(of_others, D / 2);
                BEGIN_PRODUCTS;
                EACH_SMALL_PRODUCT {
                    UNROLL for (uint j = 0; j < KEYS / 16; j++) {
                        multiply_columns<D>(of_others, weight[n] + 4 * j, V_STEP(m, j),
                                            of_both + 1 < TERMS || n + j > 0);
                    }
                }
                END_PRODUCTS;
                if (D == 64) {
                    ADD_OF_FIRST;
                }
                WAIT_PRODUCTS(0);
                renew(of_others, D / 2);
                UNROLL for (uint j = 0; j < D / 2; j++) sum[j] += of_others[j];
                if (SIMD_LANE == 0) arrive(FREE_V(stage));
                NEXT_STAGE;

                if ((i + 1) % FOLD == 0) {
                    if (i + 1 > FOLD) ADD_EARLIER;
                    UNROLL for (uint n = 0; n < 2; n++) {
                        earlier_peak[n] = peak[n];
                        earlier_total[n] = total[n];
                        total[n] = 0;
                        float* const line = y + (y_start + (row + n * 8) * p.y_strides[1] + column);
                        UNROLL for (uint j = 0; j < D / 8; j++) {
                            if (row + n * 8 < p.t) {
                                line[8 * j] = sum[4 * j + 2 * n];
                                line[8 * j + 1] = sum[4 * j + 2 * n + 1];
                            }
                            sum[4 * j + 2 * n] = sum[4 * j + 2 * n + 1] = 0;
                        }
                    }
                }
            }
            if (count >= FOLD) ADD_EARLIER;

            UNROLL for (uint n = 0; n < 2; n++) {
                total[n] += simd_xor(total[n], 1);
                total[n] += simd_xor(total[n], 2);
                uint is_bad = fabs(total[n]) < INFINITY ? 0 : 1;
                UNROLL for (uint j = 2 * n; j < D / 2; j += 4) {
                    if (!(fabs(sum[j]) < INFINITY && fabs(sum[j + 1]) < INFINITY)) is_bad = 1;
                }
                is_bad |= simd_xor(is_bad, 1);
                is_bad |= simd_xor(is_bad, 2);
                if (is_bad && row + n * 8 < p.t) {
                    const uint line = row + n * 8;
                    uint all_k = kv_head * p.given_k_strides[0], all_v = kv_head * p.given_v_strides[0];
                    ADD_OFFSET(all_k, batch, LEAD_RANK, p.lead, p.given_k_lead);
                    ADD_OFFSET(all_v, batch, LEAD_RANK, p.lead, p.given_v_lead);
                    float largest = -INFINITY;
                    total[n] = 0;
                    UNROLL for (uint j = 2 * n; j < D / 2; j += 4) sum[j] = sum[j + 1] = 0;
                    for (uint key = 0; key < (p.is_causal ? min(before + line + 1, p.s) : p.s); key++) {
                        float product = 0;
                        for (uint d = 0; d < D; d++) {
                            product = fma(q[q_start + line * p.q_strides[1] + d],
                                          given_k[all_k + key * p.given_k_strides[1] + d], product);
                        }
                        const float scaled = product * factor, base = BASE_OF(max(largest, scaled));
                        const float older = exp_2(largest - base), newer = exp_2(scaled - base);
                        largest = max(largest, scaled);
                        total[n] = fma(total[n], older, newer);
                        const float* from = given_v + (all_v + key * p.given_v_strides[1] + column);
                        UNROLL for (uint j = 0; j < D / 8; j++) {
                            sum[4 * j + 2 * n] = fma(sum[4 * j + 2 * n], older, newer * from[8 * j]);
                            sum[4 * j + 2 * n + 1] =
                                fma(sum[4 * j + 2 * n + 1], older, newer * from[8 * j + 1]);
                        }
                    }
                    peak[n] = largest / factor;
                }
                const float share = 1 / total[n];
                if (row + n * 8 >= p.t) continue;
#if HAS_TOTALS
                if (SIMD_LANE % 4 == 0) {
                    // Weights are relative to a base that was rounded.
                    const float lost = fma(peak[n], factor, -(peak[n] * factor));
                    totals[head * p.t + row + n * 8] = LOG_OF_TOTAL(fma(-lost, LN_2, peak[n] * SCALE), total[n]);
                }
#endif
                float* const line = y + (y_start + (row + n * 8) * p.y_strides[1] + column);
                UNROLL for (uint j = 0; j < D / 8; j++) {
                    const float a = sum[4 * j + 2 * n] * share, b = sum[4 * j + 2 * n + 1] * share;
                    line[8 * j] = a;
                    line[8 * j + 1] = b;
                }
            }
        }
    }
KERNEL_END
