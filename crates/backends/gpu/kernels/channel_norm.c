// Channels normalised by their statistics; see channels.h.
//
// X, W: dtypes of images and weights. S: that of statistics. ACCUMULATOR: type that is computed in. EPS: added to the
// variance. HAS_OTHER: is another tensor, `other`, added? HAS_RELU: is the result the positive part? ROUNDED(x): x as a
// number of X.

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint begin = GROUP_ID(1) * p.segment, end = min(begin + p.segment, p.lines);
    if (COLUMN < p.vectors) {
        ACCUMULATOR centre[OWN], scale[OWN], level[OWN];
        UNROLL
        for (uint e = 0; e < OWN; e++) {
            const uint channel = COLUMN * OWN + e;
            const ACCUMULATOR variance = LOAD(S, var, channel);
            centre[e] = LOAD(S, mean, channel);
            scale[e] = LOAD(W, w, channel) / sqrt(variance + EPS);
            level[e] = LOAD(W, b, channel);
        }
        for (uint line = begin + LANE / COLUMNS; line < end; line += STEP * EACH) {
            KEPT words[EACH * WORDS];
            FOR_LINES(k, line, end, at) GET_WORDS(X, words + k * WORDS, x, at)
#if HAS_OTHER
            KEPT others[EACH * WORDS];
            FOR_LINES(k, line, end, at) GET_WORDS(X, others + k * WORDS, other, at)
#endif
            FOR_LINES(k, line, end, at) {
                ACCUMULATOR values[VECTOR];
                UNROLL
                for (uint e = 0; e < VECTOR; e++) {
                    ACCUMULATOR v = NUMBER(X, words + k * WORDS, e) - centre[OF(e)];
                    v = MULTIPLY_ADD(v, scale[OF(e)], level[OF(e)]);
#if HAS_OTHER
                    v = ROUNDED(v) + NUMBER(X, others + k * WORDS, e);
#endif
#if HAS_RELU
                    v = v <= 0 ? 0 : v;
#endif
                    values[e] = v;
                }
                PUT_NUMBERS(X, y, at, values)
            }
        }
    }
KERNEL_END
