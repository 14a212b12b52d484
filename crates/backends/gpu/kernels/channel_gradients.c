// The gradients of channels that were normalised by their own statistics; see channels.h.
//
// IS_SUMS: are they the sums over segments of lines of the gradients, and of these times the distance from the mean? Else
// the gradient of x, by what channel_totals.c made of those. X, W: dtypes of images and weights. S: that of statistics. EPS: added to the variance. ACCUMULATOR: type
// that is computed in. HAS_OTHER: is another gradient, `other`, added? HAS_RELU: is the gradient nothing where `positive`
// is? HAS_BIAS: is that what the norm became, with a bias `b`, and has to be found again? HAS_COPY: is the gradient after both of these in `copy`, which the sums write? ROUNDED(x): x as a number of X.

// Is the gradient made of its parts?
#define IS_MADE (IS_SUMS || !HAS_COPY)
// Is what became positive found again?
#define FINDS (IS_MADE && HAS_RELU && HAS_BIAS)

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint begin = GROUP_ID(1) * p.segment, end = min(begin + p.segment, p.lines);
    ACCUMULATOR centre[OWN];
#if !IS_SUMS || FINDS
    ACCUMULATOR scale[OWN];
#endif
#if FINDS
    ACCUMULATOR bias[OWN];
#endif
#if IS_SUMS
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP * OWN);
    ACCUMULATOR sums[OWN], along[OWN];
    UNROLL
    for (uint e = 0; e < OWN; e++) sums[e] = along[e] = 0;
#else
    ACCUMULATOR level[OWN], slope[OWN];
#endif
    if (COLUMN < p.vectors) {
        UNROLL
        for (uint e = 0; e < OWN; e++) {
            const uint channel = COLUMN * OWN + e;
            centre[e] = LOAD(S, mean, channel);
#if !IS_SUMS || FINDS
            const ACCUMULATOR variance = LOAD(S, var, channel);
            scale[e] = LOAD(W, w, channel) / sqrt(variance + EPS);
#endif
#if FINDS
            bias[e] = LOAD(W, b, channel);
#endif
#if !IS_SUMS
            level[e] = LOAD(S, shares, channel);
            slope[e] = LOAD(S, shares, CHANNELS + channel);
#endif
        }
        for (uint line = begin + LANE / COLUMNS; line < end; line += STEP * EACH) {
            KEPT words[EACH * WORDS], cts[EACH * WORDS];
            FOR_LINES(k, line, end, at) GET_WORDS(X, words + k * WORDS, x, at)
#if IS_MADE
            FOR_LINES(k, line, end, at) GET_WORDS(X, cts + k * WORDS, ct, at)
#if HAS_OTHER
            KEPT others[EACH * WORDS];
            FOR_LINES(k, line, end, at) GET_WORDS(X, others + k * WORDS, other, at)
#endif
#if HAS_RELU && !FINDS
            KEPT positives[EACH * WORDS];
            FOR_LINES(k, line, end, at) GET_WORDS(X, positives + k * WORDS, positive, at)
#endif
#else
            FOR_LINES(k, line, end, at) GET_WORDS(X, cts + k * WORDS, copy, at)
#endif
            FOR_LINES(k, line, end, at) {
                ACCUMULATOR values[VECTOR];
                UNROLL
                for (uint e = 0; e < VECTOR; e++) {
                    ACCUMULATOR g = NUMBER(X, cts + k * WORDS, e);
#if IS_MADE && HAS_OTHER
                    g = ROUNDED(g + NUMBER(X, others + k * WORDS, e));
#endif
                    const ACCUMULATOR v = NUMBER(X, words + k * WORDS, e) - centre[OF(e)];
#if FINDS
                    // As channel_norm.c made it.
                    const ACCUMULATOR y = MULTIPLY_ADD(v, scale[OF(e)], bias[OF(e)]);
                    g = ROUNDED(y) <= 0 ? 0 : g;
#elif IS_MADE && HAS_RELU
                    g = NUMBER(X, positives + k * WORDS, e) <= 0 ? 0 : g;
#endif
#if IS_SUMS
                    sums[OF(e)] += g;
                    along[OF(e)] = MULTIPLY_ADD(g, v, along[OF(e)]);
                    values[e] = g;
#else
                    values[e] = (g - level[OF(e)] - v * slope[OF(e)]) * scale[OF(e)];
#endif
                }
#if !IS_SUMS
                PUT_NUMBERS(X, dx, at, values)
#elif HAS_COPY
                PUT_NUMBERS(X, copy, at, values)
#endif
            }
        }
    }
#if IS_SUMS
    ACCUMULATOR sum[TOTALS], product[TOTALS];
    SUM_LANES(shared, sums, sum)
    SUM_LANES(shared, along, product)
    FOR_TOTALS(n, channel) {
        const uint at = GROUP_ID(1) * CHANNELS + channel;
        STORE(S, means, at, sum[n]);
        STORE(S, parts, at, product[n]);
    }
#endif
KERNEL_END
