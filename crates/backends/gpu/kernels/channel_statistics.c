// Mean and variance of each channel, for each segment of lines; see channels.h. Numbers are taken relative to the segment's
// first, so that equal ones have no variance. Squares are shares of their mean, so that their sum overflows only where that does.
//
// X: dtype. ACCUMULATOR: type that is computed in.

FUNCTION ACCUMULATOR finite(ACCUMULATOR x) { return fabs(x) < INFINITY ? x : 0; }

KERNEL_BEGIN
    LAUNCH_NEXT;
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP * OWN);
    const uint begin = GROUP_ID(1) * p.segment, end = min(begin + p.segment, p.lines);
    const ACCUMULATOR count = (end - begin) * MEMBERS, share = 1 / count;
    ACCUMULATOR shift[OWN], sums[OWN], squares[OWN];
    UNROLL
    for (uint e = 0; e < OWN; e++) shift[e] = sums[e] = squares[e] = 0;
    if (COLUMN < p.vectors) {
        KEPT first[WORDS];
        GET_WORDS(X, first, x, PLACE(begin))
        UNROLL
        for (uint e = 0; e < OWN; e++) shift[e] = finite(NUMBER(X, first, e));
        for (uint line = begin + LANE / COLUMNS; line < end; line += STEP * EACH) {
            KEPT words[EACH * WORDS];
            FOR_LINES(k, line, end, at) GET_WORDS(X, words + k * WORDS, x, at)
            FOR_LINES(k, line, end, at) {
                UNROLL
                for (uint e = 0; e < VECTOR; e++) {
                    const ACCUMULATOR v = NUMBER(X, words + k * WORDS, e) - shift[OF(e)];
                    sums[OF(e)] += v;
                    squares[OF(e)] = MULTIPLY_ADD(v * share, v, squares[OF(e)]);
                }
            }
        }
    }
    ACCUMULATOR sum[TOTALS], square[TOTALS];
    SUM_LANES(shared, sums, sum)
    SUM_LANES(shared, squares, square)
    FOR_TOTALS(n, channel) {
        const ACCUMULATOR from = finite(LOAD(X, x, IS_LAST ? begin * CHANNELS + channel : PLACE(begin) * VECTOR));
        const ACCUMULATOR mean = sum[n] / count;
        const uint at = GROUP_ID(1) * CHANNELS + channel;
        STORE(S, means, at, from + mean);
        STORE(S, parts, at, square[n] < INFINITY ? square[n] - mean * mean : square[n]);
    }
KERNEL_END
