// Elements of `source` put, or added, to where an index says along one dimension: a work-item for each part of a sorted
// line. Those of one place follow each other: what is of a place that the part before has, too, goes to `begins`, what is
// of one that only the part behind has, too, to `ends`, and all else to `y`, which begins as a copy of `x`.
//
// X, INDEX, SUMS: dtypes. COMBINE(a, b): what becomes of `a` where `b` is put. Others: see scatter_parts.h.

#define PUT \
    if (!is_first) { \
        STORE(SUMS, begins, item, value); \
    } else if (pick < 0 || pick >= (long)p.size) { \
        REPORT(status, p.status_code); \
    } else { \
        const uint place = to + (uint)pick * p.y_step; \
        const COMPUTE(X) before = LOAD(X, y, place); \
        value = COMBINE(before, value); \
        STORE(X, y, place, value); \
    }

KERNEL_BEGIN
    const uint item = GROUP_ID(0) * GROUP + LANE;
    if (item < p.count) {
        FIND_LINE(LINE_OF(item))
        const uint begin = PART_OF(item) * p.part, end = min(begin + p.part, p.picks);
        long pick = PICK(begin);
        // Does the place have no element in the part before?
        bool is_first = begin == 0 || PICK(begin - 1) != pick;
        COMPUTE(X) value = LOAD(X, source, source_at + SORTED(begin) * p.source_step);
        for (uint i = begin + 1; i < end; i += AHEAD) {
            uint from[AHEAD];
            long picks[AHEAD];
            COMPUTE(X) values[AHEAD];
            UNROLL
            for (uint k = 0; k < AHEAD; k++) from[k] = SORTED(min(i + k, end - 1));
            UNROLL
            for (uint k = 0; k < AHEAD; k++) {
                picks[k] = LOAD(INDEX, index, at + from[k] * p.index_step);
                values[k] = LOAD(X, source, source_at + from[k] * p.source_step);
            }
            UNROLL
            for (uint k = 0; k < AHEAD; k++) {
                if (i + k < end) {
                    if (picks[k] == pick) {
                        value = COMBINE(value, values[k]);
                    } else {
                        PUT
                        pick = picks[k];
                        value = values[k];
                        is_first = true;
                    }
                }
            }
        }
        if (is_first && end < p.picks && PICK(end) == pick) {
            STORE(SUMS, ends, item, value);
        } else {
            PUT
        }
    }
KERNEL_END
