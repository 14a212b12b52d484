// Elements of `source` put, or added, to where an index says along one dimension: a work-item
// for each element of the index, sorted by `order`. The first of those with one place goes
// through them all. `y` begins as a copy of `x`.
//
// X, INDEX: dtypes. COMBINE(a, b): what becomes of `a` where `b` is put. IS_ACROSS: are neighbours in memory of different
// lines? Neighbouring work-items are, too, then. AHEAD: elements that are loaded at once, so that those of a place with many
// do not each wait for the one before.

KERNEL_BEGIN
    const uint item = GROUP_ID(0) * GROUP + LANE;
    if (item < p.count) {
#if IS_ACROSS
        const uint lines = p.count / p.picks;
        const uint line = item % lines;
        uint i = item / lines;
#else
        const uint line = item / p.picks;
        uint i = item % p.picks;
#endif
        uint to = 0, at = 0, source_at = 0, order_at = 0;
        ADD_OFFSET(to, line, p.lines_rank, p.lines_shape, p.y_strides);
        ADD_OFFSET(at, line, p.lines_rank, p.lines_shape, p.index_strides);
        ADD_OFFSET(source_at, line, p.lines_rank, p.lines_shape, p.source_strides);
        ADD_OFFSET(order_at, line, p.lines_rank, p.lines_shape, p.order_strides);
#define SORTED(i) LOAD(u32, order, order_at + (i) * p.order_step)
#define PICK(i) LOAD(INDEX, index, at + SORTED(i) * p.index_step)
        const long pick = PICK(i);
        if (pick < 0 || pick >= (long)p.size) {
            REPORT(status, p.status_code);
        } else if (i == 0 || PICK(i - 1) != pick) {
            const uint place = to + (uint)pick * p.y_step;
            COMPUTE(X) value = LOAD(X, y, place);
            bool is_own[AHEAD];
            do {
                uint from[AHEAD];
                COMPUTE(X) others[AHEAD];
                UNROLL
                for (uint k = 0; k < AHEAD; k++) from[k] = SORTED(min(i + k, p.picks - 1));
                UNROLL
                for (uint k = 0; k < AHEAD; k++) {
                    is_own[k] = i + k < p.picks && LOAD(INDEX, index, at + from[k] * p.index_step) == pick;
                }
                UNROLL
                for (uint k = 0; k < AHEAD; k++) {
                    if (is_own[k]) others[k] = LOAD(X, source, source_at + from[k] * p.source_step);
                }
                UNROLL
                for (uint k = 0; k < AHEAD; k++) {
                    if (is_own[k]) value = COMBINE(value, others[k]);
                }
                i += AHEAD;
            } while (is_own[AHEAD - 1]);
            STORE(X, y, place, value);
        }
    }
KERNEL_END
