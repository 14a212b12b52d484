// What scatter_parts.c leaves: elements of places that go on behind the part that they begin in. A work-item for each part
// combines those of the last place that begins in it.
//
// Macros: as there.

KERNEL_BEGIN
    const uint item = GROUP_ID(0) * GROUP + LANE;
    if (item < p.count) {
        const uint line = LINE_OF(item);
        uint part = PART_OF(item);
        FIND_LINE(line)
        const uint begin = part * p.part, end = begin + p.part;
        const long pick = PICK(min(end, p.picks) - 1);
        const bool is_first = begin == 0 || PICK(begin - 1) != pick;
        if (is_first && end < p.picks && PICK(end) == pick) {
            if (pick < 0 || pick >= (long)p.size) {
                REPORT(status, p.status_code);
            } else {
                const uint place = to + (uint)pick * p.y_step;
                COMPUTE(X) value = LOAD(X, y, place);
                const COMPUTE(X) own = LOAD(SUMS, ends, item);
                value = COMBINE(value, own);
                bool goes_on[AHEAD];
                do {
                    COMPUTE(X) others[AHEAD];
                    UNROLL
                    for (uint k = 0; k < AHEAD; k++) {
                        const uint next = part + 1 + k;
                        goes_on[k] = next < p.parts && PICK(next * p.part) == pick;
                        if (goes_on[k]) others[k] = LOAD(SUMS, begins, ITEM_OF(line, next));
                    }
                    UNROLL
                    for (uint k = 0; k < AHEAD; k++) {
                        if (goes_on[k]) value = COMBINE(value, others[k]);
                    }
                    part += AHEAD;
                } while (goes_on[AHEAD - 1]);
                STORE(X, y, place, value);
            }
        }
    }
KERNEL_END
