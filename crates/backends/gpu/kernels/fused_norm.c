// Rows without gaps, with what is added to them, as `y`, and with mean 0 and variance 1, or divided by the root of their mean
// square, as `normed`: a team for each.
//
// X, O, N: dtypes of the rows, of what is added and of the norm; X_WORDS, O_WORDS, N_WORDS: of their vectors. ACCUMULATOR:
// type that is computed in. IS_CENTRED: is the mean subtracted? EPS: added to the variance, or to the mean square. ROUNDED: a
// number as it is when it was stored as X. HAS_OTHER: is there something that is added? HAS_WEIGHT, HAS_BIAS: are there a
// weight `w` and a bias `b`?

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint row = LINE;
    const bool exists = row < p.count;
    const uint start = (exists ? row : 0) * p.len;
    ACCUMULATOR v[HELD];
    GET_ROW(X, X_WORDS, v, x, start)
#if HAS_OTHER
    FOR_VECTORS(k) {
        ACCUMULATOR others[VECTOR];
        GET_VECTOR(O, O_WORDS, others, other, start + FIRST(k))
        UNROLL
        for (uint e = 0; e < VECTOR; e++) v[k + e] = ROUNDED(v[k + e] + ROUNDED(others[e]));
        if (exists) { PUT_VECTOR(X, X_WORDS, y, start + FIRST(k), v + k) }
    }
#endif
#if IS_CENTRED
    ACCUMULATOR sum = 0;
    FOR_ROW(k, j) sum += v[k];
    TEAM_REDUCE(shared, sum, PLUS);
    const ACCUMULATOR mean = sum / p.len;
    FOR_ROW(k, j) v[k] -= mean;
#endif
    ACCUMULATOR squares = 0;
#if IS_CENTRED
    // Of shares, so that their sum overflows only where the variance does.
    const ACCUMULATOR share = (ACCUMULATOR)1 / p.len;
    FOR_ROW(k, j) squares += v[k] * share * v[k];
    TEAM_REDUCE(shared, squares, PLUS);
#else
    FOR_ROW(k, j) squares += v[k] * v[k];
    TEAM_REDUCE(shared, squares, PLUS);
    squares /= p.len;
#endif
    const ACCUMULATOR scale = 1 / sqrt(squares + EPS);
    if (exists) {
        FOR_VECTORS(k) {
            COMPUTE(X) values[VECTOR];
            UNROLL
            for (uint e = 0; e < VECTOR; e++) values[e] = v[k + e] * scale;
#if HAS_WEIGHT || HAS_BIAS
            ACCUMULATOR weights[VECTOR];
#endif
#if HAS_WEIGHT
            GET_VECTOR(X, X_WORDS, weights, w, FIRST(k))
            UNROLL
            for (uint e = 0; e < VECTOR; e++) values[e] *= weights[e];
#endif
#if HAS_BIAS
            GET_VECTOR(X, X_WORDS, weights, b, FIRST(k))
            UNROLL
            for (uint e = 0; e < VECTOR; e++) values[e] += weights[e];
#endif
            UNROLL
            for (uint e = 0; e < VECTOR; e++) values[e] = ROUNDED(values[e]);
            PUT_VECTOR(N, N_WORDS, normed, start + FIRST(k), values)
        }
    }
KERNEL_END
