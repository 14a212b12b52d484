// The gradients of norms of rows without gaps, as ../norm_backward.c has them, of rows whose elements are computed with in single
// precision: a team of TEAM lanes, whole warps, holds a row. All of a row that is in memory is on its way before any of it is
// looked at. What becomes the gradients of weight and bias is added up in local memory, so that registers are left for
// rows; of each group it goes to `of_weight` and `of_bias`, to be added up by norm_sums.c.
//
// X, CT, C: dtypes of the norm's operand, of its gradient and of the copy; X_WORDS, CT_WORDS, C_WORDS: words of VECTOR of them.
// HELD: elements of a lane. IS_WHOLE: are the team's lanes' elements all there? EPS: added to the variance, or the mean square.
// IS_CENTRED: is the mean subtracted? HAS_WEIGHT: is there a weight `w`? HAS_OTHER: is there another gradient, `other`?
// HAS_COPY: is what is written wanted as C, too, in `copy`?

#define VECTORS (HELD / VECTOR)
#define LINES (GROUP / TEAM)
#define LOAD_WORDS(n) PASTE(PASTE(LOAD_, n), _WORDS)
#define STORE_WORDS(n) PASTE(PASTE(STORE_, n), _WORDS)
#define FOR_VECTORS(v) UNROLL for (uint v = 0; v < VECTORS; v++)
#define FOR_VECTOR(e) UNROLL for (uint e = 0; e < VECTOR; e++)
// Vector `v` of a lane is the one from this element on, if it is there at all.
#define FIRST(v) (((v) * TEAM + member) * VECTOR)
#define IS_THERE(v) (IS_WHOLE || FIRST(v) < p.len)
#define NEAREST(v) (IS_WHOLE ? FIRST(v) : min(FIRST(v), p.len - VECTOR))

// The sums of a team's values, one or two at a time. `line` is the team's number.
FUNCTION float2 team_sums(float2 value, float2* shared, uint line) {
    UNROLL for (uint mask = 16; mask > 0; mask /= 2) {
        const float2 other = simd_xor(value, mask);
        value.x += other.x;
        value.y += other.y;
    }
    if (TEAM > 32) {
        const uint first = line * (TEAM / 32);
        if (SIMD_LANE == 0) shared[SIMD_GROUP] = value;
        asm volatile("bar.sync %0, %1;" :: "r"(1 + line), "r"(TEAM) : "memory");
        value = shared[first];
        UNROLL for (uint k = 1; k < TEAM / 32; k++) {
            value.x += shared[first + k].x;
            value.y += shared[first + k].y;
        }
        asm volatile("bar.sync %0, %1;" :: "r"(1 + line), "r"(TEAM) : "memory");
    }
    return value;
}

FUNCTION float team_sum(float value, float2* shared, uint line) {
    return team_sums(make_float2(value, 0), shared, line).x;
}

KERNEL_BEGIN
    LOCAL_ARRAY(float2, shared, GROUP / 32);
#if HAS_WEIGHT
    // Four neighbours of a lane for each of these, which are its own.
    LOCAL_ARRAY(float4, sums, (1 + IS_CENTRED) * (HELD / 4) * GROUP);
    UNROLL for (uint k = 0; k < (1 + IS_CENTRED) * (HELD / 4); k++) {
        sums[k * GROUP + LANE] = make_float4(0, 0, 0, 0);
    }
#endif
    const uint line = LANE / TEAM, member = LANE % TEAM;
    const uint first = GROUP_ID(0) * p.rows_each;
    const uint end = min(first + p.rows_each, p.count);
    for (uint base = first; base < end; base += LINES) {
        const uint row = base + line;
        const bool exists = row < end;
        const uint start = (exists ? row : first) * p.len;
        uint x_words[VECTORS * X_WORDS], ct_words[VECTORS * CT_WORDS];
        FOR_VECTORS(v) LOAD_WORDS(X_WORDS)(x_words + v * X_WORDS, x, (start + NEAREST(v)) / VECTOR)
        FOR_VECTORS(v) LOAD_WORDS(CT_WORDS)(ct_words + v * CT_WORDS, cts, (start + NEAREST(v)) / VECTOR)
#if HAS_OTHER
        uint other_words[VECTORS * X_WORDS];
        FOR_VECTORS(v) LOAD_WORDS(X_WORDS)(other_words + v * X_WORDS, other, (start + NEAREST(v)) / VECTOR)
#endif
        float x_row[HELD], g[HELD];
        FOR_VECTORS(v) FOR_VECTOR(e) {
            x_row[v * VECTOR + e] = IS_THERE(v) ? PART(X, x_words + v * X_WORDS, e) : 0;
        }
#if IS_CENTRED
        float sum = 0;
        UNROLL for (uint k = 0; k < HELD; k++) sum += x_row[k];
        const float mean = team_sum(sum, shared, line) / p.len;
        FOR_VECTORS(v) FOR_VECTOR(e) x_row[v * VECTOR + e] -= IS_THERE(v) ? mean : 0;
#endif
        float squares = 0;
        UNROLL for (uint k = 0; k < HELD; k++) squares += x_row[k] * x_row[k];
        const float inverse = 1 / sqrt(team_sum(squares, shared, line) / p.len + EPS);
        UNROLL for (uint k = 0; k < HELD; k++) x_row[k] *= inverse;
        FOR_VECTORS(v) FOR_VECTOR(e) {
            g[v * VECTOR + e] = IS_THERE(v) ? PART(CT, ct_words + v * CT_WORDS, e) : 0;
        }
#if HAS_WEIGHT
        if (exists) {
            UNROLL for (uint k = 0; k < HELD; k += 4) {
                float4* of_weights = sums + k / 4 * GROUP + LANE;
                float4 added = *of_weights;
                added.x += g[k] * x_row[k];
                added.y += g[k + 1] * x_row[k + 1];
                added.z += g[k + 2] * x_row[k + 2];
                added.w += g[k + 3] * x_row[k + 3];
                *of_weights = added;
#if IS_CENTRED
                float4* of_biases = of_weights + HELD / 4 * GROUP;
                added = *of_biases;
                added.x += g[k];
                added.y += g[k + 1];
                added.z += g[k + 2];
                added.w += g[k + 3];
                *of_biases = added;
#endif
            }
        }
        FOR_VECTORS(v) {
            uint words[4];
            LOAD_WORDS(X_WORDS)(words, w, NEAREST(v) / VECTOR)
            FOR_VECTOR(e) g[v * VECTOR + e] *= PART(X, words, e);
        }
#endif
        float2 of_row = make_float2(0, 0);
        UNROLL for (uint k = 0; k < HELD; k++) {
            of_row.x += g[k] * x_row[k];
            of_row.y += g[k];
        }
        of_row = team_sums(of_row, shared, line);
        const float along = of_row.x / p.len, level = IS_CENTRED ? of_row.y / p.len : 0;
        FOR_VECTORS(v) {
            if (exists && IS_THERE(v)) {
                float values[VECTOR];
                FOR_VECTOR(e) {
                    const uint k = v * VECTOR + e;
                    values[e] = (g[k] - level - x_row[k] * along) * inverse;
#if HAS_OTHER
                    values[e] = ROUNDED(values[e]) + PART(X, other_words + v * X_WORDS, e);
#endif
                }
                STORE_WORDS(X_WORDS)(X, y, (start + FIRST(v)) / VECTOR, values)
#if HAS_COPY
                FOR_VECTOR(e) values[e] = ROUNDED(values[e]);
                STORE_WORDS(C_WORDS)(C, copy, (start + FIRST(v)) / VECTOR, values)
#endif
            }
        }
    }
#if HAS_WEIGHT
    BARRIER;
    if (LANE < TEAM) {
        FOR_VECTORS(v) {
            UNROLL for (uint e = 0; e < VECTOR; e += 4) {
                UNROLL for (uint s = 0; s < 1 + IS_CENTRED; s++) {
                    const uint k = s * (HELD / 4) + (v * VECTOR + e) / 4;
                    float4 sum = sums[k * GROUP + LANE];
                    UNROLL for (uint other = 1; other < LINES; other++) {
                        const float4 added = sums[k * GROUP + LANE + other * TEAM];
                        sum.x += added.x;
                        sum.y += added.y;
                        sum.z += added.z;
                        sum.w += added.w;
                    }
                    if (IS_THERE(v)) {
                        float* to = of_weight;
#if IS_CENTRED
                        if (s == 1) to = of_bias;
#endif
                        *(float4*)(to + GROUP_ID(0) * p.len + FIRST(v) + e) = sum;
                    }
                }
            }
        }
    }
#endif
KERNEL_END
