// The gradients of norms of rows without gaps: groups go through p.rows_each rows, a team for each, and add up what
// becomes the gradients of weight and bias, `of_weight` and `of_bias` for each group.
//
// X, CT: dtypes of the norm's operand and of its gradient; X_WORDS, CT_WORDS: words of their vectors. ACCUMULATOR: type
// that is computed in. EPS: added to the variance, or the mean square. IS_CENTRED: is the mean subtracted? HAS_WEIGHT: is there a
// weight `w`? HAS_OTHER: is there another gradient, `other`? HAS_COPY: is what is written wanted as C, too, in `copy`?

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
#if HAS_WEIGHT
    ACCUMULATOR weight_sums[HELD], bias_sums[HELD];
    UNROLL_ROW
    for (uint k = 0; k < HELD; k++) weight_sums[k] = bias_sums[k] = 0;
#endif
    const uint first = GROUP_ID(0) * p.rows_each;
    const uint end = min(first + p.rows_each, p.count);
    for (uint base = first; base < end; base += p.lines) {
        const uint row = base + LANE / p.team;
        const bool exists = row < end;
        const uint start = (exists ? row : first) * p.len;
        ACCUMULATOR v[HELD], g[HELD];
        GET_ROW(X, X_WORDS, v, x, start)
        GET_ROW(CT, CT_WORDS, g, cts, start)
#if IS_CENTRED
        ACCUMULATOR sum = 0;
        FOR_ROW(k, j) sum += v[k];
        TEAM_REDUCE(shared, sum, PLUS);
        const ACCUMULATOR mean = sum / p.len;
        FOR_ROW(k, j) v[k] -= mean;
#endif
        ACCUMULATOR squares = 0;
        FOR_ROW(k, j) squares += v[k] * v[k];
        TEAM_REDUCE(shared, squares, PLUS);
        const ACCUMULATOR inverse = 1 / sqrt(squares / p.len + EPS);
        FOR_ROW(k, j) v[k] *= inverse;
#if HAS_WEIGHT
        if (exists) {
            FOR_ROW(k, j) {
                weight_sums[k] += g[k] * v[k];
                bias_sums[k] += g[k];
            }
        }
        FOR_VECTORS(k) {
            ACCUMULATOR weight[VECTOR];
            GET_VECTOR(X, X_WORDS, weight, w, FIRST(k))
            UNROLL
            for (uint e = 0; e < VECTOR; e++) g[k + e] *= weight[e];
        }
#endif
        ACCUMULATOR along = 0;
        FOR_ROW(k, j) along += g[k] * v[k];
        TEAM_REDUCE(shared, along, PLUS);
        along /= p.len;
        ACCUMULATOR level = 0;
#if IS_CENTRED
        FOR_ROW(k, j) level += g[k];
        TEAM_REDUCE(shared, level, PLUS);
        level /= p.len;
#endif
        if (exists) {
            FOR_VECTORS(k) {
                COMPUTE(X) values[VECTOR];
                UNROLL
                for (uint e = 0; e < VECTOR; e++) values[e] = (g[k + e] - level - v[k + e] * along) * inverse;
#if HAS_OTHER
                ACCUMULATOR others[VECTOR];
                GET_VECTOR(X, X_WORDS, others, other, start + FIRST(k))
                UNROLL
                for (uint e = 0; e < VECTOR; e++) values[e] = ROUNDED(values[e]) + others[e];
#endif
                PUT_VECTOR(X, X_WORDS, y, start + FIRST(k), values)
#if HAS_COPY
                UNROLL
                for (uint e = 0; e < VECTOR; e++) values[e] = ROUNDED(values[e]);
                PUT_VECTOR(C, C_WORDS, copy, start + FIRST(k), values)
#endif
            }
        }
    }
#if HAS_WEIGHT
    // The sums of the group's teams, one after the other.
    UNROLL_ROW
    for (uint k = 0; k < HELD; k++) {
        const uint j = FIRST(k / VECTOR * VECTOR) + k % VECTOR;
        for (uint s = 0; s < 1 + IS_CENTRED; s++) {
            shared[LANE] = s == 0 ? weight_sums[k] : bias_sums[k];
            BARRIER;
            if (LANE < p.team && j < p.len) {
                ACCUMULATOR sum = shared[LANE];
                for (uint team = 1; team < p.lines; team++) sum += shared[LANE + team * p.team];
                const uint at = GROUP_ID(0) * p.len + j;
#if IS_CENTRED
                if (s == 1) STORE(SUMS, of_bias, at, sum);
                else
#endif
                STORE(SUMS, of_weight, at, sum);
            }
            BARRIER;
        }
    }
#endif
KERNEL_END
